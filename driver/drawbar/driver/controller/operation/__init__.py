"""What an administrator sees of the controller: metrics, probes, and the instruments that feed them."""
