"""The simulated hardware of a node in a real cluster: a mocked /sys in which attached devices appear."""
