"""`drawbar status`: who has which device of which fabric, and what each waits for.

`reading` asks the API server, `tree` makes a tree of the answers, `views` shows it.
"""
