"""The error of the mocked sysfs."""

from drawbar.mocks import errors


class ImpossibleWorld(errors.MockError):
    """The requested state is impossible on a real host, so the mock refuses it."""
