"""Identifies the device of an attachment among this node's cards; pure.

Invariant: a card that shows another serial number than the attachment's is never its device, wherever it sits, and no card
is identified by its address. Of two cards that could be the device neither is.

Order, with the reason: by serial number, which follows the device to whatever slot it went; only where the card shows
none (its driver is not bound yet, the process may not read it, it has none) or the fabric tells none, by the slot that
the fabric connected, and then the card must be what the fabric lists.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeGuard

from drawbar.driver.api import attachments
from drawbar.driver.node.inventory import index, model
from drawbar.fabric.classes import DeviceClass

# A board's designer, its vendor's driver and its fabric manager each choose which of these it is.
_VAGUE = frozenset(
    {DeviceClass.GPU.value, DeviceClass.ACCELERATOR.value, DeviceClass.FPGA.value, DeviceClass.OTHER.value}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """This is the device; `by` is what identified it."""

    card: model.Card
    by: Literal["serial", "slot"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """The slot that the fabric connected has another device; `why` is the contradiction, in a clause."""

    card: model.Card
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """The kernel shows no such device.

    Attributes:
        slot: the slot where it is expected, if that is known and there is one.
    """

    slot: model.Slot | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpowered:
    """A card is in the slot where the device is expected, and waits for power."""

    slot: model.Slot


@dataclass(frozen=True, slots=True, kw_only=True)
class Ambiguous:
    """Several cards have its serial number."""

    cards: tuple[model.Card, ...]


Match = Found | Wrong | Absent | Unpowered | Ambiguous


def match(inventory: index.Inventory, identity: attachments.Identity, *, slot: str = "") -> Match:
    """The device among the cards.

    Args:
        inventory: everything that the kernel shows.
        identity: what the fabric says of the device.
        slot: the hot-plug slot where it was seen last, or is expected; empty where that is not known.
    """
    cards = _with_serial(inventory, identity.serial)
    if len(cards) > 1:
        # Serial numbers are unique to a vendor at best.
        cards = tuple(card for card in cards if _is_model(card, identity.pci_id)) or cards
    if len(cards) > 1:
        return Ambiguous(cards=cards)
    if cards:
        return Found(card=cards[0], by="serial")
    return _in_slot(inventory, identity, slot)


def expected_slot(attachment: attachments.DeviceAttachment, boot_id: str) -> str:
    """The name of the slot to look in: where it was seen in this boot, else where the fabric puts it; else empty."""
    status = attachment.status
    if status.node is not None and status.node.boot_id == boot_id and status.node.slot:
        return status.node.slot
    connected = status.connection.slot if status.connection is not None else ""
    return attachment.identity.slot or connected


def _in_slot(inventory: index.Inventory, identity: attachments.Identity, name: str) -> Match:
    place = next((slot for slot in inventory.slots if slot.name == name), None) if name else None
    card = next((card for card in inventory.cards if name and card.first.slot == name), None)
    if card is None:
        if place is not None and place.present and place.powered is False:
            return Unpowered(slot=place)
        return Absent(slot=place)
    why = _contradiction(card, identity)
    return Found(card=card, by="slot") if why is None else Wrong(card=card, why=why)


def _contradiction(card: model.Card, identity: attachments.Identity) -> str | None:
    """Why the card in the right slot is not the device, in a clause."""
    shown = _shown(card, identity.device_class)
    if identity.serial and shown:
        return f"it has serial {', '.join(sorted(shown))}"
    if identity.pci_id:
        if not _is_model(card, identity.pci_id):
            return f"it is {_pci_id(card.first)}, not {identity.pci_id}"
        return None
    if identity.device_class == DeviceClass.OTHER:
        return "the fabric tells neither a serial number that it shows nor a PCI id to know it by"
    if not _is_class(card, identity.device_class):
        return f"it is of class {card.first.device_class}, not {identity.device_class}"
    return None


def is_expected(match: Match, attachment: attachments.DeviceAttachment) -> TypeGuard[Found]:
    """Whether the card can be the device already: in its slot, whatever was there before could still be."""
    return isinstance(match, Found) and (match.by == "serial" or attachment.holds(attachments.ATTACHED))


def _with_serial(inventory: index.Inventory, serial: str) -> tuple[model.Card, ...]:
    """The cards of which a function has the serial number, in any notation."""
    if not serial:
        return ()
    cards = (inventory.card_of(function.address) for function in inventory.all_by_serial(serial))
    return tuple({card.address: card for card in cards if card is not None}.values())


def _shown(card: model.Card, device_class: str) -> frozenset[str]:
    """The serial numbers that can be compared with the fabric's.

    A disk's own is shown by its driver alone; the Device Serial Number that it may have beside it is another one.
    """
    if device_class == DeviceClass.NVME:
        return frozenset(
            controller.serial for controller in _controllers(card.functions) if controller.serial
        )
    return frozenset(text for function in card.functions for text in (function.serial, function.dsn) if text)


def _controllers(functions: Iterable[model.PciFunction]) -> tuple[model.NvmeController, ...]:
    return tuple(controller for function in functions for controller in function.nvme)


def _is_model(card: model.Card, pci_id: str) -> bool:
    return any(_pci_id(function) == pci_id for function in card.functions)


def _is_class(card: model.Card, device_class: str) -> bool:
    shown = {function.device_class.value for function in card.functions}
    return device_class in shown or (device_class in _VAGUE and bool(shown & _VAGUE))


def _pci_id(function: model.PciFunction) -> str:
    return f"{function.vendor:04x}:{function.device:04x}"
