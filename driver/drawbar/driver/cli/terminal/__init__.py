"""The live terminal view of `drawbar status --watch`.

`screen` draws the page's content and handles keys, `keys` reads them, and `view` connects both to the cluster.
"""
