"""The health of this node's devices: readings, verdicts, and their subscribers."""
