"""The election of one controller at a time: the lease, and the decision to take it."""
