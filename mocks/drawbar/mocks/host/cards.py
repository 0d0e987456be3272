"""Which cards are in the slots of a pretended host, and what changes them; nothing is done here.

A fabric that is simulated in another pod cannot plug anything in here. What it has connected is in the DeviceAttachments of the
node, which the controller writes: a device is in the slot of its port from the time its attachment is `Attached` until the
attachment is gone.

A card that was plugged in for an attachment and is not there any more was pulled out: it comes back with another attachment.

Invariant: a slot that has another card than it should have is emptied before a card comes into it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from drawbar.driver.api import attachments
from drawbar.fabric import witnesses
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks.fabric import pool
from drawbar.mocks.sysfs import ImpossibleWorld, MockDevice

REFUSED = frozenset({DeviceClass.NIC})
"""A container gets a network interface by its name, and of that name a real node has a real one."""

_KINDS = frozenset(witnesses.Kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unplug:
    """Take the card out of the slot."""

    slot: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plug:
    """Put the card into the slot."""

    slot: int
    card: MockDevice


Action = Unplug | Plug


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What should be in the slots.

    Attributes:
        cards: by slot.
        owners: by slot the uid of the attachment.
        problems: by name of the attachment, why its device cannot be in any; a clause.
    """

    cards: Mapping[int, MockDevice]
    owners: Mapping[int, str]
    problems: Mapping[str, str]


def wanted(connected: Iterable[attachments.DeviceAttachment], slots: int) -> Wanted:
    """Return the cards of the attachments that are attached.

    Args:
        connected: the attachments of the node.
        slots: how many the host has; their numbers are those of the fabric's ports, from 1.
    """
    cards: dict[int, MockDevice] = {}
    owners: dict[int, str] = {}
    problems: dict[str, str] = {}
    for attachment in sorted(connected, key=lambda each: each.metadata.name):
        connection = attachment.status.connection
        if connection is None or not attachment.holds(attachments.ATTACHED):
            continue
        name, port = attachment.metadata.name, connection.port
        if not (port.isascii() and port.isdecimal() and 1 <= int(port) <= slots):
            problems[name] = f"port {port!r} is none of this host's slots 1 to {slots}"
            continue
        if int(port) in cards:
            problems[name] = f"slot {port} has the device of another attachment"
            continue
        try:
            cards[int(port)] = card(attachment.identity)
            owners[int(port)] = attachment.metadata.uid
        except ImpossibleWorld as error:
            problems[name] = str(error)
    return Wanted(cards=cards, owners=owners, problems=problems)


def card(identity: attachments.Identity) -> MockDevice:
    """Return the card that a kernel shows of a device.

    Raises:
        ImpossibleWorld: there can be no such card here.
    """
    try:
        device_class = DeviceClass(identity.device_class)
    except ValueError:
        device_class = DeviceClass.OTHER
    if device_class in REFUSED:
        raise ImpossibleWorld(f"devices of the class {device_class} cannot be pretended in a cluster")
    vendor, _, device = identity.pci_id.partition(":")
    try:
        ids = int(vendor, 16), int(device, 16)
    except ValueError:
        raise ImpossibleWorld(f"{identity.pci_id!r} is no PCI id like 10de:2331") from None
    memory = next(
        (model.memory_bytes for model in pool.MODELS if (model.pci_vendor, model.pci_device) == ids), 0
    )
    made = MockDevice(
        device_class=device_class,
        vendor=ids[0],
        device=ids[1],
        serial=identity.serial or None,
        identifiers=_identifiers(identity) or None,
        memory_bytes=memory,
    )
    made.check()
    return made.with_usual_link()


def _identifiers(identity: attachments.Identity) -> tuple[witnesses.Identifier, ...]:
    """Return the device's identifiers of the kinds that exist."""
    made = (
        witnesses.identifier(witnesses.Kind(each.kind), each.value)
        for each in identity.identifiers
        if each.kind in _KINDS
    )
    return tuple(each for each in made if each is not None)


def changes(
    wanted: Wanted, present: Mapping[int, MockDevice], plugged: Mapping[int, str]
) -> tuple[Action, ...]:
    """Return what makes the cards that are present those that should be.

    Args:
        wanted: what should be.
        present: the cards by slot.
        plugged: by slot the uid of the attachment for which a card was plugged in; empty after a start.
    """
    kept = {
        slot
        for slot, card in present.items()
        if wanted.cards.get(slot) == card and plugged.get(slot, wanted.owners[slot]) == wanted.owners[slot]
    }
    pulled = {slot for slot, owner in wanted.owners.items() if plugged.get(slot) == owner}
    out = [Unplug(slot=slot) for slot in sorted(present.keys() - kept)]
    into = [Plug(slot=slot, card=wanted.cards[slot]) for slot in sorted(wanted.cards.keys() - kept - pulled)]
    return (*out, *into)
