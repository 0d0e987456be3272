"""Container Device Interface: the model of the specification, its versions, and atomic files.

`spec` holds the model, its JSON, its rules and its lowest version. `files` reads and writes files, and finds the devices
that two files name.
"""
