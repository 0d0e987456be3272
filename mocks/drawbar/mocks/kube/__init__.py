"""The doubles' own client of an API server.

It is separate from the client of the driver under test, so that a fault of that client is never on both sides of a test.
"""
