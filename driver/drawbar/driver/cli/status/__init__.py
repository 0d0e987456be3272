"""`drawbar status`: the users of each fabric's devices, and what each device waits for.

`reading` asks the API server, `tree` makes a tree of the answers, `views` shows it.
"""
