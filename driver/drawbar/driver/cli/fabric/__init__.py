"""`drawbar fabric`: look at a fabric, and change it by hand.

`sources` finds the fabric, `connections` connects its adapter, `oddities` checks the fabric's inventory, `views` makes
tables and JSON.
"""
