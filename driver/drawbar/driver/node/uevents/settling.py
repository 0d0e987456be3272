"""Devices that had an event lately, and are worth a look once the dust has settled; pure.

Some of what an event leads to happens after it, and has no event: a slot loses its power after its functions have been
removed (pciehp_ctrl.c, `remove_board`), the decoders of a region are freed after the region is gone.
"""

from collections.abc import Iterable
from typing import Generic, TypeVar

PAUSES_SECONDS = (0.5,)
"""A hot-plug driver is through with a slot in a tenth of a second; one that takes longer is found by the audit."""
_MOST = 4096  # beyond it nothing is remembered, and the audit finds what changed

_Item = TypeVar("_Item")


class Settling(Generic[_Item]):
    """Items that come due some time after they were last touched; knows no clock."""

    def __init__(self, pauses_seconds: Iterable[float] = PAUSES_SECONDS) -> None:
        self._queues: list[tuple[float, dict[_Item, float]]] = [(pause, {}) for pause in pauses_seconds]

    def touch(self, items: Iterable[_Item], now: float) -> None:
        """These had an event; each comes due once for every pause, counted from its last event."""
        for item in items:
            for pause, queue in self._queues:
                if queue.pop(item, None) is not None or len(queue) < _MOST:
                    queue[item] = (
                        now + pause
                    )  # behind all others, so that the first is always the next to come due

    def due(self, now: float) -> frozenset[_Item]:
        """What has come due; each is told once for each pause."""
        found = set()
        for _, queue in self._queues:
            for item, moment in tuple(queue.items()):
                if moment > now:
                    break
                del queue[item]
                found.add(item)
        return frozenset(found)

    def next(self) -> float | None:
        """When the next item comes due."""
        return min((next(iter(queue.values())) for _, queue in self._queues if queue), default=None)
