"""One controller at a time: the lease, and what is decided about it."""
