"""`drawbar doctor`: checks a live cluster or a node, and reports what is wrong and what to do about it.

Observe, judge, report: `observation` and `node_observation` read (and write nothing), `plans` decides purely, `report`
prints. What could not be read is a finding too.
"""
