"""The node daemon's interface for administrators: metrics, probes and checks at the start."""
