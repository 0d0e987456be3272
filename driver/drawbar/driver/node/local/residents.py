"""The devices built into a node: their names, and the choice of those to offer. Pure.

A device is named after its serial number if no other card of the node has the same, otherwise after its PCI address:
`gpu-48-b0-2d-00-00-00-00-01`, `fpga-0000-65-00-0`. A claim may outlive a reboot. Addresses change when a card is added;
serial numbers do not. The name of a virtual function is that of its card with its number.

Invariants, for any configuration:

- No fabric device is offered, not even a possible one. These are the devices of this node's attachments, and devices in a
  hot-plug slot that the configuration does not assign to the node. The exception is a lent card (`lender`): attached by
  hand, or for a claim whose class offers its virtual functions. These virtual functions are offered.
- No device that the host needs is offered: a disk in use, a network interface with an address, a bridge, the screen of a
  management controller. A device in use by a claim here stays offered, because the claim is its user.
- A card is offered as a whole or as its virtual functions, never both.
- A device file is offered once, and so is a disk with two controllers. Under vfio, all functions of an IOMMU group have one file.

Each refused device has a reason, because operators ask for it.

Source: `resource.k8s.io/v1` Device.name (a DNS label), ResourcePool.name (DNS subdomains joined by `/`).
"""

import collections
import hashlib
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping

import msgspec

from drawbar.driver.api import attachments, dnsnames
from drawbar.driver.node.inventory import evidence, model
from drawbar.driver.node.local import selections
from drawbar.fabric import recognition, witnesses
from drawbar.fabric.classes import DeviceClass
from drawbar.fabric.witnesses import Kind

HASH_CHARS = 8


class Resident(msgspec.Struct, frozen=True, kw_only=True):
    """A device of this node, for one claim at a time.

    Attributes:
        name: its DRA name.
        card: its functions; only the one function for a virtual function.
        whole: its whole card.
    """

    name: str
    card: model.Card
    whole: model.Card

    @property
    def is_virtual(self) -> bool:
        """Return whether it is a virtual function."""
        return self.card.first.physical_function is not None


def residents(cards: Iterable[model.Card]) -> tuple[Resident, ...]:
    """Return every card and each of its virtual functions, under unique names.

    A name begins with the class and depends only on the cards of that class, so cards of other classes may be omitted.
    """
    named = [
        (card, f"{card.first.device_class}-{model.canonical_serial(serial(card) or '')}") for card in cards
    ]
    claimed = collections.Counter(name for _, name in named)
    listed: list[Resident] = []
    for card, by_serial in named:
        by_address = f"{card.first.device_class}-{card.address}"
        name = label(by_address if by_serial.endswith("-") or claimed[by_serial] > 1 else by_serial)
        listed.append(Resident(name=name, card=card, whole=card))
        listed += _virtual_residents(card, name)
    return _make_distinct(listed)


def serial(card: model.Card) -> str | None:
    """Return the card's serial number, or None if it has none or a placeholder: its neighbour may have the same."""
    return next(filter(_is_own, _list_serials(card)), None)


def _list_serials(card: model.Card) -> Iterator[str]:
    for function in card.functions:
        text = function.serial or function.dsn
        if text and function.physical_function is None:
            # A CXL device has the same number with and without its driver, in the notation of the Device Serial Number.
            is_memory = function.device_class is DeviceClass.CXL_MEMORY
            numbers = model.serial_numbers(text) if is_memory else ()
            yield model.format_serial(min(numbers)) if len(numbers) == 1 else text
    yield from (model.format_serial(each.serial) for each in card.memdevs if each.serial is not None)


def _is_own(text: str) -> bool:
    """Return whether a serial number is no placeholder, and no number of a whole model."""
    kind = Kind.PCIE_DSN if witnesses.PAIRS.fullmatch(text) else Kind.SERIAL
    return bool(witnesses.normal(kind, text))


def label(text: str) -> str:
    """Return a DNS label for any text; two texts share a label only if they differ in case and separators alone."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    # If more than separators and case changed, or the text is cut, a hash of the whole text keeps labels distinct.
    if dnsnames.is_label(plain) and re.fullmatch(r"[a-z0-9.:_ -]+", text.lower()):
        return plain
    short = plain[: dnsnames.LABEL_CHARS - HASH_CHARS - 1].rstrip("-")
    return f"{short or 'x'}-{_hash(text)}"


def class_of(name: str) -> DeviceClass | None:
    """Return the class of devices with such a name, or None if the name has another form."""
    matching = [listed for listed in DeviceClass if name.startswith(f"{listed}-")]
    return matching[0] if matching else None


def resource_slice(driver: str, pool_name: str) -> str:
    """Return the only possible name of a pool's slice, so that no second slice makes the pool invalid."""
    return f"{label(pool_name.partition('/')[0])}-{_hash(f'{driver}/{pool_name}')}"


def _virtual_residents(card: model.Card, name: str) -> Iterable[Resident]:
    numbers: Mapping[str, int] = {
        address: number
        for function in card.functions
        if function.sriov is not None
        for number, address in enumerate(function.sriov.virtual_functions)
    }
    owners = sorted({function.physical_function for function in card.functions if function.physical_function})
    for function in card.functions:
        if function.physical_function is None or function.address not in numbers:
            continue
        part = f"-f{owners.index(function.physical_function)}" if len(owners) > 1 else ""
        yield Resident(
            name=label(f"{name}{part}-vf{numbers[function.address]}"),
            card=model.Card(functions=(function,), slot=card.slot),
            whole=card,
        )


def _make_distinct(listed: list[Resident]) -> tuple[Resident, ...]:
    """Return the devices with unique names; those that share a name are named after their addresses.

    Serials that differ only in separators give the same name.
    """
    counted = collections.Counter(resident.name for resident in listed)
    return tuple(
        resident
        if counted[resident.name] == 1
        else Resident(
            name=label(f"{resident.card.first.device_class}-{resident.card.address}"),
            card=resident.card,
            whole=resident.whole,
        )
        for resident in listed
    )


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_CHARS]


# Displays of management controllers and hypervisors, of class "display" but no GPUs. By vendor and device; None means all.
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


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the node apart from its cards.

    Attributes:
        attached: the DeviceAttachments of this node, including those in deletion.
        driver: the driver whose attachments lend virtual functions.
        boot_id: the running kernel's boot id; a PCI address in an attachment is valid only for its boot.
        held: names of devices in use by a claim on this node.
        busy: the host's use of a card, by the card's address; unchecked cards are absent.
    """

    attached: tuple[attachments.DeviceAttachment, ...] = ()
    driver: str = ""
    boot_id: str = ""
    held: frozenset[str] = frozenset()
    busy: Mapping[str, str] = msgspec.field(default_factory=dict)


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The offered devices, and the refused devices of the chosen classes.

    Attributes:
        refused: the reasons, by name.
    """

    offered: tuple[Resident, ...]
    refused: Mapping[str, str]


def choose(
    listed: Iterable[Resident],
    selection: selections.Selection,
    situation: Situation,
    mismatch: Callable[[Resident], str | None],
) -> Choice:
    """Return the offered and the refused candidates.

    Args:
        listed: the candidates.
        selection: the configuration.
        situation: the state of the node.
        mismatch: returns why the selector rejects a device, or None if it does not or there is none.
    """
    offered, refused = [], {}
    for resident in listed:
        reason = _reason(resident, selection, situation) or mismatch(resident)
        if reason is None:
            offered.append(resident)
        else:
            refused[resident.name] = reason
    sharing = _find_sharing(offered, situation.held)
    return Choice(
        offered=tuple(resident for resident in offered if resident.name not in sharing),
        refused=refused | sharing,
    )


def _find_sharing(offered: Iterable[Resident], held: Container[str]) -> dict[str, str]:
    """Return why devices with a file or an NVMe subsystem of another one are not offered, by name.

    A device in use by a claim comes first.
    """
    sharing: dict[str, str] = {}
    owners: dict[str, str] = {}
    for resident in sorted(offered, key=lambda each: each.name not in held):
        names = {node.path for node in resident.card.device_nodes}
        if not resident.is_virtual:
            # The virtual functions of a disk are of one subsystem, each with namespaces of its own.
            names |= {each.value for each in resident.card.identifiers if each.kind is Kind.NVME_NQN}
        shared = min(names & owners.keys(), default=None)
        if shared is None or resident.name in held:
            owners |= dict.fromkeys(names, resident.name)
        else:
            sharing[resident.name] = f"it has {shared} in common with {owners[shared]}, which is offered"
    return sharing


def _reason(resident: Resident, selection: selections.Selection, situation: Situation) -> str | None:
    first = resident.card.first
    if first.device_class is DeviceClass.BRIDGE:
        return "it is a bridge"
    if (first.vendor, None) in SCREENS or (first.vendor, first.device) in SCREENS:
        return "it is the screen of a management controller or hypervisor"
    if resident.card.unassigned_bars and resident.name not in situation.held:
        return model.describe_unassigned(resident.card)
    if first.device_class is DeviceClass.NVME and not first.nvme:
        return "its serial number is not known, since the nvme driver is not bound to it"
    return (
        _partition_problem(resident, selection)
        or _ownership_problem(resident, selection, situation)
        or (None if resident.name in situation.held else situation.busy.get(resident.card.address))
    )


def _ownership_problem(
    resident: Resident, selection: selections.Selection, situation: Situation
) -> str | None:
    """Return why the device is not this node's to offer, or None."""
    attachment = lender(resident, situation.attached, situation.driver, situation.boot_id)
    if attachment is None:
        return (
            find_fabric_reason(resident.whole, situation.attached, situation.boot_id)
            or _possible_attachment(resident, situation)
            or _foreign_slot(resident.whole, selection)
        )
    if attachment.deleting and resident.name not in situation.held:
        return f"its card is being detached: attachment {attachment.metadata.name}"
    if not attachment.is_made_ready and resident.name not in situation.held:
        return f"its card is not ready for its claim yet: attachment {attachment.metadata.name}"
    return None


def _partition_problem(resident: Resident, selection: selections.Selection) -> str | None:
    parts = any(function.physical_function is not None for function in resident.whole.functions)
    if resident.is_virtual and not selection.virtual_functions:
        return "it is a virtual function, and these are not offered"
    if not resident.is_virtual and parts and selection.virtual_functions:
        return "its virtual functions are offered in its place"
    return None


def marks(attachment: attachments.DeviceAttachment | None) -> tuple[object, ...] | None:
    """Return everything in an attachment that affects which card it means and lends; None without an attachment."""
    if attachment is None:
        return None
    node = attachment.status.node
    location = (node.pci_address, node.boot_id) if node is not None else None
    is_ready = attachment.holds(attachments.VISIBLE), attachment.lends and attachment.is_made_ready
    lends = attachment.lends, is_ready, attachment.deleting
    return attachment.identity, _slots(attachment), location, lends


def find_fabric_reason(
    card: model.Card, attached: Iterable[attachments.DeviceAttachment], boot_id: str
) -> str | None:
    """Return why the card belongs to a fabric, or None."""
    for attachment in attached:
        if _means(attachment, card, boot_id):
            return f"attachment {attachment.metadata.name} shows that it belongs to fabric {attachment.spec.fabric}"
    return None


def lender(
    resident: Resident, attached: Iterable[attachments.DeviceAttachment], driver: str, boot_id: str
) -> attachments.DeviceAttachment | None:
    """Return the attachment that lends the virtual function's card, or None for any other device.

    The card must have been visible on this node since its boot, and belong to exactly one attachment, of that driver.
    """
    if not resident.is_virtual:
        return None
    meant = [attachment for attachment in attached if _means(attachment, resident.whole, boot_id)]
    if len(meant) != 1 or meant[0].spec.driver != driver or not meant[0].lends:
        return None
    node = meant[0].status.node
    is_here = node is not None and node.boot_id == boot_id and meant[0].holds(attachments.VISIBLE)
    return meant[0] if is_here else None


def virtual_functions(
    listed: Iterable[Resident], attachment: attachments.DeviceAttachment, boot_id: str
) -> frozenset[str]:
    """Return the names of the virtual functions of the attachment's card."""
    return frozenset(
        resident.name
        for resident in listed
        if resident.is_virtual and _means(attachment, resident.whole, boot_id)
    )


def _means(attachment: attachments.DeviceAttachment, card: model.Card, boot_id: str) -> bool:
    identity, node = attachment.identity, attachment.status.node
    if identity.serial and _has_serial(card, identity.serial):
        return True
    if evidence.is_shown(evidence.find_own_keys(identity), card):
        return True
    seen_at = node.pci_address if node is not None and node.boot_id == boot_id else ""
    if seen_at and any(function.address == seen_at for function in card.functions):
        return True
    return card.first.slot in _slots(attachment)


def _possible_attachment(resident: Resident, situation: Situation) -> str | None:
    """Return why the device may be a fabric's, or None."""
    kind = f"{resident.whole.first.vendor:04x}:{resident.whole.first.device:04x}"
    for attachment in situation.attached if resident.name not in situation.held else ():
        identity, node = attachment.identity, attachment.status.node
        is_located = _slots(attachment) or (node is not None and node.pci_address)
        if not is_located and identity.pci_id == kind and not _is_another(resident.whole, identity):
            return f"it may be the device of attachment {attachment.metadata.name}, of which no more is known"
    return None


def _is_another(card: model.Card, identity: attachments.Identity) -> bool:
    """Return whether the card, which has none of the device's numbers, shows numbers that can be compared with them."""
    kinds = {each.kind for each in identity.identifiers if not each.shared} & set(recognition.STRENGTH)
    if kinds:
        return any(each.kind in kinds for each in card.bare.identifiers)
    return bool(identity.serial) and not identity.sole_arrival


def _slots(attachment: attachments.DeviceAttachment) -> frozenset[str]:
    node, connection = attachment.status.node, attachment.status.connection
    slots = {
        attachment.identity.slot,
        connection.slot if connection else "",
        node.slot if node else "",
    }
    return frozenset(slots - {""})


def _has_serial(card: model.Card, text: str) -> bool:
    wanted, numbers = model.canonical_serial(text), model.serial_numbers(text)
    for function in card.functions:
        held = {model.canonical_serial(number) for number in (function.serial, function.dsn) if number}
        if wanted in held:
            return True
        if function.dsn and numbers & model.serial_numbers(function.dsn):
            return True
    return any(memdev.serial in numbers for memdev in card.memdevs if memdev.serial is not None)


def _foreign_slot(card: model.Card, selection: selections.Selection) -> str | None:
    name = card.first.slot
    if name is None or selection.has_slot(name):
        return None
    # Without power and presence a slot is no more than a name on the board.
    if card.slot is not None and card.slot.powered is None and card.slot.present is None:
        return None
    return f"it sits in hot-plug slot {name}, which the configuration does not give to this node"
