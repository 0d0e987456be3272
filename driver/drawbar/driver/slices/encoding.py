"""The forms in which an API server takes taints, behind one interface; pure.

*Per device*: a taint stands in the device it is of, as every release has it. *Taint slice*: a second slice of the pool
holds the taints and no devices, as KEP-5055 proposes; it is always published, even when empty, so that a taint is one
write in place. *Withdrawn*: the API server keeps no taints at all, so a device that should have one is not published.
Which one it is shows in what the API server keeps (`slices.probe`), and so does which details a taint may have there: no
release up to 1.37 has any of them.

Invariant: a device with a taint that keeps others away is published with that taint, or not at all.

Source: KEP-5055, "API"; limits from the validation of `resource.k8s.io/v1`.
"""

import enum
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

import msgspec

from drawbar.driver.api import slices

NO_EXECUTE = "NoExecute"
NO_SCHEDULE = "NoSchedule"
NO_EFFECT = "None"
_WORST_FIRST = (NO_EXECUTE, NO_SCHEDULE, NO_EFFECT)
TAINTS_PER_DEVICE = 16
TAINTS_PER_SLICE = 32
_DETAILS: Mapping[str, tuple[str, str | None]] = {
    "description": ("description", ""),
    "data": ("data", None),
    "evictionsPerSecond": ("evictions_per_second", None),
}
"""By its name in the API, which field of a taint has the detail, and how it stands there when it is absent."""
DETAILS = frozenset(_DETAILS)


class Encoding(enum.StrEnum):
    """Where taints stand."""

    PER_DEVICE = "per-device"
    TAINT_SLICE = "taint-slice"
    WITHDRAWN = "withdrawn"


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What is published of one pool.

    Attributes:
        devices: the content of the pool's slice of devices.
        taints: the content of its slice of taints; None where there is none.
        left_out: names of devices whose taints had no room; the worst of the others stand.
    """

    devices: tuple[slices.Device, ...]
    taints: tuple[slices.SliceTaint, ...] | None = None
    left_out: tuple[str, ...] = ()


def rank(taint: slices.Taint) -> tuple[int, str]:
    """Sort the worst first."""
    return _WORST_FIRST.index(taint.effect), taint.key


def keeps_away(taints: Iterable[slices.Taint]) -> bool:
    """Whether one of the taints keeps claims away that do not tolerate it."""
    return any(taint.effect != NO_EFFECT for taint in taints)


def encode(
    encoding: Encoding,
    devices: Sequence[slices.Device],
    details: Collection[str] = DETAILS,
    *,
    informs: bool = True,
) -> Content:
    """Puts the taints of the devices where they belong.

    Args:
        encoding: the form.
        devices: all devices of one pool with all their taints, worst first.
        details: which of `DETAILS` this API server keeps; the others are left out, or each round would write them again.
        informs: it takes taints of effect None; one that does not know that effect refuses the whole slice.
    """
    devices = [_with(device, details, informs=informs) for device in devices]
    match encoding:
        case Encoding.PER_DEVICE:
            return _per_device(devices)
        case Encoding.TAINT_SLICE:
            return _taint_slice(devices)
        case Encoding.WITHDRAWN:
            free = (device for device in devices if not keeps_away(device.taints))
            return Content(devices=tuple(msgspec.structs.replace(device, taints=()) for device in free))
        case _:
            assert_never(encoding)


def kept_details(sent: slices.Taint, stored: slices.Taint) -> frozenset[str]:
    """Which details of a taint came back as they were sent."""
    return frozenset(
        name for name, (field, _) in _DETAILS.items() if getattr(sent, field) == getattr(stored, field)
    )


def lost_details(wanted: slices.SliceSpec, stored: slices.SliceSpec) -> frozenset[str]:
    """Which details did not come back of the taints that did."""
    pairs = [
        (sent, kept)
        for one, other in zip(wanted.devices, stored.devices, strict=False)
        for sent, kept in zip(one.taints, other.taints, strict=False)
    ]
    pairs += [(one.taint, other.taint) for one, other in zip(wanted.taints, stored.taints, strict=False)]
    return frozenset[str]().union(*(DETAILS - kept_details(sent, kept) for sent, kept in pairs))


def decode(published: Iterable[slices.ResourceSlice]) -> Mapping[str, tuple[slices.Taint, ...]]:
    """The taints by device name, in whichever form they stand; no entry for a device that is not published."""
    known = tuple(published)
    found = {device.name: device.taints for one in known for device in one.spec.devices}
    for one in known:
        for entry in one.spec.taints:
            if entry.device in found:
                found[entry.device] = (*found[entry.device], entry.taint)
    return found


def taints_of(published: Sequence[slices.ResourceSlice], device: str) -> tuple[slices.Taint, ...] | None:
    """The same of one device; None if it is not published."""
    found = [known for one in published for known in one.spec.devices if known.name == device]
    if not found:
        return None
    apart = (entry.taint for one in published for entry in one.spec.taints if entry.device == device)
    return (*found[-1].taints, *apart)


def _with(device: slices.Device, details: Collection[str], *, informs: bool) -> slices.Device:
    if not informs:
        acting = tuple(taint for taint in device.taints if taint.effect != NO_EFFECT)
        device = msgspec.structs.replace(device, taints=acting)
    absent = {field: empty for name, (field, empty) in _DETAILS.items() if name not in details}
    if not absent or not device.taints:
        return device
    left = tuple(msgspec.structs.replace(taint, **absent) for taint in device.taints)
    return msgspec.structs.replace(device, taints=left)


def _per_device(devices: Sequence[slices.Device]) -> Content:
    return Content(
        devices=tuple(
            msgspec.structs.replace(device, taints=device.taints[:TAINTS_PER_DEVICE]) for device in devices
        ),
        left_out=tuple(device.name for device in devices if len(device.taints) > TAINTS_PER_DEVICE),
    )


def _taint_slice(devices: Sequence[slices.Device]) -> Content:
    entries = [
        slices.SliceTaint(device=device.name, taint=taint) for device in devices for taint in device.taints
    ]
    entries.sort(key=lambda entry: (rank(entry.taint), entry.device))
    kept, lost = entries[:TAINTS_PER_SLICE], entries[TAINTS_PER_SLICE:]
    tainted = {entry.device for entry in kept if keeps_away([entry.taint])}
    # Published without its taint it would be given out.
    withdrawn = {entry.device for entry in lost if keeps_away([entry.taint])} - tainted
    bare = tuple(
        msgspec.structs.replace(device, taints=()) for device in devices if device.name not in withdrawn
    )
    return Content(
        devices=bare,
        taints=tuple(sorted(kept, key=lambda entry: (entry.device, entry.taint.key))),
        left_out=tuple(sorted({entry.device for entry in lost})),
    )
