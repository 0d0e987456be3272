"""The unexpected errors that daemons in this process met and contained."""

import logging

from drawbar.driver import containment

SEEN: list[str] = []


class _Collector(logging.Handler):
    def emit(self, record):
        """Keep an error with its trace."""
        if record.msg == containment.MESSAGE and not _is_of_another_loop(record):
            SEEN.append(logging.Formatter("%(message)s: %(worker)s").format(record))


def _is_of_another_loop(record):
    """Return whether gRPC, which polls for all loops of a process, has called one that an earlier test closed."""
    error = record.exc_info[1] if record.exc_info else None
    return isinstance(error, RuntimeError) and str(error) == "Event loop is closed"


def check():
    """Raise AssertionError with what was met since `SEEN` was cleared."""
    assert not SEEN, "\n".join(SEEN)


logging.getLogger(containment.__name__).addHandler(_Collector(logging.ERROR))
