"""The verdict on a device's health, and the interface of its readers."""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol


class Status(enum.StrEnum):
    """As the kubelet shows it to users (`v1.DRAResourceHealth`) and as DeviceAttachments record it."""

    HEALTHY = "Healthy"
    UNHEALTHY = "Unhealthy"
    UNKNOWN = "Unknown"


class Effect(enum.StrEnum):
    """What a taint does; KEP-5055."""

    NONE = "None"
    NO_SCHEDULE = "NoSchedule"
    NO_EXECUTE = "NoExecute"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Key:
    """A device by its DRA name."""

    pool: str
    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """One finding as a taint.

    Attributes:
        key: one of `policy.NAMES`, without the driver's name: `link-narrow`.
        message: what was found, in one sentence.
    """

    key: str
    value: str
    effect: Effect
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How one device is.

    Attributes:
        message: why, in at most 1,024 characters; empty where nothing was found.
        taints: what the policy wants, worst first. A healthy device has none but of effect None, for information.
    """

    status: Status
    message: str = ""
    taints: tuple[Taint, ...] = ()


UNKNOWN = Verdict(status=Status.UNKNOWN)


class Verdicts(Protocol):
    """The verdicts, as the health stream, the local pool and the attachments read them."""

    def verdict(self, key: Key) -> Verdict:
        """The verdict on a device; `UNKNOWN` for one that is not watched."""
        ...

    def all(self) -> Mapping[Key, Verdict]:
        """Every watched device."""
        ...

    def subscribe(self, changed: Callable[[Key], None]) -> Callable[[], None]:
        """Calls `changed` in the event loop whenever a verdict changes; the answer ends it."""
        ...
