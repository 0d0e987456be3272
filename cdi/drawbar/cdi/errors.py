"""What can go wrong with CDI.

CdiError
├── InvalidSpec     the content breaks a rule of the specification
└── UnwritableDir   the CDI directory cannot be written
"""


class CdiError(Exception):
    """Base of everything this component raises."""


class InvalidSpec(CdiError):
    """A name or a combination that the specification forbids."""


class UnwritableDir(CdiError):
    """The directory that the container runtime reads cannot be written."""
