"""`drawbar status`: the users of each fabric's devices, and the reason of each wait.

`reading` asks the API server, `tree` makes a tree of the answers, `views` shows it.
"""
