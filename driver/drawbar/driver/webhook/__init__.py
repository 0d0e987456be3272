"""The admission webhook: it reports the problems of opaque parameters when they are written.

It is an early warning, not a guard: the controller and the node daemon check again, so nothing depends on it.
"""
