"""The times of the eviction double, with the real controller's defaults."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How long things take.

    Attributes:
        status_seconds: the shortest time between two updates of one rule's status while pods are evicted.
    """

    status_seconds: float = 10.0
