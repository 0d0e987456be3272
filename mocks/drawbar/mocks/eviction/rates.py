"""How fast a taint lets pods go: `evictionsPerSecond`, as KEP-5055 proposes it and no release has it. Pure, but for counting.

Each taint has a limiter of its own: the first `BURST` pods go at once, the others at its rate, 10 per second if it does not
say. A pod with several reasons goes as soon as one of them lets it. A rule's taint is one taint, whatever devices it selects;
a driver's taints are one where driver, key, value and rate are the same, so that a lost chassis is one eviction and not
as many as it has devices. Limiters that have been idle are dropped.

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
    """One reason to evict.

    Attributes:
        taint: the key that distinguishes it from other taints.
        per_second: how many pods may go.
        since: it evicts no pod before this moment.
    """

    taint: tuple[str, ...]
    per_second: int
    since: datetime.datetime = _EPOCH


def driver_limit(driver: str, taint: objects.Taint, usual: int | None) -> Limit | None:
    """The limit of a taint that a driver publishes; None where taints have none."""
    rate = taint.evictions_per_second or usual
    return Limit(taint=(driver, taint.key, taint.value, str(rate)), per_second=rate) if rate else None


def rule_limit(uid: str, taint: objects.Taint, usual: int | None) -> Limit | None:
    """The limit of a DeviceTaintRule's taint; None where taints have none."""
    rate = taint.evictions_per_second or usual
    return Limit(taint=(uid, str(rate)), per_second=rate) if rate else None


@dataclass(slots=True, kw_only=True)
class _Limiter:
    """A bucket that holds at most `BURST` evictions and is filled at the rate."""

    per_second: int
    held: float
    at: datetime.datetime

    def fill(self, now: datetime.datetime) -> None:
        passed = max(0.0, (now - self.at).total_seconds())
        self.held, self.at = min(float(BURST), self.held + passed * self.per_second), now


class Rates:
    """The limiters of the evictions under way."""

    def __init__(self) -> None:
        self._limiters: dict[tuple[str, ...], _Limiter] = {}

    def pause(self, limits: Iterable[Limit], now: datetime.datetime) -> float:
        """The seconds until the pod may go; 0 when it goes now, which is counted, or when nothing limits it."""
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
