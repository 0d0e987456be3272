"""Whether the device or its host is at fault when attaches fail; pure.

A device that fails again is kept from use longer each time. Where several different devices fail on one host and none
succeeds there in between, the host's port, cable or node is at fault: the host is avoided, and the devices are free again
at once.

Kept in memory only: after a restart the next failure counts as the first. Bounded: entries without a failure for a day are
dropped, and of more than `LIMIT` entries the oldest goes.
"""

import datetime
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

LIMIT = 4096
FORGET_AFTER = datetime.timedelta(days=1)
DEVICES_THAT_BLAME_A_HOST = 2
DOUBLINGS_MAX = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class _Device:
    failures: int
    last: datetime.datetime
    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Host:
    """Devices that failed there since the last success, and how often any did."""

    devices: frozenset[str] = frozenset()
    failures: int = 0
    last: datetime.datetime


@dataclass(slots=True, kw_only=True)
class Ledger:
    """The failures of one fabric's devices."""

    _devices: dict[str, _Device] = field(default_factory=dict)
    _hosts: dict[str, _Host] = field(default_factory=dict)

    def failed(self, device: str, host: str, now: datetime.datetime) -> None:
        """Count a failed attach of the device to the host, for a reason that one of the two is to blame for."""
        self._forget(now)
        earlier = self._devices.pop(device, None)
        self._devices[device] = _Device(failures=earlier.failures + 1 if earlier else 1, last=now, host=host)
        at = self._hosts.pop(host, _Host(last=now))
        self._hosts[host] = replace(at, devices=at.devices | {device}, failures=at.failures + 1, last=now)

    def succeeded(self, device: str, host: str) -> None:
        """Note that the device is in use on the host: neither is at fault."""
        self._devices.pop(device, None)
        self._hosts.pop(host, None)

    def blamed(self, probation: datetime.timedelta, now: datetime.datetime) -> dict[str, datetime.datetime]:
        """Return the hosts at fault, each with the moment until which it is avoided."""
        blamed = {}
        for name, host in self._hosts.items():
            surplus = host.failures - DEVICES_THAT_BLAME_A_HOST
            if len(host.devices) >= DEVICES_THAT_BLAME_A_HOST:
                until = host.last + _longer(probation, surplus)
                if now < until:
                    blamed[name] = until
        return blamed

    def devices_on(self, host: str) -> tuple[str, ...]:
        """Return the names of the devices that failed there."""
        entry = self._hosts.get(host)
        return tuple(sorted(entry.devices)) if entry else ()

    def probations(
        self, probation: datetime.timedelta, blamed: Iterable[str]
    ) -> dict[str, datetime.timedelta]:
        """Return by device name how long its failure counts; no time for one that failed on a host at fault."""
        hosts = frozenset(blamed)
        return {
            name: datetime.timedelta() if device.host in hosts else _longer(probation, device.failures - 1)
            for name, device in self._devices.items()
        }

    def resting(
        self, probation: datetime.timedelta, blamed: Iterable[str], now: datetime.datetime
    ) -> frozenset[str]:
        """Return the names of the devices whose last failure still counts."""
        periods = self.probations(probation, blamed)
        return frozenset(name for name, device in self._devices.items() if now < device.last + periods[name])

    def failures(self) -> dict[str, int]:
        """Return by device name how often in a row it failed."""
        return {name: device.failures for name, device in self._devices.items()}

    def _forget(self, now: datetime.datetime) -> None:
        oldest = now - FORGET_AFTER
        entries: dict[str, _Device] | dict[str, _Host]
        for entries in (self._devices, self._hosts):
            for name in [name for name, entry in entries.items() if entry.last < oldest]:
                del entries[name]
            while len(entries) >= LIMIT:
                del entries[next(iter(entries))]


def _longer(probation: datetime.timedelta, times: int) -> datetime.timedelta:
    factor = 1 << min(max(times, 0), DOUBLINGS_MAX)
    return min(probation * factor, max(probation, FORGET_AFTER))
