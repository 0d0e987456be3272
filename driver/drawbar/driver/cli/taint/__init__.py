"""`drawbar taint`: DeviceTaintRules with a preview, in batches, and with an end.

`preview` computes the effects of a rule and `plan` the steps to it, both without I/O. `execution` carries out the
steps. `views` makes tables and documents.
"""
