"""The controller's metrics and probes for an administrator, and the instruments that feed them."""
