"""The verdict on a device's health, and the interface of its readers."""

import enum
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec


class Status(enum.StrEnum):
    """The health for users (`v1.DRAResourceHealth`) and in DeviceAttachments."""

    HEALTHY = "Healthy"
    UNHEALTHY = "Unhealthy"
    UNKNOWN = "Unknown"


class Effect(enum.StrEnum):
    """The effect of a taint; KEP-5055."""

    NONE = "None"
    NO_SCHEDULE = "NoSchedule"
    NO_EXECUTE = "NoExecute"


class Key(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """A device by its DRA name."""

    pool: str
    device: str


class Taint(msgspec.Struct, frozen=True, kw_only=True):
    """One finding as a taint.

    Attributes:
        key: one of `policy.NAMES`, without the driver's name: `link-narrow`.
        message: the finding, in one sentence.
    """

    key: str
    value: str
    effect: Effect
    message: str = ""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The health of one device.

    Attributes:
        message: the reasons, in at most 1,024 characters; empty without findings.
        taints: the policy's taints, worst first; those of a healthy device have the effect None, for information.
    """

    status: Status
    message: str = ""
    taints: tuple[Taint, ...] = ()


UNKNOWN = Verdict(status=Status.UNKNOWN)


class Verdicts(Protocol):
    """The verdicts, for the health stream, the local pool and the attachments."""

    def verdict(self, key: Key) -> Verdict:
        """Return the verdict on a device; `UNKNOWN` if it is not watched."""
        ...

    def all(self) -> Mapping[Key, Verdict]:
        """Return the verdict on every watched device."""
        ...

    def subscribe(self, changed: Callable[[Key], None]) -> Callable[[], None]:
        """Call `changed` in the event loop after each change of a verdict; return a function to unsubscribe."""
        ...
