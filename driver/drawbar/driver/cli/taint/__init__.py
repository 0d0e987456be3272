"""`drawbar taint`: DeviceTaintRules with a preview, in batches, and with an end.

`preview` computes what a rule affects and `plan` the steps to a rule, both without I/O; `execution` carries steps out, `views` makes
tables and documents.
"""
