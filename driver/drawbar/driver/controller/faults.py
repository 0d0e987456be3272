"""The blame for failed attaches: the device or its host; pure.

A device that fails again is kept from use for a longer time. If several different devices fail on one host and none
succeeds there in between, the host's port, cable or node is at fault. Then the devices are free again at once. The host
is avoided as soon as a second namespace confirms it.

Invariants, for any sequence of failures:

- the failures of one claim on one device count once;
- the failures of only one namespace never lengthen a probation beyond the first, and never blame a host, since a tenant
  chooses by its claims which device is attached where. An operator's attach by hand needs no second namespace.

The failures are kept in memory only: after a restart the next failure counts as the first. They are bounded: entries
without a failure for a day are dropped, and of more than `LIMIT` entries the oldest goes.
"""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from drawbar.driver.api import attachments

LIMIT = 4096
FORGET_AFTER = datetime.timedelta(days=1)
DEVICES_THAT_BLAME_A_HOST = 2
NAMESPACES_THAT_BLAME_A_HOST = 2
DOUBLINGS_MAX = 6
# The most claims and devices in an entry: more claims lengthen no probation, and more devices add no blame.
CLAIMS_MAX = DOUBLINGS_MAX + 1
NAMESPACES_MAX = 16
DEVICES_MAX = 16
_BY_HAND = ""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """The origin of an attach.

    Attributes:
        namespace: the claim's namespace; empty for an attach by hand.
        uid: the claim's UID; for an attach by hand, the DeviceAttachment's.
    """

    namespace: str
    uid: str

    @classmethod
    def from_attachment(cls, attachment: attachments.DeviceAttachment) -> "Source":
        """Return the origin of an attachment's attach."""
        claim = attachment.spec.claim
        if claim is None:
            return cls(namespace=_BY_HAND, uid=attachment.metadata.uid)
        return cls(namespace=claim.namespace, uid=claim.uid)


class _Namespace(msgspec.Struct, frozen=True, kw_only=True):
    claims: tuple[str, ...]
    last: datetime.datetime


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """The failures of one device, host or pair, by the namespaces of the claims."""

    namespaces: Mapping[str, _Namespace] = msgspec.field(default_factory=dict)

    def add(self, source: Source, now: datetime.datetime) -> "Tally":
        """Return the tally with one more failure; a repeated failure of a claim changes no number."""
        recent = {
            name: entry
            for name, entry in self.namespaces.items()
            if name != source.namespace and now - entry.last < FORGET_AFTER
        }
        earlier = self.namespaces.get(source.namespace, _Namespace(claims=(), last=now))
        claims = (*(uid for uid in earlier.claims if uid != source.uid), source.uid)[-CLAIMS_MAX:]
        kept = dict(list(recent.items())[-(NAMESPACES_MAX - 1) :])
        return Tally(namespaces=kept | {source.namespace: _Namespace(claims=claims, last=now)})

    @property
    def confirmed(self) -> int:
        """Return the number of failures; those of the namespace with the most count as one."""
        numbers = {name: len(entry.claims) for name, entry in self.namespaces.items()}
        by_hand = numbers.pop(_BY_HAND, 0)
        return by_hand + sum(numbers.values()) - max(numbers.values(), default=0) + bool(numbers)

    def confirmed_at(self) -> datetime.datetime | None:
        """Return when the last of enough namespaces, or an operator, had a failure, or None if they had none."""
        by_hand = self.namespaces.get(_BY_HAND)
        moments = sorted((entry.last for entry in self.namespaces.values()), reverse=True)
        together = moments[NAMESPACES_THAT_BLAME_A_HOST - 1 : NAMESPACES_THAT_BLAME_A_HOST]
        return max([*together, *([by_hand.last] if by_hand is not None else [])], default=None)


class _Device(msgspec.Struct, frozen=True, kw_only=True):
    tally: Tally
    last: datetime.datetime
    host: str


class _Host(msgspec.Struct, frozen=True, kw_only=True):
    """The host's failures since the last success, and some of the devices that failed."""

    tally: Tally = msgspec.field(default_factory=Tally)
    devices: tuple[str, ...] = ()
    last: datetime.datetime

    @property
    def is_suspect(self) -> bool:
        return len(self.devices) >= DEVICES_THAT_BLAME_A_HOST

    def period(self, probation: datetime.timedelta) -> datetime.timedelta:
        return longer(probation, self.tally.confirmed - DEVICES_THAT_BLAME_A_HOST)


@dataclass(slots=True, kw_only=True)
class Ledger:
    """The failures of one fabric's devices."""

    _devices: dict[str, _Device] = field(default_factory=dict)
    _hosts: dict[str, _Host] = field(default_factory=dict)

    def count_failure(self, device: str, host: str, source: Source, now: datetime.datetime) -> None:
        """Count a failed attach of the device to the host, if one of the two is to blame."""
        self._forget(now)
        earlier = self._devices.pop(device, None)
        tally = earlier.tally if earlier is not None else Tally()
        self._devices[device] = _Device(tally=tally.add(source, now), last=now, host=host)
        at = self._hosts.pop(host, _Host(last=now))
        devices = (*(name for name in at.devices if name != device), device)[-DEVICES_MAX:]
        self._hosts[host] = msgspec.structs.replace(
            at, tally=at.tally.add(source, now), devices=devices, last=now
        )

    def note_success(self, device: str, host: str) -> None:
        """Note that the device is in use on the host: neither is at fault."""
        self._devices.pop(device, None)
        self._hosts.pop(host, None)

    def find_faulty_hosts(
        self, probation: datetime.timedelta, now: datetime.datetime
    ) -> dict[str, datetime.datetime]:
        """Return the hosts at fault, each with the time until which it is avoided."""
        blamed = {}
        for name, host in self._hosts.items():
            confirmed_at = host.tally.confirmed_at()
            if host.is_suspect and confirmed_at is not None:
                until = confirmed_at + host.period(probation)
                if now < until:
                    blamed[name] = until
        return blamed

    def suspects(self, probation: datetime.timedelta, now: datetime.datetime) -> frozenset[str]:
        """Return the hosts with recent failures of several devices, even without a second namespace."""
        return frozenset(
            name
            for name, host in self._hosts.items()
            if host.is_suspect and now < host.last + host.period(probation)
        )

    def devices_on(self, host: str) -> tuple[str, ...]:
        """Return the names of the devices that failed there."""
        entry = self._hosts.get(host)
        return tuple(sorted(entry.devices)) if entry else ()

    def probations(
        self, probation: datetime.timedelta, now: datetime.datetime
    ) -> dict[str, datetime.timedelta]:
        """Return, by device name, how long its failure counts; zero if it failed on a suspect host."""
        hosts = self.suspects(probation, now)
        return {
            name: datetime.timedelta()
            if device.host in hosts
            else longer(probation, device.tally.confirmed - 1)
            for name, device in self._devices.items()
        }

    def find_resting(self, probation: datetime.timedelta, now: datetime.datetime) -> frozenset[str]:
        """Return the names of the devices whose last failure still counts."""
        periods = self.probations(probation, now)
        return frozenset(name for name, device in self._devices.items() if now < device.last + periods[name])

    def failures(self) -> dict[str, int]:
        """Return, by device name, the number of failures; those of the namespace with the most count as one."""
        return {name: device.tally.confirmed for name, device in self._devices.items()}

    def _forget(self, now: datetime.datetime) -> None:
        oldest = now - FORGET_AFTER
        entries: dict[str, _Device] | dict[str, _Host]
        for entries in (self._devices, self._hosts):
            for name in [name for name, entry in entries.items() if entry.last < oldest]:
                del entries[name]
            while len(entries) >= LIMIT:
                del entries[next(iter(entries))]


def longer(probation: datetime.timedelta, times: int) -> datetime.timedelta:
    """Return the probation doubled so many times, at most a day unless the first is longer."""
    factor = 1 << min(max(times, 0), DOUBLINGS_MAX)
    return min(probation * factor, max(probation, FORGET_AFTER))
