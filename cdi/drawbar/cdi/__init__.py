"""Container Device Interface: the specification's model, the lowest version that expresses it, atomic files.

`spec` is the model, `rules` what makes it valid, `versions` the lowest version, `documents` the JSON, `files` what is
on disk, `directories` who wins where two files name one device.
"""
