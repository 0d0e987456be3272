"""The times of the eviction double; the defaults are those of the real controller."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The times.

    Attributes:
        status_seconds: the shortest time between two updates of one rule's status while pods are evicted.
    """

    status_seconds: float = 10.0
