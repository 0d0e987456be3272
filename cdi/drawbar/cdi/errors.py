"""What can go wrong with CDI.

CdiError
├── InvalidSpec     the content breaks a rule of the specification, or a file's content is no specification
├── Unreadable      a file, or the directory, is there and cannot be read
└── UnwritableDir   the CDI directory cannot be written
"""


class CdiError(Exception):
    """Base of everything this component raises."""


class InvalidSpec(CdiError):
    """A name, a value or a combination that the specification forbids."""


class Unreadable(CdiError):
    """A file or a directory that cannot be read; the message names it and the reason."""


class UnwritableDir(CdiError):
    """The directory that the container runtime reads cannot be written."""
