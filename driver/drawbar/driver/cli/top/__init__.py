"""`drawbar top`: a live view of the fabrics in a terminal.

`screen` decides what stands on it and what a key does; `terminal` reads keys; `command` connects them to the cluster.
"""
