"""`drawbar health-monitor`: other programs' reports on devices become DeviceTaintRules, by HealthPolicies.

`signals` reads payloads and `plan` decides, both without I/O; `receiver` takes requests, `program` runs the administrator's
command, `monitor` carries decisions out, and `daemon` runs all of it.
"""
