"""The unexpected errors that daemons in this process met and contained."""

import logging

from drawbar.driver import containment

SEEN: list[str] = []


class _Collector(logging.Handler):
    def emit(self, record):
        """Keep an error with its trace."""
        if record.msg == containment.MESSAGE:
            SEEN.append(logging.Formatter("%(message)s: %(worker)s").format(record))


def check():
    """Raise AssertionError with what was met since `SEEN` was cleared."""
    assert not SEEN, "\n".join(SEEN)


logging.getLogger(containment.__name__).addHandler(_Collector(logging.ERROR))
