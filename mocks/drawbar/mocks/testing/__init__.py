"""Pytest fixtures with an API server, a cluster, a fabric or a host for a driver's tests. See `plugin`."""
