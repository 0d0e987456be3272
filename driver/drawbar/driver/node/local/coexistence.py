"""Which devices of a node another driver, a device plugin or a process of the host has; pure.

A device of the node is offered only if no other component offers it. Two signs are taken at their first sight: a ResourceSlice of
another driver with the device, and a registered resource of a device plugin for cards of its kind. A process that has a file
of it open is taken at once for a device that is not offered yet, and after a while for one that is: monitors open devices
for a moment.

Invariants, over any sequence of observations:

- while another driver or a plugin has a device, it is left out;
- a device that was left out is offered again only after its last sign has been gone for a quiet time: a driver that is
  updated, and a kubelet that starts, take their slices away for a while;
- a device that is offered is not withdrawn for a process that had it open for less than `OPEN_SECONDS`.

What a claim holds is not judged here: it stays offered.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from drawbar.driver.api import deviceplugins, leftout, otherslices
from drawbar.driver.node.inventory import model
from drawbar.driver.node.local import residents

OPEN_SECONDS = 30.0
"""For so long a process must have an offered device open, and for so long none may have one that is offered anew."""
DEVICES_MAX = 1024
"""Devices without a sign now that are remembered; a node has fewer slots."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """What shows that another component has a device.

    Attributes:
        reason: in one sentence.
    """

    why: leftout.Why
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the API server shows of the other components of this node.

    Attributes:
        offered: the devices of other drivers.
        resources: extended resources that device plugins have registered.
        incomplete: why not all slices are here; empty where they are.
    """

    offered: tuple[otherslices.Offered, ...] = ()
    resources: frozenset[str] = frozenset()
    incomplete: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The last sign of a device.

    Attributes:
        since: when the unbroken run of this sign began; times are seconds of one clock.
        until: the end of the quiet time after all signs up to now.
        left_out: the device was left out then.
    """

    sign: Sign
    since: float
    until: float
    left_out: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What is left out.

    Attributes:
        left_out: by the device's name.
        memories: for the next decision.
        again_seconds: when time alone may change it; None: never.
    """

    left_out: Mapping[str, Sign] = field(default_factory=dict)
    memories: Mapping[str, Memory] = field(default_factory=dict)
    again_seconds: float | None = None


def find_offers(
    card: model.Card, offered: Iterable[otherslices.Offered], *, whole: bool
) -> tuple[otherslices.Offered, ...]:
    """Return the devices of other drivers that are this card, or with `whole` a part of it."""
    addresses = {function.address for function in card.functions}
    # A virtual function goes with its physical one.
    addresses |= {function.physical_function for function in card.functions if function.physical_function}
    identifiers = [each for function in card.functions for each in function.identifiers]
    return tuple(
        device for device in offered if device.is_at(addresses, whole=whole) or device.has_number(identifiers)
    )


def find_sign(
    resident: residents.Resident,
    seen: Seen,
    configured: Iterable[deviceplugins.Row] = (),
    openers: Mapping[str, str] | None = None,
) -> Sign | None:
    """Return what shows that another component has the device; None where nothing does.

    Args:
        resident: the device.
        seen: see `Seen`.
        configured: the administrator's rows for extended resources.
        openers: by the address of a card the process that has it open.
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


def unknown_resources(seen: Seen, configured: Iterable[deviceplugins.Row]) -> tuple[str, ...]:
    """Return the extended resources of which no row has the cards."""
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
    """Return the devices that are left out now.

    Args:
        signs: the devices that another component has, as it is seen now.
        memories: of the decision before.
        offered: names of devices that are offered now.
        now: seconds of a clock that only goes forward.
        quiet_seconds: how long after the last sign of a driver or plugin a device stays left out.
    """
    fresh = {
        name: _renewed(sign, memories.get(name), name in offered, now, quiet_seconds)
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
            name: memory.sign if name in fresh else _past(memory)
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


def _renewed(sign: Sign, before: Memory | None, is_offered: bool, now: float, quiet_seconds: float) -> Memory:
    # Two short looks at a device are by different processes.
    since = before.since if before is not None and before.sign == sign else now
    is_process = sign.why is leftout.Why.PROCESS
    until = now + (min(OPEN_SECONDS, quiet_seconds) if is_process else quiet_seconds)
    if before is not None and before.left_out:
        return Memory(sign=sign, since=since, until=max(until, before.until), left_out=True)
    # Of an offered device, a process that only looks at it is gone the next time.
    left_out = not (is_process and is_offered) or now - since >= OPEN_SECONDS
    return Memory(sign=sign, since=since, until=until, left_out=left_out)


def _past(memory: Memory) -> Sign:
    reason = (
        f"until a moment ago, {memory.sign.reason}; it is offered once that has not been seen for a while"
    )
    return Sign(why=memory.sign.why, reason=reason)
