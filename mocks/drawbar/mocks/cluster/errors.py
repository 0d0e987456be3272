"""The errors of a cluster of doubles.

    ClusterError            the cluster cannot start, or one of its processes ended
    └── ChildEnded          a process ended by itself

Messages name the process and its log.
"""

from pathlib import Path

from drawbar.mocks import errors


class ClusterError(errors.MockError):
    """The cluster cannot start, or cannot go on."""


class ChildEnded(ClusterError):
    """A process ended by itself."""

    def __init__(self, name: str, status: int, log: Path, *, when: str = "") -> None:
        last = last_line(log)
        reported = f": {last}" if last else ""
        super().__init__(f"{name} ended with status {status}{when}{reported} (its log: {log})")


def last_line(log: Path) -> str:
    """Return the last line of a log with text, cut to 300 characters; empty if there is none."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")
