"""`drawbar doctor`: looks at a live cluster or a node, and says what is wrong and what to do about it.

Observe, then judge, then tell: `observation` reads (and writes nothing: it asks by dry run and by access reviews), `plan` and
the modules that it is made of judge purely, `report` and `report_json` tell. What could not be read is a finding too.
"""
