"""The faults of a simulated fabric, each for some calls, a number of times.

A call is hit by the first matching fault with hits left. There is one such fault for each stage: before the call is
heard (`refuse`, `hang`), for the operation (`fail`, `stick`), for the card on the host (`appear`) and for the answer
(`lose-reply`). So one attach can both appear late and lose its reply.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec

from drawbar.fabric import contract, errors, witnesses

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
    """The base of all faults: the calls that it matches.

    Attributes:
        device: the device of matching calls; only attach, detach and calls of slices have one.
        host: the host of matching calls; only attach and detach have one.
        skip: the number of matching calls that succeed before the first hit.
        times: the number of hits; null for no limit.
    """

    device: str | None = None
    host: str | None = None
    skip: int = 0
    times: int | None = 1


class _Failing(_Fault, frozen=True, kw_only=True):
    """The base of faults that end in an error.

    Attributes:
        code: the error's code.
        reason: the error's reason, for programs; the default is the code's name.
        message: the error's message, a sentence.
        retryable: true if the caller may retry; null for the code's default.
        side_effects_unknown: true if the call may have had an effect; null for the code's default.
    """

    code: errors.Code = errors.Code.UNAVAILABLE
    reason: str = ""
    message: str = "the simulated fabric was set to fail"
    retryable: bool | None = None
    side_effects_unknown: bool | None = None

    def error(self) -> errors.FabricError:
        """Return the error for the caller."""
        return errors.BY_CODE[self.code](
            self.message,
            reason=self.reason,
            retryable=self.retryable,
            side_effects_unknown=self.side_effects_unknown,
        )


class Refuse(_Failing, frozen=True, kw_only=True, tag="refuse"):
    """The call fails at once, without effect."""

    method: Method


class Hang(_Fault, frozen=True, kw_only=True, tag="hang"):
    """The call is never heard: it waits until its caller gives up."""

    method: Method


class Fail(_Failing, frozen=True, kw_only=True, tag="fail"):
    """The operation begins and fails after its time.

    Attributes:
        happens: true if the operation takes effect despite the error.
    """

    method: contract.OperationKind
    happens: bool = False


class Stick(_Fault, frozen=True, kw_only=True, tag="stick"):
    """The operation does not end until it is cancelled or forgotten."""

    method: contract.OperationKind


class LoseReply(_Fault, frozen=True, kw_only=True, tag="lose-reply"):
    """The request is carried out but its answer is lost: the call ends UNAVAILABLE, side effects unknown.

    Attributes:
        hang: true if the call waits until its caller gives up instead.
    """

    method: contract.OperationKind
    hang: bool = False


class Appear(_Fault, frozen=True, kw_only=True, tag="appear"):
    """The fabric attaches the device, but it comes up incorrectly on the host, which needs a mocked tree.

    Attributes:
        arrival: `late` comes up after `late_seconds`, `not-seen` is absent.
        late_seconds: the delay of `late`, in seconds.
        identifiers: the kernel's identifiers by kind, if they differ from the manager's.
        driver: the bound driver; "" for none.
        unassigned: true if the host has no addresses for its memory.
    """

    arrival: Literal["complete", "late", "not-seen"] = "complete"
    late_seconds: float = 0.0
    identifiers: dict[witnesses.Kind, str] | None = None
    driver: str | None = None
    unassigned: bool = False

    @property
    def method(self) -> contract.OperationKind:
        """Return ATTACH: devices appear by an attach."""
        return contract.OperationKind.ATTACH


class LoseEvents(_Fault, frozen=True, kw_only=True, tag="lose-events"):
    """Events of changes are not sent to watchers; some time after the first, all watchers must list again.

    Attributes:
        resync_seconds: that time in seconds.
    """

    resync_seconds: float = 1.0

    @property
    def method(self) -> str:
        """Return "event": the fault matches events instead of calls."""
        return "event"


Fault: TypeAlias = Refuse | Hang | Fail | Stick | LoseReply | Appear | LoseEvents
FAULT: Any = Fault
"""The union as a value for msgspec, which decodes by tag; mypy has no type for it."""
Kind = TypeVar("Kind", bound=Fault)
_ABOUT_A_HOST = frozenset({"attach", "detach", "event"})
_ABOUT_A_DEVICE = _ABOUT_A_HOST | {"create-slice", "delete-slice"}


class Deck:
    """The faults of a fabric with their counts. Pure but for the counting.

    Args:
        faults: the faults in the order of matching.
        seen: the number of matching calls by index.
        used: the number of hits by index.
    """

    def __init__(
        self,
        faults: Sequence[Fault],
        *,
        seen: Mapping[str, int] | None = None,
        used: Mapping[str, int] | None = None,
    ) -> None:
        self.faults = list(faults)
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
        """Return the fault of one of these kinds that hits this call, or None."""
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
        """Remove all faults."""
        self.faults.clear()
        self.seen.clear()
        self.used.clear()

    def _hits(self, index: str, fault: Fault) -> bool:
        if fault.times is not None and self.used.get(index, 0) >= fault.times:
            return False
        self.seen[index] = self.seen.get(index, 0) + 1
        if self.seen[index] <= fault.skip:
            return False
        self.used[index] = self.used.get(index, 0) + 1
        return True


def problems(fault: Fault, *, devices: frozenset[str], hosts: frozenset[str]) -> list[str]:
    """Return the problems of a decoded fault, a sentence each."""
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
    if fault.skip < 0 or (fault.times is not None and fault.times < 1):
        sentences.append("skip is at least 0 and times at least 1, or null for always")
    seconds = {
        "lateSeconds": getattr(fault, "late_seconds", 0.0),
        "resyncSeconds": getattr(fault, "resync_seconds", 0.0),
    }
    return sentences + [f"{name} is negative" for name, value in seconds.items() if value < 0]
