"""Model offers of a fabric that chooses the device itself; they are published in place of its devices; pure.

Such a fabric attaches a device of a model, and chooses which. So `<model>-1` to `-n` are published, as many as devices
of the model are free or held. If some hosts reach only a part of them, the devices of one model and one set of
reachability groups have offers of their own: the fabric gives a host only reachable devices. To the rest of the
controller an offer is a device: its name is the lock, and its connection is that of the chosen device.

Invariants:

- a device is in one offer at most, and an offer with a DeviceAttachment keeps its name for the attachment's life;
- a device of an offer is, in this order, the one whose connection names the attachment's request, the one that the
  answer of an operation named, and the one that the attachment's status records;
- another owner's connection is in no offer, and removes a free offer;
- a memory chunk, and a device that has chunks or is only for them, is in no offer: no attach by model gives it;
- a connection with our mark that no DeviceAttachment could have made has an offer of its own, so that it is taken back
  like any other device.
"""

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields

import msgspec

from drawbar.driver.controller import names
from drawbar.driver.controller.offers.holdings import Holding, Holdings
from drawbar.fabric import contract

_NUMBER_CHARS = 6
# Fields that tell one device of a model from another.
_OWN_FIELDS = ("id", "serial", "identifiers", "connection", "etag")
_FIELDS = tuple(field.name for field in fields(contract.Device))
_EMPTY = contract.Device(id="none", device_class=contract.DeviceClass.OTHER)


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that neither the fabric nor the attachments show, as far as this process has seen them.

    Attributes:
        named: by the attachment's UID, the device in the answer of its operation.
        orphans: by offer, the device with our mark and without an attachment.
        foreign: devices without a mark that were connected when no attachment waited for one there.
    """

    named: Mapping[str, str] = msgspec.field(default_factory=dict)
    orphans: Mapping[str, str] = msgspec.field(default_factory=dict)
    foreign: frozenset[str] = frozenset()


class Arrangement(msgspec.Struct, frozen=True, kw_only=True):
    """The offers of a fabric.

    Attributes:
        parts: by name, each offer as a device of that id.
        contents: by offer, the id of the device in it.
        memory: the memory for the next arrangement.
    """

    parts: Mapping[str, contract.Device] = msgspec.field(default_factory=dict)
    contents: Mapping[str, str] = msgspec.field(default_factory=dict)
    memory: Memory = Memory()


def arrange(
    devices: Mapping[str, contract.Device], held: Holdings, memory: Memory, mark: str | None
) -> Arrangement:
    """Return the offers of a fabric with these devices.

    Args:
        devices: the listed devices by id.
        held: the cluster's holdings.
        memory: the memory of the last arrangement.
        mark: our mark; None if the fabric keeps no marks.
    """
    memory = _refresh_memory(devices, held, memory)
    contents = _find_contents(devices, held, memory)
    carved = contract.find_carved(devices.values())
    whole = [device for device in devices.values() if device.slice_of is None and device.id not in carved]
    alike: dict[str, list[contract.Device]] = {}
    for device in whole:
        if device.model:
            alike.setdefault(_stem(device), []).append(device)
    common = {stem: _common_device(group) for stem, group in alike.items()}
    waiting = [part for part in held.parts.values() if _awaits(part, contents, memory)]
    waited_for = {(part.host_id, part.model) for part in waiting}
    inside = set(contents.values())
    orphans: dict[str, str] = {}
    foreign: set[str] = set()
    used = {part.name for part in held.parts.values()}
    former = {device_id: name for name, device_id in memory.orphans.items()}
    for device in sorted(devices.values(), key=lambda device: device.id):
        connection = device.connection
        if connection is None or device.id in inside:
            continue
        # An attach whose answer was lost may have made it.
        may_be_waited_for = connection.request_id is None and (connection.host_id, device.model) in waited_for
        if mark is not None and connection.mark == mark and device.model and not may_be_waited_for:
            name = former.get(device.id, "")
            if not name or name in used:
                name = next(name for name in _number_names(_stem(device)) if name not in used)
            orphans[name] = device.id
            used.add(name)
        elif device.id in memory.foreign or not may_be_waited_for:
            foreign.add(device.id)
    contents |= orphans
    parts = _find_held_parts(devices, held, contents, orphans, common)
    for stem, count in _count_free(whole, set(contents.values()), waiting).items():
        for name in _free_names(stem, count, used, held.claimed) if stem in common else ():
            parts[name] = dataclasses.replace(common[stem], id=name)
    memory = msgspec.structs.replace(memory, orphans=orphans, foreign=frozenset(foreign))
    return Arrangement(parts=parts, contents=contents, memory=memory)


def is_needed(can: contract.Capabilities, mark: str | None = None) -> bool:
    """Return whether a fabric attaches devices only by model."""
    del mark
    return can.select_by_model and not can.exact_device


def remember_device(memory: Memory, part: Holding, device_id: str) -> Memory:
    """Return the memory with the device that an operation named; an earlier attachment loses it."""
    elsewhere = {uid: other for uid, other in memory.named.items() if other != device_id}
    return msgspec.structs.replace(memory, named=elsewhere | {part.uid: device_id})


def forget_device(memory: Memory, part: Holding) -> Memory:
    """Return the memory without the device of an operation that failed."""
    return msgspec.structs.replace(
        memory, named={uid: other for uid, other in memory.named.items() if uid != part.uid}
    )


def adoptable(
    devices: Mapping[str, contract.Device],
    part: Holding,
    arrangement: Arrangement,
    mark: str | None,
    *,
    spoken_for: Collection[str] = (),
) -> str | None:
    """Return the device that an attach with a lost answer has connected, or None if there is none.

    Args:
        devices: the listed devices by id.
        part: the part that needs a device.
        arrangement: the arrangement of these devices.
        mark: our mark; None if the fabric keeps no marks.
        spoken_for: devices that operations of other requests name.
    """
    if not _awaits(part, arrangement.contents, arrangement.memory):
        return None
    kept = {*arrangement.contents.values(), *spoken_for}
    candidates = (
        device.id
        for device in devices.values()
        if device.connection is not None
        and (device.connection.host_id, device.model) == (part.host_id, part.model)
        and device.connection.mark == mark
        and device.connection.request_id is None
        and device.id not in kept
        and device.slice_of is None
        and (mark is not None or device.id not in arrangement.memory.foreign)
    )
    return min(candidates, default=None)


def withdrawn(
    expected: Iterable[str], devices: Iterable[contract.Device], arrangement: Arrangement
) -> frozenset[str]:
    """Return the expected offers that are gone since other owners have their devices.

    A model with fewer listed devices than expected offers is left out: its devices may be missing from the listing.
    """
    expected = tuple(expected)
    listed: dict[str, int] = {}
    for device in devices:
        listed[_stem(device)] = listed.get(_stem(device), 0) + 1
    wanted: dict[str, int] = {}
    for name in expected:
        wanted[_stem_of(name)] = wanted.get(_stem_of(name), 0) + 1
    return frozenset(
        name
        for name in expected
        if name not in arrangement.parts
        and name not in arrangement.contents
        and wanted[_stem_of(name)] <= listed.get(_stem_of(name), 0)
    )


def uid_of(request_id: str) -> str:
    """Return the UID of the attachment of a request."""
    return request_id.rpartition("-")[0]


def _refresh_memory(devices: Mapping[str, contract.Device], held: Holdings, memory: Memory) -> Memory:
    """Return the memory of existing devices and attachments; a new attachment of an orphan's offer gets the orphan."""
    uids = {part.uid for part in held.parts.values()}
    kept = {uid: device_id for uid, device_id in memory.named.items() if uid in uids}
    connected = {device.id for device in devices.values() if device.connection is not None}
    for part in held.parts.values():
        orphan = devices.get(memory.orphans.get(part.name, ""))
        if orphan is None or orphan.connection is None or part.uid in kept or part.device_id:
            continue
        if orphan.connection.host_id == part.host_id:
            kept[part.uid] = orphan.id
    return Memory(
        named=kept,
        orphans={name: device_id for name, device_id in memory.orphans.items() if device_id in connected},
        foreign=memory.foreign & connected,
    )


def _find_contents(devices: Mapping[str, contract.Device], held: Holdings, memory: Memory) -> dict[str, str]:
    """Return, by offer, the device in it."""
    by_uid = {part.uid: part for part in held.parts.values()}
    shown = (
        (by_uid.get(uid_of(device.connection.request_id)), device.id)
        for device in devices.values()
        if device.connection is not None and device.connection.request_id
    )
    answered = ((part, memory.named.get(part.uid, "")) for part in held.parts.values())
    recorded = ((part, part.device_id) for part in held.parts.values())
    contents: dict[str, str] = {}
    inside: set[str] = set()
    for part, device_id in (*shown, *answered, *recorded):
        if part is not None and device_id and device_id not in inside and part.name not in contents:
            contents[part.name] = device_id
            inside.add(device_id)
    return contents


def _awaits(part: Holding, contents: Mapping[str, str], memory: Memory) -> bool:
    """Return whether no device has come yet."""
    return part.name not in contents and not part.device_id and part.uid not in memory.named


def _find_held_parts(
    devices: Mapping[str, contract.Device],
    held: Holdings,
    contents: Mapping[str, str],
    orphans: Mapping[str, str],
    common: Mapping[str, contract.Device],
) -> dict[str, contract.Device]:
    """Return the held offers, without those whose device is not listed."""
    models = {part.name: part.model for part in held.parts.values()}
    models |= {name: devices[device_id].model for name, device_id in orphans.items()}
    of_model = {shared.model: shared for shared in common.values()}
    parts = {}
    for name, model in models.items():
        placed_device = devices.get(contents.get(name, ""))
        # The groups of a model's devices may have changed since the offer was given.
        shared = common.get(_stem_of(name)) or of_model.get(model)
        if placed_device is not None:
            shared = shared or common.get(_stem(placed_device), placed_device)
            parts[name] = dataclasses.replace(
                shared, id=name, health=placed_device.health, connection=placed_device.connection
            )
        elif name not in contents and shared is not None:
            parts[name] = dataclasses.replace(shared, id=name)
    return parts


def _count_free(
    devices: Iterable[contract.Device], inside: Collection[str], waiting: Iterable[Holding]
) -> dict[str, int]:
    """Return the number of free devices by the stem of their offers, less one for each offer that waits for its device.

    A device with critical health counts in no offer: a fabric does not hand it out.
    """
    free: dict[str, int] = {}
    for device in devices:
        is_well = device.health is not contract.Health.CRITICAL
        if device.connection is None and device.id not in inside and device.model and is_well:
            free[_stem(device)] = free.get(_stem(device), 0) + 1
    for part in waiting:
        free[_stem_of(part.name)] = free.get(_stem_of(part.name), 0) - 1
    return free


def _free_names(stem: str, count: int, used: Collection[str], claimed: Iterable[str]) -> list[str]:
    """Return the names of the free offers: first those given to claims, then the lowest numbers."""
    numbers = sorted(
        int(number)
        for name in claimed
        for front, _, number in (name.rpartition("-"),)
        if front == stem and number.isdecimal() and len(number) <= _NUMBER_CHARS and name not in used
    )
    chosen = [f"{stem}-{number}" for number in numbers][: max(0, count)]
    for name in _number_names(stem):
        if len(chosen) >= count:
            break
        if name not in used and name not in chosen:
            chosen.append(name)
    return chosen


def _number_names(stem: str) -> Iterator[str]:
    number = 0
    while True:
        number += 1
        yield f"{stem}-{number}"


def _stem(device: contract.Device) -> str:
    """Return the name of a device's offers without their numbers; equal only for equal models and groups."""
    key = names.reach_key(device.reach_groups)
    text = f"{device.model}\0{key}" if key else device.model
    return names.label(text, room=_NUMBER_CHARS + 1)


def _stem_of(name: str) -> str:
    """Return the name of an offer without its number."""
    return name.rpartition("-")[0]


def _common_device(alike: Sequence[contract.Device]) -> contract.Device:
    """Return the common properties of all devices of a model."""
    first = alike[0]
    different = {
        name: getattr(_EMPTY, name)
        for name in _FIELDS
        if name in _OWN_FIELDS or any(getattr(device, name) != getattr(first, name) for device in alike)
    }
    return dataclasses.replace(first, **different)
