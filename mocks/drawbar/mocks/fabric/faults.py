"""What a simulated fabric does wrong, and when: a list of faults, each for some calls, some times, by some chance.

For a call the first fault of the list counts that fits, has hits left and whose chance comes up; separately for what
happens before the call is heard (`refuse`, `hang`), to the operation (`fail`, `stick`, `duplicate`), to the card on the
host (`appear`) and to the answer (`lose-reply`). So one attach can both appear late and lose its reply.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec

from drawbar.fabric import contract, errors, witnesses
from drawbar.mocks.fabric import latencies

Method: TypeAlias = Literal[
    "attach",
    "detach",
    "create-slice",
    "delete-slice",
    "capabilities",
    "hosts",
    "devices",
    "operation",
    "operations",
    "cancel",
    "watch",
]


class _Fault(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel", tag_field="effect"
):
    """What every fault says of the calls that it is for.

    Attributes:
        device: only calls about this device; attach, detach and those of slices alone are about one.
        host: only calls about this host; attach and detach alone are about one.
        skip: how many calls that fit go well before the first that may be hit.
        times: how many are hit; null: as long as the fabric lives.
        probability: of being hit, once a call fits.
    """

    device: str | None = None
    host: str | None = None
    skip: int = 0
    times: int | None = 1
    probability: float = 1.0


class _Failing(_Fault, frozen=True, kw_only=True):
    """A fault that ends in an error.

    Attributes:
        code: what the error means.
        reason: a word for programs; the code's name when empty.
        message: a sentence.
        retryable: null: as the code says.
        side_effects_unknown: null: as the code says.
    """

    code: errors.Code = errors.Code.UNAVAILABLE
    reason: str = ""
    message: str = "the simulated fabric was set to fail"
    retryable: bool | None = None
    side_effects_unknown: bool | None = None

    def error(self) -> errors.FabricError:
        """The error that the caller gets."""
        return errors.BY_CODE[self.code](
            self.message,
            reason=self.reason,
            retryable=self.retryable,
            side_effects_unknown=self.side_effects_unknown,
        )


class Refuse(_Failing, frozen=True, kw_only=True, tag="refuse"):
    """The call ends in the error at once, and nothing happens."""

    method: Method


class Hang(_Fault, frozen=True, kw_only=True, tag="hang"):
    """The call is never heard: it waits until its caller gives up."""

    method: Method


class Fail(_Failing, frozen=True, kw_only=True, tag="fail"):
    """The operation begins and ends in the error after its time.

    Attributes:
        happens: it has done its work all the same: an error is no proof of no effect.
    """

    method: contract.OperationKind
    happens: bool = False


class Stick(_Fault, frozen=True, kw_only=True, tag="stick"):
    """The operation never ends until it is cancelled, or forgotten."""

    method: contract.OperationKind


class Duplicate(_Fault, frozen=True, kw_only=True, tag="duplicate"):
    """The manager carries the request out a second time, as an operation of its own with the same request id.

    An attach of a device that was detached meanwhile attaches it again; an attach by model takes a second device.

    Attributes:
        after_seconds: from the end of the first operation to the beginning of the second.
    """

    method: contract.OperationKind
    after_seconds: float = 0.0


class LoseReply(_Fault, frozen=True, kw_only=True, tag="lose-reply"):
    """The request is carried out and its answer gets lost: the call ends UNAVAILABLE, side effects unknown.

    Attributes:
        hang: the call does not end at all, until its caller gives up.
    """

    method: contract.OperationKind
    hang: bool = False


class Appear(_Fault, frozen=True, kw_only=True, tag="appear"):
    """The fabric attaches the device, and on the host (which has a mocked tree) it does not come up as it should.

    Attributes:
        arrival: `late` comes up after `late_seconds`, `unpowered` waits for the slot's power, `no-link` never comes up though it
            is present, `not-seen` is not even present.
        late_seconds: see `late`.
        address: its PCI address, on another bus than the slot's own.
        serial: its serial, if it is not the device's.
        identifiers: the numbers that its kernel knows, by kind, if they are not those that the manager shows.
        driver: the driver that binds to it; "" for none.
        unassigned: the host has no addresses for its memory.
    """

    arrival: Literal["complete", "late", "unpowered", "no-link", "not-seen"] = "complete"
    late_seconds: float = 0.0
    address: str | None = None
    serial: str | None = None
    identifiers: dict[witnesses.Kind, str] | None = None
    driver: str | None = None
    unassigned: bool = False

    @property
    def method(self) -> contract.OperationKind:
        """Devices appear by an attach."""
        return contract.OperationKind.ATTACH


class LoseEvents(_Fault, frozen=True, kw_only=True, tag="lose-events"):
    """Events of changes are not sent to watchers; some time after the first, all watchers are requested to list again.

    Attributes:
        resync_seconds: that time.
    """

    resync_seconds: float = 1.0

    @property
    def method(self) -> str:
        """No call, but what the history is given."""
        return "event"


Fault: TypeAlias = Refuse | Hang | Fail | Stick | Duplicate | LoseReply | Appear | LoseEvents
FAULT: Any = Fault
"""The same for msgspec, which reads it by its tag; mypy has no type for a union as a value."""
Kind = TypeVar("Kind", bound=Fault)
_ABOUT_A_HOST = frozenset({"attach", "detach", "event"})
_ABOUT_A_DEVICE = _ABOUT_A_HOST | {"create-slice", "delete-slice"}


class Deck:
    """The faults of a fabric with what was used of each. Pure but for the counting.

    Args:
        faults: in the order in which they are looked at.
        dice: for probabilities.
        seen: by index, how many calls fitted.
        used: by index, how many were hit.
    """

    def __init__(
        self,
        faults: Sequence[Fault],
        dice: latencies.Dice,
        *,
        seen: Mapping[str, int] | None = None,
        used: Mapping[str, int] | None = None,
    ) -> None:
        self.faults = list(faults)
        self._dice = dice
        self.seen = dict(seen or {})
        self.used = dict(used or {})

    def draw(
        self,
        kinds: tuple[type[Kind], ...],
        method: str,
        *,
        device: str | None = None,
        host: str | None = None,
    ) -> Kind | None:
        """The fault of one of these kinds that hits this call, if any does."""
        for index, fault in enumerate(self.faults):
            if (
                isinstance(fault, kinds)
                and fault.method == method
                and fault.device in {None, device}
                and fault.host in {None, host}
                and self._hits(str(index), fault)
            ):
                return fault
        return None

    def clear(self) -> None:
        """Nothing goes wrong any more."""
        self.faults.clear()
        self.seen.clear()
        self.used.clear()

    def _hits(self, index: str, fault: Fault) -> bool:
        if fault.times is not None and self.used.get(index, 0) >= fault.times:
            return False
        self.seen[index] = self.seen.get(index, 0) + 1
        if self.seen[index] <= fault.skip or not self._dice.happens(fault.probability, "fault", index):
            return False
        self.used[index] = self.used.get(index, 0) + 1
        return True


def problems(fault: Fault, *, devices: frozenset[str], hosts: frozenset[str]) -> list[str]:
    """What is wrong with a fault that reads well."""
    sentences = []
    if fault.device is not None and fault.device not in devices:
        sentences.append(f"it names the device {fault.device}, which no enclosure has")
    if fault.host is not None and fault.host not in hosts:
        sentences.append(f"it names the host {fault.host}, which there is not")
    for kind, named, methods in (
        ("device", fault.device, _ABOUT_A_DEVICE),
        ("host", fault.host, _ABOUT_A_HOST),
    ):
        if named and str(fault.method) not in methods:
            sentences.append(f"a call of {fault.method} is about no {kind}; leave it out")
    if not 0 < fault.probability <= 1:
        sentences.append(f"probability {fault.probability:g} is not above 0 and at most 1")
    if fault.skip < 0 or (fault.times is not None and fault.times < 1):
        sentences.append("skip is at least 0 and times at least 1, or null for always")
    seconds = {
        "afterSeconds": getattr(fault, "after_seconds", 0.0),
        "lateSeconds": getattr(fault, "late_seconds", 0.0),
        "resyncSeconds": getattr(fault, "resync_seconds", 0.0),
    }
    return sentences + [f"{name} is negative" for name, value in seconds.items() if value < 0]
