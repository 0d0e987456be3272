"""What ends the doctor without a report.

DrawbarError
└── CannotCheck    nothing at all could be looked at; exit status 2
"""

from drawbar.driver import errors


class CannotCheck(errors.DrawbarError):
    """The API server does not answer, or does not know us."""

    exit_code = 2
