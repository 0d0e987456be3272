"""The admission webhook: says of opaque parameters what is wrong with them, when they are written.

It is an early word and no guard: the controller and the node daemon check again, so nothing depends on it.
"""
