"""Composites: devices of a fabric that are allocated together as one DRA device; pure.

The slice has one device for all members. Their DeviceAttachments stay one for each, so each member keeps its lock.

Invariants:

- a device is a member of one composite at most, and all members of a composite are in one enclosure;
- a composite whose members cannot be attached together is not offered, and there is a sentence about why; none of its
  members is offered alone either, as an administrator has reserved them for it;
- a composite that has a DeviceAttachment keeps its members, whatever the Fabric names meanwhile.
"""

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields

from drawbar.driver.api import attachments, fabrics
from drawbar.driver.controller import names
from drawbar.fabric import contract

LEAST_MEMBERS = 2
WAYS = (2, 3, 4, 6, 8, 12, 16)
"""Over how many devices memory can be interleaved (CXL 3.1, 8.2.4.20.7)."""
_OWN_FIELDS = frozenset({"id", "memory_bytes", "health", "serial", "identifiers", "connection", "etag"})
_SHARED_FIELDS = tuple(item.name for item in fields(contract.Device) if item.name not in _OWN_FIELDS)
_EMPTY = contract.Device(id="none", device_class=contract.DeviceClass.OTHER)
_WORST_FIRST = (
    contract.Health.CRITICAL,
    contract.Health.WARNING,
    contract.Health.UNKNOWN,
    contract.Health.OK,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """The composites of a fabric, with the DRA names of devices.

    Attributes:
        members: by the name of each composite that is offered or held, its devices in order.
        withheld: devices that are not offered alone.
        problems: why composites are not offered, one sentence each.
    """

    members: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    withheld: frozenset[str] = frozenset()
    problems: tuple[str, ...] = ()

    def composite_of(self, device: str) -> attachments.Composite | None:
        """Return what a device is a member of; None for one that is offered alone."""
        return next(
            (
                attachments.Composite(name=name, devices=members)
                for name, members in self.members.items()
                if device in members
            ),
            None,
        )


def held(attached: Iterable[attachments.DeviceAttachment]) -> dict[str, tuple[str, ...]]:
    """Return by name the members of the composites that have DeviceAttachments."""
    return {
        attachment.spec.composite.name: attachment.spec.composite.devices
        for attachment in attached
        if attachment.spec.composite is not None
    }


def arrange(
    wanted: Sequence[fabrics.Composite],
    devices: Iterable[contract.Device],
    held: Mapping[str, tuple[str, ...]] | None = None,
    given: Collection[str] = (),
) -> Arrangement:
    """Return the composites of a fabric with these devices.

    Args:
        wanted: as the Fabric has them; the first one that names a device has it.
        devices: as the fabric lists them.
        held: as `held` returns it.
        given: names of devices that claims were given, or that are attached for one.
    """
    members = dict(held or {})
    if not wanted and not members:
        return Arrangement()
    listed = {names.label(device.id): device for device in devices}
    owners = {device: name for name, devices_ in members.items() for device in devices_}
    carved = {names.label(device_id) for device_id in contract.carved(listed.values())}
    alone = set(given) - owners.keys()
    withheld, problems = set(owners), []
    for composite in wanted:
        own = tuple(names.label(device_id) for device_id in composite.devices)
        if composite.name not in members:
            problem = _problem(composite, listed, carved=carved, alone=alone, owners=owners)
            if problem is None:
                members[composite.name] = own
            else:
                problems.append(f"composite {composite.name} is not offered: {problem}")
        withheld.update(own)
        owners = dict.fromkeys(own, composite.name) | owners
    return Arrangement(members=members, withheld=frozenset(withheld - alone), problems=tuple(problems))


def composed(name: str, members: Sequence[contract.Device]) -> contract.Device:
    """Return a composite as one device: what its members agree in, the sum of their memory, and their worst health.

    Args:
        name: of the composite.
        members: at least one, in order.
    """
    agreed = {
        item: getattr(members[0], item)
        if all(getattr(member, item) == getattr(members[0], item) for member in members)
        else getattr(_EMPTY, item)
        for item in _SHARED_FIELDS
    }
    return contract.Device(
        id=name,
        memory_bytes=sum(member.memory_bytes for member in members),
        health=next(health for health in _WORST_FIRST if any(member.health is health for member in members)),
        **agreed,
    )


def interleaving_problem(given: str, members: Mapping[str, contract.Device | None]) -> str | None:
    """Return why the memory of what a claim was given cannot be interleaved, in a sentence; None where it may be.

    Other devices than memory pass the wish over, as any that they have nothing for.

    Args:
        given: the DRA name of the composite, or of the device.
        members: by name, its devices, of which one that is not listed is judged once it is; one for a device by itself.
    """
    listed = {name: device for name, device in members.items() if device is not None}
    strangers = [
        name for name, device in listed.items() if device.device_class is not contract.DeviceClass.CXL_MEMORY
    ]
    if listed and len(strangers) == len(listed):
        return None
    if len(members) < LEAST_MEMBERS:
        return (
            f"memory.interleave is for a composite of CXL memory devices, and {given} is a device by itself: leave it out, or "
            f"claim a composite (spec.composites of its Fabric)"
        )
    if strangers:
        return f"memory.interleave is for CXL memory, and {strangers[0]}, a member of composite {given}, is none: leave it out"
    if len(members) not in WAYS:
        *fewer, most = WAYS
        return (
            f"memory.interleave takes {', '.join(map(str, fewer))} or {most} devices, and composite {given} has {len(members)}: "
            f"leave it out, or change spec.composites of its Fabric"
        )
    sizes = {name: device.memory_bytes for name, device in listed.items() if device.memory_bytes}
    if len(set(sizes.values())) > 1:
        (first, its), (other, differs) = next(
            pair for pair in itertools.pairwise(sizes.items()) if pair[0][1] != pair[1][1]
        )
        return (
            f"memory.interleave wants members of one size, and of composite {given} {first} has {its} bytes and {other} "
            f"{differs}: leave it out, or change spec.composites of its Fabric"
        )
    return None


def _problem(
    composite: fabrics.Composite,
    listed: Mapping[str, contract.Device],
    *,
    carved: Collection[str],
    alone: Collection[str],
    owners: Mapping[str, str],
) -> str | None:
    """Return why the devices are no composite; None if they are."""
    if len(set(composite.devices)) < max(LEAST_MEMBERS, len(composite.devices)):
        return f"name at least {LEAST_MEMBERS} devices, each once"
    if composite.name in listed:
        return "a device of the fabric has this name; choose another"
    for device_id in composite.devices:
        device = names.label(device_id)
        if device in owners:
            return f"device {device_id} is a member of {owners[device]}"
        if device not in listed:
            return f"the fabric has no device {device_id}"
        if device in carved:
            return f"device {device_id} is not attached as a whole, since it has slices"
        if device in alone:
            return f"device {device_id} was given to a claim by itself, which has to end first"
    enclosures = {device_id: listed[names.label(device_id)].enclosure for device_id in composite.devices}
    first = composite.devices[0]
    for device_id, enclosure in enclosures.items():
        if enclosure != enclosures[first]:
            return f"device {device_id} is in enclosure {enclosure or '(none)'}, and {first} in {enclosures[first] or '(none)'}"
    return None
