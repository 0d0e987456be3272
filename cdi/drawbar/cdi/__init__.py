"""Container Device Interface: the specification's model, the lowest version that expresses it, atomic files.

`spec` is the model, its JSON, its rules and its lowest version, `files` what is on disk, and which
device wins where two files name one.
"""
