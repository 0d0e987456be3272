"""Which cards of a node are its own to give out, decided purely.

Invariants, whatever is configured:

- nothing that a fabric brought, or may have brought, is offered: what an attachment of this node means, and what sits in
  a hot-plug slot that the configuration does not claim for the node;
- nothing that the host lives on is offered: a disk that the host uses, a network interface with an address, a bridge,
  the screen of a management controller. A device that a claim holds here stays offered, for its claim is who uses it;
- a card is offered whole, or as its virtual functions, never both.

What is refused comes with the reason, since "why is my device not there" is what operators ask.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from drawbar.driver.api import attachments
from drawbar.driver.node.inventory import model
from drawbar.driver.node.local import naming, selection
from drawbar.fabric.contract import DeviceClass

# Displays of management controllers and hypervisors: of class "display", and no GPU. By vendor and device; None is all.
SCREENS = frozenset(
    {
        (0x1A03, None),  # ASPEED
        (0x102B, None),  # Matrox G200, in servers
        (0x19A2, None),  # ServerEngines Pilot
        (0x19E5, 0x1711),  # HiSilicon Hi1710
        (0x1013, 0x00B8),  # Cirrus, emulated
        (0x1234, 0x1111),  # QEMU's standard VGA
        (0x1AF4, 0x1050),  # virtio
        (0x1B36, 0x0100),  # QXL
        (0x15AD, 0x0405),  # VMware
        (0x1414, 0x5353),  # Hyper-V
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What is known of the node besides its cards.

    Attributes:
        attached: the DeviceAttachments of this node, those that are being deleted among them.
        boot_id: of this kernel; a PCI address in an attachment counts for the boot that saw it.
        held: names of devices that a claim holds on this node.
        busy: by the address of a card, what the host itself uses it for; cards that were not looked at are absent.
    """

    attached: tuple[attachments.DeviceAttachment, ...] = ()
    boot_id: str = ""
    held: frozenset[str] = frozenset()
    busy: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What is offered, and why the other devices of the chosen classes are not.

    Attributes:
        refused: by name.
    """

    offered: tuple[naming.Resident, ...]
    refused: Mapping[str, str]


def choose(
    found: Iterable[naming.Resident],
    wanted: selection.Selection,
    situation: Situation,
    mismatch: Callable[[naming.Resident], str | None],
) -> Choice:
    """Judges every candidate.

    Args:
        found: the candidates.
        wanted: the configuration.
        situation: the rest of the node.
        mismatch: why the selector does not want a device; None where it does, or where there is none.
    """
    offered, refused = [], {}
    for one in found:
        reason = _reason(one, wanted, situation) or mismatch(one)
        if reason is None:
            offered.append(one)
        else:
            refused[one.name] = reason
    return Choice(offered=tuple(offered), refused=refused)


def _reason(one: naming.Resident, wanted: selection.Selection, situation: Situation) -> str | None:
    first = one.card.first
    if first.device_class is DeviceClass.BRIDGE:
        return "it is a bridge"
    if (first.vendor, None) in SCREENS or (first.vendor, first.device) in SCREENS:
        return "it is the screen of a management controller or hypervisor"
    if first.device_class is DeviceClass.NVME and not first.nvme:
        return "its serial number is not known, since the nvme driver is not bound to it"
    return (
        _partition(one, wanted)
        or of_fabric(one.whole, situation.attached, situation.boot_id)
        or _perhaps_of_fabric(one, situation)
        or _foreign_slot(one.whole, wanted)
        or (None if one.name in situation.held else situation.busy.get(one.card.address))
    )


def _partition(one: naming.Resident, wanted: selection.Selection) -> str | None:
    parts = any(function.physical_function is not None for function in one.whole.functions)
    if one.is_virtual and not wanted.virtual_functions:
        return "it is a virtual function, and these are not offered"
    if not one.is_virtual and parts and wanted.virtual_functions:
        return "its virtual functions are offered in its place"
    return None


def of_fabric(card: model.Card, known: Iterable[attachments.DeviceAttachment], boot_id: str) -> str | None:
    """Why the card is what a fabric attached; None for any other."""
    for attachment in known:
        if _means(attachment, card, boot_id):
            return f"attachment {attachment.metadata.name} says that it belongs to fabric {attachment.spec.fabric}"
    return None


def _means(attachment: attachments.DeviceAttachment, card: model.Card, boot_id: str) -> bool:
    serial, node = attachment.spec.identity.serial, attachment.status.node
    if serial and _has_serial(card, serial):
        return True
    seen_at = node.pci_address if node is not None and node.boot_id == boot_id else ""
    if seen_at and any(function.address == seen_at for function in card.functions):
        return True
    return card.first.slot in _slots(attachment)


def _perhaps_of_fabric(one: naming.Resident, situation: Situation) -> str | None:
    """Of an attached device that nothing tells apart, any of its kind may be the one that is on its way."""
    kind = f"{one.whole.first.vendor:04x}:{one.whole.first.device:04x}"
    for attachment in situation.attached if one.name not in situation.held else ():
        identity, node = attachment.spec.identity, attachment.status.node
        told = identity.serial or _slots(attachment) or (node is not None and node.pci_address)
        if not told and identity.pci_id == kind:
            return f"it may be the device of attachment {attachment.metadata.name}, of which no more is known"
    return None


def _slots(attachment: attachments.DeviceAttachment) -> frozenset[str]:
    node, connection = attachment.status.node, attachment.status.connection
    said = {attachment.spec.identity.slot, connection.slot if connection else "", node.slot if node else ""}
    return frozenset(said - {""})


def _has_serial(card: model.Card, text: str) -> bool:
    wanted, numbers = model.canonical_serial(text), model.serial_numbers(text)
    for function in card.functions:
        held = {model.canonical_serial(one) for one in (function.serial, function.dsn) if one}
        if wanted in held:
            return True
        if function.dsn and numbers & model.serial_numbers(function.dsn):
            return True
    return any(memdev.serial in numbers for memdev in card.memdevs if memdev.serial is not None)


def _foreign_slot(card: model.Card, wanted: selection.Selection) -> str | None:
    name = card.first.slot
    if name is None or wanted.has_slot(name):
        return None
    # Without power and presence a slot is no more than a name on the board.
    if card.slot is not None and card.slot.powered is None and card.slot.present is None:
        return None
    return f"it sits in hot-plug slot {name}, which the configuration does not give to this node"
