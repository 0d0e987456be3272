"""The forms of taints that an API server accepts, behind one interface; pure.

*Per device*: a taint is in its device, as in every release. *Taint slice*: a second slice of the pool
holds the taints and no devices, as KEP-5055 proposes; it is always published, even when empty, so that a taint is one
write in place. *Withdrawn*: the API server keeps no taints at all, so a device with a taint is not published.
`slices.publisher.probe` finds out the form, and the possible details of a taint, from the fields that the API server keeps. No
release up to 1.37 keeps any of these details.

Invariant: a device with a taint that keeps others away is published with that taint, or not at all.

Source: KEP-5055, "API"; limits from the validation of `resource.k8s.io/v1`.
"""

import datetime
import enum
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import assert_never

import msgspec

from drawbar.driver.api import meta, slices
from drawbar.driver.catalogue import taints

NO_EXECUTE, NO_SCHEDULE, NO_EFFECT = taints.NO_EXECUTE, taints.NO_SCHEDULE, taints.NO_EFFECT
EFFECTS = (NO_EXECUTE, NO_SCHEDULE, NO_EFFECT)
TAINTS_PER_DEVICE = 16
TAINTS_PER_SLICE = 32
_DETAILS: Mapping[str, tuple[str, str | None]] = {
    "description": ("description", ""),
    "data": ("data", None),
    "evictionsPerSecond": ("evictions_per_second", None),
}
"""By its name in the API, which field of a taint has the detail, and how it stands there when it is absent."""
DETAILS = frozenset(_DETAILS)
SHARING = "allowMultipleAllocations"
CONDITIONS = frozenset({"bindsToNode", "bindingConditions", "bindingFailureConditions"})
"""Without these a pod is bound before its device is ready."""


def is_all_closed(published: Collection[slices.ResourceSlice]) -> bool:
    """Return whether there are devices, and each has a taint that keeps further claims away."""
    closed = {
        (entry.spec.pool.name, each.device)
        for entry in published
        for each in entry.spec.taints
        if each.taint.effect != NO_EFFECT
    }
    return any(entry.spec.devices for entry in published) and all(
        (entry.spec.pool.name, device.name) in closed
        or any(taint.effect != NO_EFFECT for taint in device.taints)
        for entry in published
        for device in entry.spec.devices
    )


class Encoding(enum.StrEnum):
    """The place of taints."""

    PER_DEVICE = "per-device"
    TAINT_SLICE = "taint-slice"
    WITHDRAWN = "withdrawn"


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a fabric's device that an API server keeps.

    Attributes:
        dropped: the fields of a device that it does not keep; empty if it keeps all.
        form: the place of taints.
        details: the possible `DETAILS` of a taint there.
        informs: whether it accepts taints of effect None.
        shares: whether a device can be given in shares of its capacity.
    """

    dropped: tuple[str, ...]
    form: Encoding
    details: frozenset[str] = frozenset()
    informs: bool = True
    shares: bool = False

    @property
    def conditions(self) -> bool:
        """Return whether binding conditions are kept; without them only attached devices may be offered."""
        return not CONDITIONS & set(self.dropped)


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """The published content of one pool.

    Attributes:
        devices: the content of the pool's slice of devices.
        taints: the content of its slice of taints; None without one.
        left_out: names of devices with taints that had no room; the worst taints are kept.
    """

    devices: tuple[slices.Device, ...]
    taints: tuple[slices.SliceTaint, ...] | None = None
    left_out: tuple[str, ...] = ()


def rank(taint: slices.Taint) -> tuple[int, str]:
    """Sort the worst first."""
    return EFFECTS.index(taint.effect), taint.key


def keeps_away(taints: Iterable[slices.Taint]) -> bool:
    """Return whether one of the taints keeps claims away that do not tolerate it."""
    return any(taint.effect != NO_EFFECT for taint in taints)


def informs(spec: slices.SliceSpec) -> bool:
    """Return whether a taint of effect None is in a slice of devices."""
    return any(taint.effect == NO_EFFECT for device in spec.devices for taint in device.taints)


def encode(
    encoding: Encoding,
    devices: Sequence[slices.Device],
    details: Collection[str] = DETAILS,
    *,
    informs: bool = True,
) -> Content:
    """Put the taints of the devices where they belong.

    Args:
        encoding: the form.
        devices: all devices of one pool with all their taints, worst first.
        details: which of `DETAILS` this API server keeps; the others are left out, or each round would write them again.
        informs: it takes taints of effect None; one without that effect refuses the whole slice.
    """
    devices = [_keep_details(device, details, informs=informs) for device in devices]
    match encoding:
        case Encoding.PER_DEVICE:
            return _limit_taints(devices)
        case Encoding.TAINT_SLICE:
            return _taint_slice(devices)
        case Encoding.WITHDRAWN:
            free = (device for device in devices if not keeps_away(device.taints))
            return Content(devices=tuple(msgspec.structs.replace(device, taints=()) for device in free))
        case _:
            assert_never(encoding)


def find_kept_details(sent: slices.Taint, stored: slices.Taint) -> frozenset[str]:
    """Return which details of a taint came back as they were sent."""
    return frozenset(
        name for name, (field, _) in _DETAILS.items() if getattr(sent, field) == getattr(stored, field)
    )


def find_missing(sent: slices.Device, stored: slices.Device) -> tuple[str, ...]:
    """Return the fields of a device that did not come back as they were sent."""
    fields = {
        "bindsToNode": sent.binds_to_node and not stored.binds_to_node,
        "bindingConditions": sent.binding_conditions and not stored.binding_conditions,
        "bindingFailureConditions": sent.binding_failure_conditions and not stored.binding_failure_conditions,
        "taints": sent.taints and not stored.taints,
        SHARING: sent.allow_multiple_allocations and not stored.allow_multiple_allocations,
        "attributes": sent.attributes != stored.attributes,
        "capacity": sent.capacity != stored.capacity,
    }
    return tuple(name for name, is_missing in fields.items() if is_missing)


def find_lost_fields(sent: slices.SliceSpec, stored: slices.SliceSpec) -> frozenset[str]:
    """Return the fields of devices, and the details of their taints, that did not come back as they were sent."""
    kept = {device.name: device for device in stored.devices}
    names = {
        name
        for device in sent.devices
        for name in (find_missing(device, kept[device.name]) if device.name in kept else ("devices",))
    }
    if sent.taints and not stored.taints:
        names.add("taints")
    pairs = [
        pair
        for device in sent.devices
        if device.name in kept
        for pair in zip(device.taints, kept[device.name].taints, strict=False)
    ]
    pairs += [
        (entry.taint, kept_entry.taint) for entry, kept_entry in zip(sent.taints, stored.taints, strict=False)
    ]
    return frozenset(names).union(*(DETAILS - find_kept_details(*pair) for pair in pairs))


def date_taints(
    taints: Iterable[slices.Taint], before: Iterable[slices.Taint], now: datetime.datetime
) -> tuple[slices.Taint, ...]:
    """Return the taints with the time since when they stand: tolerations count from it.

    Args:
        taints: as they should be; one that has a time keeps it.
        before: the taints that the device has; one that stays the same keeps its time.
        now: for those that are new.
    """
    since = {taint.identity: taint.time_added for taint in before}
    return tuple(
        msgspec.structs.replace(
            taint, time_added=taint.time_added or since.get(taint.identity) or meta.timestamp(now)
        )
        for taint in taints
    )


def decode(published: Iterable[slices.ResourceSlice]) -> Mapping[str, tuple[slices.Taint, ...]]:
    """Return the taints by device name, in any of their forms; no entry for a device that is not published."""
    listed = tuple(published)
    taints = {
        device.name: device.taints for published_slice in listed for device in published_slice.spec.devices
    }
    for published_slice in listed:
        for entry in published_slice.spec.taints:
            if entry.device in taints:
                taints[entry.device] = (*taints[entry.device], entry.taint)
    return taints


def taints_of(published: Sequence[slices.ResourceSlice], device: str) -> tuple[slices.Taint, ...] | None:
    """Return the taints of one device; None if it is not published."""
    matches = [
        candidate
        for published_slice in published
        for candidate in published_slice.spec.devices
        if candidate.name == device
    ]
    if not matches:
        return None
    apart = (
        entry.taint
        for published_slice in published
        for entry in published_slice.spec.taints
        if entry.device == device
    )
    return (*matches[-1].taints, *apart)


def _keep_details(device: slices.Device, details: Collection[str], *, informs: bool) -> slices.Device:
    if not informs:
        acting = tuple(taint for taint in device.taints if taint.effect != NO_EFFECT)
        device = msgspec.structs.replace(device, taints=acting)
    absent = {field: empty for name, (field, empty) in _DETAILS.items() if name not in details}
    if not absent or not device.taints:
        return device
    left = tuple(msgspec.structs.replace(taint, **absent) for taint in device.taints)
    return msgspec.structs.replace(device, taints=left)


def _limit_taints(devices: Sequence[slices.Device]) -> Content:
    return Content(
        devices=tuple(
            msgspec.structs.replace(device, taints=device.taints[:TAINTS_PER_DEVICE]) for device in devices
        ),
        left_out=tuple(device.name for device in devices if len(device.taints) > TAINTS_PER_DEVICE),
    )


def _taint_slice(devices: Sequence[slices.Device]) -> Content:
    # By turns, so that a device with many taints from its node leaves room for the worst taints of the
    # others.
    entries = [
        slices.SliceTaint(device=device.name, taint=taint)
        for position in range(max((len(device.taints) for device in devices), default=0))
        for device, taint in sorted(
            ((device, device.taints[position]) for device in devices if position < len(device.taints)),
            key=lambda pair: (rank(pair[1]), pair[0].name),
        )
    ]
    kept, lost = entries[:TAINTS_PER_SLICE], entries[TAINTS_PER_SLICE:]
    tainted = {entry.device for entry in kept if keeps_away([entry.taint])}
    # Without its taint it would be given out.
    withdrawn = {entry.device for entry in lost if keeps_away([entry.taint])} - tainted
    bare = tuple(
        msgspec.structs.replace(device, taints=()) for device in devices if device.name not in withdrawn
    )
    return Content(
        devices=bare,
        taints=tuple(sorted(kept, key=lambda entry: (entry.device, entry.taint.key))),
        left_out=tuple(sorted({entry.device for entry in lost})),
    )
