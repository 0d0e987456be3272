"""The errors of CDI.

CdiError
├── AmbiguousDevice a device is in two files of one directory
├── InvalidSpec     the content breaks a rule of the specification, or the file holds no specification
├── Unreadable      a file or the directory exists and cannot be read
└── UnwritableDir   the CDI directory cannot be written
"""


class CdiError(Exception):
    """The base of all errors of this component."""


class AmbiguousDevice(CdiError):
    """A device that two files of one directory name; the runtimes use none of them."""


class InvalidSpec(CdiError):
    """A name, value or combination forbidden by the specification."""


class Unreadable(CdiError):
    """A file or a directory that cannot be read; the message names it and the reason."""


class UnwritableDir(CdiError):
    """A CDI directory that cannot be written."""
