"""`drawbar doctor`: checks of a live cluster or a node, each with its remedy.

`observation` and `node_observation` read the state and write nothing. `plans` makes findings of it and is pure.
`report` prints them. Unreadable state is a finding too.
"""
