"""The pause of a claim between a failed attach and its next one.

The scheduler takes a failed allocation back and gives the claim another, maybe the same one, within seconds; the
claim's UID stays. So each failure makes the pause before the claim's next attach longer. The pause counts from the
failure. An attach of another device than last time is one failure behind: after a first failure it begins at once.
Nothing else waits: the device belongs to the claim all that time, and each claim counts separately.

The failures are kept in memory only: after a restart the next failure counts as the first. They are bounded: a claim is
forgotten when it is deleted or becomes ready, and of more than `LIMIT` claims the one with the oldest last failure
goes.
"""

import datetime
from collections.abc import Callable

import msgspec

from drawbar.driver import backoff
from drawbar.driver.api import claims
from drawbar.driver.controller import claims as claim_index
from drawbar.driver.controller import names

LIMIT = 4096
PAUSE_FIRST_SECONDS = 5.0
PAUSE_MAX_SECONDS = 300.0
# The part of the scheduler's wait for the device that a pause may take; the rest is for the attach.
PAUSE_SHARE = 0.5


class _Claim(msgspec.Struct, frozen=True, kw_only=True):
    failures: int
    last: datetime.datetime
    allocation: tuple[str | None, str | None]
    devices: frozenset[names.DeviceKey]


class Retries:
    """The failures of claims since they were last ready."""

    def __init__(self, driver: str, clock: Callable[[], datetime.datetime]) -> None:
        self._driver = driver
        self._clock = clock
        self._claims: dict[str, _Claim] = {}

    def change(self, old: claims.ResourceClaim | None, new: claims.ResourceClaim | None) -> None:
        """Take in a change of a claim."""
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._claims.pop(old.metadata.uid, None)
        if new is None or new.status.allocation is None:
            return
        if claim_index.has_failed(new, self._driver):
            self._count(new, new.status.allocation)
        elif (
            new.metadata.uid in self._claims
            and claim_index.devices(new, self._driver)
            and claim_index.is_ready(new, self._driver)
        ):
            del self._claims[new.metadata.uid]

    def _count(self, claim: claims.ResourceClaim, allocation: claims.Allocation) -> None:
        uid, identity = claim.metadata.uid, (allocation.allocation_timestamp, allocation.node)
        earlier = self._claims.get(uid)
        if earlier is not None and earlier.allocation == identity:
            return
        self._claims.pop(uid, None)
        while len(self._claims) >= LIMIT:
            del self._claims[next(iter(self._claims))]
        self._claims[uid] = _Claim(
            failures=earlier.failures + 1 if earlier is not None else 1,
            last=self._clock(),
            allocation=identity,
            devices=frozenset(claim_index.devices(claim, self._driver)),
        )

    def failures(self, uid: str) -> int:
        """Return the number of the claim's failures since it was last ready."""
        claim = self._claims.get(uid)
        return claim.failures if claim is not None else 0

    def attaches_at(
        self, uid: str, key: names.DeviceKey, seen_at: datetime.datetime, patience: datetime.timedelta
    ) -> datetime.datetime | None:
        """Return when the claim's next attach begins at the earliest, or None if at once.

        Args:
            uid: the claim's UID.
            key: the allocated device.
            seen_at: the time when this process first saw the allocation.
            patience: the time from there to the end of the scheduler's wait.
        """
        claim = self._claims.get(uid)
        if claim is None:
            return None
        steps = claim.failures if key in claim.devices else claim.failures - 1
        if steps <= 0:
            return None
        seconds = backoff.longest(steps, PAUSE_FIRST_SECONDS, PAUSE_MAX_SECONDS)
        moment = min(claim.last + datetime.timedelta(seconds=seconds), seen_at + patience * PAUSE_SHARE)
        return moment if moment > seen_at else None
