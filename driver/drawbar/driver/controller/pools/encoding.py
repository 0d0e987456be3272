"""The forms in which an API server takes taints, behind one interface; pure.

*Per device*: a taint stands in the device it is of, as every release has it. *Taint slice*: a second slice of the pool
holds the taints and no devices, as KEP-5055 proposes; it is always published, even when empty, so that a taint is one
write in place. *Withdrawn*: the API server keeps no taints at all, so a device that should have one is not published.
Which one it is shows in what the API server keeps (`pools.probe`).

Invariant: a device with a taint that keeps others away is published with that taint, or not at all.

Source: KEP-5055, "API"; limits from the validation of `resource.k8s.io/v1`.
"""

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

import msgspec

from drawbar.driver.api import slices
from drawbar.driver.controller.pools import taints

TAINTS_PER_DEVICE = 16
TAINTS_PER_SLICE = 32


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


def encode(encoding: Encoding, devices: Sequence[slices.Device]) -> Content:
    """Puts the taints of the devices where they belong.

    Args:
        encoding: the form.
        devices: all devices of one pool with all their taints, worst first.
    """
    match encoding:
        case Encoding.PER_DEVICE:
            return _per_device(devices)
        case Encoding.TAINT_SLICE:
            return _taint_slice(devices)
        case Encoding.WITHDRAWN:
            free = (device for device in devices if not taints.keeps_away(device.taints))
            return Content(devices=tuple(msgspec.structs.replace(device, taints=()) for device in free))
        case _:
            assert_never(encoding)


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
    entries.sort(key=lambda entry: (taints.rank(entry.taint), entry.device))
    kept, lost = entries[:TAINTS_PER_SLICE], entries[TAINTS_PER_SLICE:]
    tainted = {entry.device for entry in kept if taints.keeps_away([entry.taint])}
    # Published without its taint it would be given out.
    withdrawn = {entry.device for entry in lost if taints.keeps_away([entry.taint])} - tainted
    bare = tuple(
        msgspec.structs.replace(device, taints=()) for device in devices if device.name not in withdrawn
    )
    return Content(
        devices=bare,
        taints=tuple(sorted(kept, key=lambda entry: (entry.device, entry.taint.key))),
        left_out=tuple(sorted({entry.device for entry in lost})),
    )
