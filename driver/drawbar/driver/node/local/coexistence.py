"""The devices of a node that another driver, a device plugin or a process of the host has. Pure.

A device of the node is offered only if no other component offers it. Two signs count at once: the device in a
ResourceSlice of another driver, and a registered resource of a device plugin for its kind of card. A process with an open
file of the device counts at once if the device is not offered yet. If it is offered, the process counts after a while:
monitors open devices for a moment.

Invariants, over any sequence of observations:

- While another driver or a plugin has a device, it is left out.
- A left-out device is offered again only after its last sign has been gone for a quiet time. A driver in an update, and a
  starting kubelet, remove their slices for a while.
- A process with an offered device open for less than `OPEN_SECONDS` does not withdraw the device.

Devices in use by a claim are not judged here: they stay offered.
"""

from collections.abc import Collection, Iterable, Mapping

import msgspec

from drawbar.driver.api import deviceplugins, leftout, otherslices
from drawbar.driver.node.inventory import model
from drawbar.driver.node.local import residents

OPEN_SECONDS = 30.0
"""The time a process must have an offered device open to count, and the time from its last sight to the next offer."""
DEVICES_MAX = 1024
"""The maximum number of remembered devices without a current sign; a node has fewer slots."""


class Sign(msgspec.Struct, frozen=True, kw_only=True):
    """A sign that another component has a device.

    Attributes:
        why: the kind of component.
        reason: the sign, in one sentence.
    """

    why: leftout.Why
    reason: str


class Components(msgspec.Struct, frozen=True, kw_only=True):
    """The other components of this node, as the API server shows them.

    Attributes:
        offered: the devices of other drivers.
        resources: extended resources registered by device plugins.
        incomplete: why some slices are missing; empty if none are.
    """

    offered: tuple[otherslices.OtherDevice, ...] = ()
    resources: frozenset[str] = frozenset()
    incomplete: str = ""


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """The last sign of a device.

    Attributes:
        since: the start of the unbroken run of this sign; times are seconds of one clock.
        until: the end of the quiet time after all signs so far.
        left_out: the device was left out at that time.
    """

    sign: Sign
    since: float
    until: float
    left_out: bool


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The left-out devices.

    Attributes:
        left_out: the signs, by the device's name.
        memories: the input of the next decision.
        again_seconds: the seconds until time alone may change the decision; None: never.
    """

    left_out: Mapping[str, Sign] = msgspec.field(default_factory=dict)
    memories: Mapping[str, Memory] = msgspec.field(default_factory=dict)
    again_seconds: float | None = None


def find_offers(
    card: model.Card, offered: Iterable[otherslices.OtherDevice], *, whole: bool
) -> tuple[otherslices.OtherDevice, ...]:
    """Return the devices of other drivers that are this card, or with `whole` a part of it."""
    addresses = {function.address for function in card.functions}
    # An offer of the physical function includes its virtual functions.
    addresses |= {function.physical_function for function in card.functions if function.physical_function}
    identifiers = [each for function in card.functions for each in function.identifiers]
    return tuple(
        device for device in offered if device.is_at(addresses, whole=whole) or device.has_number(identifiers)
    )


def find_sign(
    resident: residents.Resident,
    seen: Components,
    configured: Iterable[deviceplugins.Row] = (),
    openers: Mapping[str, str] | None = None,
) -> Sign | None:
    """Return the sign that another component has the device, or None.

    Args:
        resident: the device.
        seen: see `Components`.
        configured: the administrator's rows for extended resources.
        openers: the process that has a card open, by the card's address.
    """
    for device in find_offers(resident.card, seen.offered, whole=not resident.is_virtual):
        reason = f"driver {device.driver} offers it as device {device.name} of pool {device.pool}"
        return Sign(why=leftout.Why.DRIVER, reason=reason)
    rows = tuple(configured)
    for driver in sorted({device.driver for device in seen.offered if not device.is_located}):
        if _is_among(resident.card, deviceplugins.find_cards(f"{driver}/", rows)):
            reason = f"driver {driver} offers devices of this node without their PCI addresses: it may be one of them"
            return Sign(why=leftout.Why.DRIVER, reason=reason)
    for resource in sorted(seen.resources):
        if _is_among(resident.card, deviceplugins.find_cards(resource, rows)):
            reason = f"a device plugin has registered {resource}, which stands for cards of this kind"
            return Sign(why=leftout.Why.PLUGIN, reason=reason)
    if seen.incomplete:
        return Sign(why=leftout.Why.DRIVER, reason=seen.incomplete)
    opener = (openers or {}).get(resident.card.address)
    return Sign(why=leftout.Why.PROCESS, reason=opener) if opener is not None else None


def unknown_resources(seen: Components, configured: Iterable[deviceplugins.Row]) -> tuple[str, ...]:
    """Return the extended resources without a row for their cards."""
    rows = tuple(configured)
    return tuple(sorted(name for name in seen.resources if deviceplugins.find_cards(name, rows) is None))


def decide(
    signs: Mapping[str, Sign],
    memories: Mapping[str, Memory],
    offered: Collection[str],
    now: float,
    *,
    quiet_seconds: float,
) -> Decision:
    """Return the devices to leave out now.

    Args:
        signs: the current signs, by the device's name.
        memories: the last decision's memories.
        offered: names of devices that are offered now.
        now: seconds of a monotonic clock.
        quiet_seconds: the time to leave a device out after the last sign of a driver or plugin.
    """
    fresh = {
        name: _renew(sign, memories.get(name), name in offered, now, quiet_seconds)
        for name, sign in signs.items()
    }
    old = {
        name: memory
        for name, memory in memories.items()
        if name not in fresh and memory.left_out and now < memory.until
    }
    latest = sorted(old.items(), key=lambda entry: -entry[1].until)[:DEVICES_MAX]
    kept = {**dict(latest), **fresh}
    ends = [memory.until for _, memory in latest]
    ends += [memory.since + OPEN_SECONDS for memory in kept.values() if not memory.left_out]
    return Decision(
        left_out={
            name: memory.sign if name in fresh else _past_sign(memory)
            for name, memory in kept.items()
            if memory.left_out
        },
        memories=kept,
        again_seconds=max(0.0, min(ends) - now) if ends else None,
    )


def _is_among(card: model.Card, cards: tuple[deviceplugins.Cards, ...] | None) -> bool:
    return any(
        each.has(function.vendor, function.device_class)
        for each in cards or ()
        for function in card.functions
    )


def _renew(sign: Sign, before: Memory | None, is_offered: bool, now: float, quiet_seconds: float) -> Memory:
    # Two short accesses by different processes are different signs, so their times do not add up.
    since = before.since if before is not None and before.sign == sign else now
    is_process = sign.why is leftout.Why.PROCESS
    until = now + (min(OPEN_SECONDS, quiet_seconds) if is_process else quiet_seconds)
    if before is not None and before.left_out:
        return Memory(sign=sign, since=since, until=max(until, before.until), left_out=True)
    # A process that opens an offered device only briefly is gone at the next check.
    left_out = not (is_process and is_offered) or now - since >= OPEN_SECONDS
    return Memory(sign=sign, since=since, until=until, left_out=left_out)


def _past_sign(memory: Memory) -> Sign:
    reason = (
        f"until a moment ago, {memory.sign.reason}; it is offered once that has not been seen for a while"
    )
    return Sign(why=memory.sign.why, reason=reason)
