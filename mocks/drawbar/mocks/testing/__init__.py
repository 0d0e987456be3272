"""Fixtures for pytest that give a driver's tests an API server, a cluster, a fabric or a host. See `plugin`."""
