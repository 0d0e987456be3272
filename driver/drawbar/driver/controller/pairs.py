"""The pairs of devices and hosts that the fabric manager refused to connect; pure.

A refusal as incompatible says nothing about the device or the host: each of them works with others. So the pair is
remembered, and a claim for it fails at once for as long as a failed device would be on probation. Then the manager is
asked again. The period grows as a probation does: by refusals of a second namespace.

The pairs are in the Fabric's status, up to `SHOWN_MAX` of them, and a starting controller takes them from there; each
then counts from that start. They are bounded: an entry without a refusal for a day is dropped, and of more than `LIMIT`
entries the oldest goes.
"""

import datetime
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from drawbar.driver.api import fabrics, meta
from drawbar.driver.controller import faults

LIMIT = 4096
SHOWN_MAX = 64
MESSAGE_CHARS = 256

Pair = tuple[str, str]
"""The names of a device and of a host."""


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """The fabric manager's last refusal of a pair.

    Attributes:
        message: the manager's words.
        at: the time when this process first saw it, on the steady clock.
        reported_at: the same time for people; after a restart, the time in the Fabric's status.
        tally: the refusals by namespace.
    """

    message: str
    at: datetime.datetime
    reported_at: str
    tally: faults.Tally = msgspec.field(default_factory=faults.Tally)

    def ends_at(self, probation: datetime.timedelta) -> datetime.datetime:
        """Return when the manager is asked again."""
        return self.at + faults.longer(probation, self.tally.confirmed - 1)


@dataclass(slots=True, kw_only=True)
class Pairs:
    """The refused pairs of one fabric."""

    _refusals: dict[Pair, Refusal] = field(default_factory=dict)

    def restore(self, reported: Iterable[fabrics.IncompatiblePair], now: datetime.datetime) -> None:
        """Take the pairs from the Fabric's status."""
        for pair in reported:
            self._refusals[pair.device, pair.host] = Refusal(
                message=pair.message, at=now, reported_at=pair.refused_at
            )

    def note_refusal(
        self,
        pair: Pair,
        source: faults.Source,
        message: str,
        *,
        now: datetime.datetime,
        date: datetime.datetime,
    ) -> None:
        """Note that the manager refused to attach the device to the host as incompatible.

        Args:
            pair: the device and the host.
            source: the origin of the attach.
            message: the manager's words.
            now: the time on the steady clock.
            date: the time of day.
        """
        self._forget(now)
        earlier = self._refusals.pop(pair, None)
        tally = earlier.tally if earlier is not None else faults.Tally()
        self._refusals[pair] = Refusal(
            message=message[:MESSAGE_CHARS],
            at=now,
            reported_at=meta.timestamp(date),
            tally=tally.add(source, now),
        )

    def note_success(self, device: str, host: str) -> None:
        """Note that the device is in use on the host."""
        self._refusals.pop((device, host), None)

    def refusal(
        self, device: str, host: str, probation: datetime.timedelta, now: datetime.datetime
    ) -> Refusal | None:
        """Return the refusal of the pair, or None if there is none, or the manager is to be asked again."""
        refusal = self._refusals.get((device, host))
        return refusal if refusal is not None and now < refusal.ends_at(probation) else None

    def has(self, device: str) -> bool:
        """Return whether the device was refused to a host within the last day."""
        return any(refused == device for refused, _ in self._refusals)

    def find_lasting(self, probation: datetime.timedelta, now: datetime.datetime) -> dict[Pair, Refusal]:
        """Return the pairs that are not tried now."""
        return {pair: refusal for pair, refusal in self._refusals.items() if now < refusal.ends_at(probation)}

    def ends(self, probation: datetime.timedelta, now: datetime.datetime) -> dict[Pair, datetime.datetime]:
        """Return the pairs that are not tried now, each with the time of the next possible try."""
        return {
            pair: refusal.ends_at(probation) for pair, refusal in self.find_lasting(probation, now).items()
        }

    def build_report(
        self, probation: datetime.timedelta, now: datetime.datetime
    ) -> tuple[fabrics.IncompatiblePair, ...]:
        """Return the pairs for the Fabric's status, sorted; of too many, the last refused ones."""
        lasting = list(self.find_lasting(probation, now).items())[-SHOWN_MAX:]
        return tuple(
            fabrics.IncompatiblePair(
                device=device, host=host, message=refusal.message, refused_at=refusal.reported_at
            )
            for (device, host), refusal in sorted(lasting, key=lambda entry: entry[0])
        )

    def _forget(self, now: datetime.datetime) -> None:
        oldest = now - faults.FORGET_AFTER
        for pair in [pair for pair, refusal in self._refusals.items() if refusal.at < oldest]:
            del self._refusals[pair]
        while len(self._refusals) >= LIMIT:
            del self._refusals[next(iter(self._refusals))]
