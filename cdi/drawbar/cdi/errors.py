"""The errors of CDI.

CdiError
├── InvalidSpec     the content breaks a rule of the specification, or the file holds no specification
├── Unreadable      a file or the directory exists and cannot be read
└── UnwritableDir   the CDI directory cannot be written
"""


class CdiError(Exception):
    """The base of all errors of this component."""


class InvalidSpec(CdiError):
    """A name, value or combination forbidden by the specification."""


class Unreadable(CdiError):
    """A file or a directory that cannot be read; the message names it and the reason."""


class UnwritableDir(CdiError):
    """A CDI directory that cannot be written."""
