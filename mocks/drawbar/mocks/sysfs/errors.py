"""What the mocked sysfs refuses."""

from drawbar.driver import errors


class ImpossibleWorld(errors.DrawbarError):
    """A real host could not be in this state, so the mock does not pretend to be."""
