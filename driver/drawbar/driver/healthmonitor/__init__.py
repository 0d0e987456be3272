"""`drawbar health-monitor`: what others report of devices becomes DeviceTaintRules, by HealthPolicies.

`signals` reads payloads and `plan` decides, both without I/O; `receiver` takes requests, `program` runs the administrator's
command, `monitor` carries decisions out, and `daemon` runs all of it.
"""
