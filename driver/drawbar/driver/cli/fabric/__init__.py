"""`drawbar fabric`: look at a fabric, and change it by hand.

`sources` reads which fabric is meant, `connections` connects its adapter, `oddities` judges what the fabric lists, `views` makes
tables and JSON.
"""
