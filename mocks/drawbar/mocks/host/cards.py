"""The cards that belong in the slots of a simulated host, and the changes towards them; nothing is changed here.

A fabric that is simulated in another pod cannot plug anything in here. Its connections are in the DeviceAttachments of
the node, which the controller writes: a device is in the slot of its port from the time its attachment is `Attached`
until the attachment is gone.

If a card that was plugged in for an attachment has disappeared, it was pulled out: it returns only with another
attachment.

Invariant: a slot with a wrong card is emptied before another card is plugged into it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from drawbar.fabric import witnesses
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks import attachments
from drawbar.mocks.fabric import pool
from drawbar.mocks.sysfs import ImpossibleWorld, MockDevice

REFUSED = frozenset({DeviceClass.NIC})
"""Device classes that are not simulated: a container gets a network interface by name, and that name is real here."""

_KINDS = frozenset(witnesses.Kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unplug:
    """Remove the card from the slot."""

    slot: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plug:
    """Plug the card into the slot."""

    slot: int
    card: MockDevice


Action = Unplug | Plug


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The intended contents of the slots.

    Attributes:
        cards: by slot.
        owners: the uids of the attachments, by slot.
        problems: by name of the attachment, the reason why its device is in no slot; a clause.
    """

    cards: Mapping[int, MockDevice]
    owners: Mapping[int, str]
    problems: Mapping[str, str]


def find_wanted_cards(connected: Iterable[attachments.DeviceAttachment], slots: int) -> Wanted:
    """Return the cards of the attachments that are attached.

    Args:
        connected: the attachments of the node.
        slots: the number of the host's slots; they are numbered like the fabric's ports, from 1.
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


_DRIVERS = {(DeviceClass.GPU, 0x10DE): "nouveau"}
"""NVIDIA's own driver has files in /dev alone. No container runtime finds these on a machine without that driver."""


def card(identity: attachments.Identity) -> MockDevice:
    """Return the card for a device, as a kernel shows it.

    Raises:
        ImpossibleWorld: the device cannot be simulated.
    """
    try:
        device_class = DeviceClass(identity.device_class)
    except ValueError:
        device_class = DeviceClass.OTHER
    if device_class in REFUSED:
        raise ImpossibleWorld(f"devices of the class {device_class} cannot be simulated in a cluster")
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
        driver=_DRIVERS.get((device_class, ids[0])),
    )
    made.check()
    return made.with_usual_link()


def _identifiers(identity: attachments.Identity) -> tuple[witnesses.Identifier, ...]:
    """Return the device's identifiers of known kinds."""
    made = (
        witnesses.identifier(witnesses.Kind(each.kind), each.value)
        for each in identity.identifiers
        if each.kind in _KINDS
    )
    return tuple(each for each in made if each is not None)


def changes(
    wanted: Wanted, present: Mapping[int, MockDevice], plugged: Mapping[int, str]
) -> tuple[Action, ...]:
    """Return the actions that change the present cards to the wanted ones.

    Args:
        wanted: the intended contents.
        present: the cards by slot.
        plugged: the uids of the attachments for which cards were plugged in, by slot; empty after a start.
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
