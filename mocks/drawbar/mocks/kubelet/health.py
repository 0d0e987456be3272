"""The plugins' reports of their devices' health, and the reports' validity.

A report is valid from its receipt, regardless of its own time stamp, until its own time-out or the default. After
that, or without a report, the device is Unknown. A report is a complete list: a missing device keeps its state until
its time is over. When the stream of *any* plugin of a driver ends, all reports of that driver are forgotten. Limit:
the real kubelet keeps the state in a file until its streams are open again.

No component is notified of an expired report. It shows at the next sync, as in the real kubelet, which syncs its pods
once a minute.

Source: pkg/kubelet/cm/dra/healthinfo.go of Kubernetes 1.36, as described by the fact pages.
"""

import datetime
from collections.abc import Callable, Iterable
from typing import Literal

import msgspec

MESSAGE_LIMIT_CHARS = 1024

Status = Literal["Healthy", "Unhealthy", "Unknown"]
DeviceKey = tuple[str, str]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A report about one device.

    Attributes:
        timeout_seconds: its validity in seconds; None for the default.
        message: a message for people; may be empty.
        received: the time of receipt; set by `Healths`.
    """

    pool: str
    device: str
    status: Status
    timeout_seconds: float | None = None
    message: str = ""
    received: datetime.datetime = datetime.datetime.min.replace(tzinfo=datetime.UTC)

    @property
    def key(self) -> DeviceKey:
        """Return pool and device."""
        return self.pool, self.device


class Healths:
    """The health of all devices of one node, by driver."""

    def __init__(self, *, default_timeout_seconds: float, clock: Callable[[], datetime.datetime]) -> None:
        self._default = default_timeout_seconds
        self._clock = clock
        self._known: dict[str, dict[DeviceKey, Report]] = {}

    def take(self, driver: str, reports: Iterable[Report]) -> set[DeviceKey]:
        """Take in one complete list; return the devices with changes."""
        now = self._clock()
        stored = self._known.setdefault(driver, {})
        changed: set[DeviceKey] = set()
        reported: set[DeviceKey] = set()
        for report in reports:
            reported.add(report.key)
            old = stored.get(report.key)
            if old is None or _content(old) != _content(report):
                changed.add(report.key)
            stored[report.key] = msgspec.structs.replace(report, received=now)
        for key, old in list(stored.items()):
            if key not in reported and old.status != "Unknown" and self._is_old(old, now):
                stored[key] = msgspec.structs.replace(old, status="Unknown", message="", received=now)
                changed.add(key)
        return changed

    def forget(self, driver: str) -> None:
        """Forget all devices of a driver."""
        self._known.pop(driver, None)

    def look(self, driver: str, pool: str, device: str) -> tuple[Status, str]:
        """Return the present status and message of a device."""
        report = self._known.get(driver, {}).get((pool, device))
        if report is None or self._is_old(report, self._clock()):
            return "Unknown", ""
        return report.status, report.message

    def _is_old(self, report: Report, now: datetime.datetime) -> bool:
        timeout = self._default if report.timeout_seconds is None else report.timeout_seconds
        return now - report.received > datetime.timedelta(seconds=timeout)


def cut(message: str) -> str:
    """Return the message, cut to the limit with a mark at the end."""
    if len(message) <= MESSAGE_LIMIT_CHARS:
        return message
    return message[: MESSAGE_LIMIT_CHARS - 3] + "..."


def _content(report: Report) -> tuple[Status, str, float | None]:
    return report.status, report.message, report.timeout_seconds
