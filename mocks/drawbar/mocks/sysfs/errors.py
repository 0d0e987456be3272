"""The error of the mocked sysfs."""

from drawbar.driver import errors


class ImpossibleWorld(errors.DrawbarError):
    """The requested state is impossible on a real host, so the mock refuses it."""
