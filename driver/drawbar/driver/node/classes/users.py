"""Who uses a device, in words that an operator can act on.

Gathered by `openers`, `storage`, `vfio` and the classes; judged by `release.plan`, for which one user is enough to wait.
"""

from collections.abc import Iterable
from dataclasses import dataclass

SHOWN = 4
"""More than these are counted: a condition's message has 1,024 characters at most."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class User:
    """One reason not to take a device away.

    Attributes:
        text: a clause, such as `held by pid 4711 (python), /dev/nvidia0`.
    """

    text: str


def message(found: Iterable[User]) -> str:
    """All of them in one clause; the first few by name."""
    texts = [user.text for user in sorted(set(found))]
    rest = len(texts) - SHOWN
    return "; ".join(texts[:SHOWN]) + (f"; and {rest} more" if rest > 0 else "")
