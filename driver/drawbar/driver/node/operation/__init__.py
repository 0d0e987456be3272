"""What an administrator needs of the node daemon: metrics, probes and checks at the start."""
