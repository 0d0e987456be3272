"""A node's hardware in a cluster where all hardware is pretended: a mocked /sys into which attached devices come."""
