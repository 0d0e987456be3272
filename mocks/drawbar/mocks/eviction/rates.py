"""The rate of evictions per taint: `evictionsPerSecond`, proposed by KEP-5055 and not in any release.

Pure, except for counting.

Each taint has its own limiter: the first `BURST` pods are evicted at once, the others at its rate, by default 10 per
second. A pod with several causes is evicted as soon as one of them allows it. A rule's taint is one taint, whatever
devices it selects. A driver's taints with the same driver, key, value and rate are one, so a lost chassis counts once
and not once per device. Idle limiters are dropped.

Source: KEP-5055, DeviceTaint and "Tracker".
"""

import datetime
from collections.abc import Iterable
from dataclasses import dataclass

from drawbar.mocks.scheduler import objects

BURST = 10
USUAL = 10
_EPOCH = datetime.datetime.min.replace(tzinfo=datetime.UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The limit of one cause of evictions.

    Attributes:
        taint: the key that distinguishes it from other taints.
        per_second: the number of pods it may evict.
        since: the time before which it evicts no pod.
    """

    taint: tuple[str, ...]
    per_second: int
    since: datetime.datetime = _EPOCH


def driver_limit(driver: str, taint: objects.Taint, usual: int | None) -> Limit | None:
    """Return the limit of a taint that a driver publishes; None if taints have none."""
    rate = taint.evictions_per_second or usual
    return Limit(taint=(driver, taint.key, taint.value, str(rate)), per_second=rate) if rate else None


def rule_limit(uid: str, taint: objects.Taint, usual: int | None) -> Limit | None:
    """Return the limit of a DeviceTaintRule's taint; None if taints have none."""
    rate = taint.evictions_per_second or usual
    return Limit(taint=(uid, str(rate)), per_second=rate) if rate else None


@dataclass(slots=True, kw_only=True)
class _Limiter:
    """A bucket that holds at most `BURST` evictions and is refilled at the rate."""

    per_second: int
    held: float
    at: datetime.datetime

    def fill(self, now: datetime.datetime) -> None:
        passed = max(0.0, (now - self.at).total_seconds())
        self.held, self.at = min(float(BURST), self.held + passed * self.per_second), now


class Rates:
    """The limiters of the current evictions."""

    def __init__(self) -> None:
        self._limiters: dict[tuple[str, ...], _Limiter] = {}

    def pause(self, limits: Iterable[Limit], now: datetime.datetime) -> float:
        """Return the seconds until the pod may be evicted.

        0 if now (the eviction is counted) or if nothing limits it.
        """
        self._drop_idle(now)
        pauses = []
        for limit in sorted(limits, key=lambda limit: limit.taint):
            if limit.since > now:
                continue
            fresh = _Limiter(per_second=limit.per_second, held=BURST, at=now)
            limiter = self._limiters.setdefault(limit.taint, fresh)
            if limiter.held >= 1:
                limiter.held -= 1
                return 0.0
            pauses.append((1 - limiter.held) / limit.per_second)
        return min(pauses, default=0.0)

    def _drop_idle(self, now: datetime.datetime) -> None:
        for taint, limiter in tuple(self._limiters.items()):
            limiter.fill(now)
            if limiter.held >= BURST:
                del self._limiters[taint]
