"""The devices that are built into a node: their names, and which of them are offered; pure.

A device is named after its serial number where it has one that no other card of the node claims, else after its PCI
address: `gpu-48-b0-2d-00-00-00-00-01`, `fpga-0000-65-00-0`. A claim may outlive a reboot, and addresses move when a card
is added; serial numbers do not. A virtual function is named after its card and its number among its kind.

Invariants, whatever is configured:

- nothing that a fabric brought, or may have brought, is offered: what an attachment of this node means, and what sits in
  a hot-plug slot that the configuration does not claim for the node; except the virtual functions of a card that is
  attached by hand, or for a claim whose class has them offered (`lender`), which are here alone;
- nothing that the host lives on is offered: a disk that the host uses, a network interface with an address, a bridge,
  the screen of a management controller. A device that a claim holds here stays offered, for its claim is who uses it;
- a card is offered whole, or as its virtual functions, never both.

Each refused device comes with the reason, for operators ask why their device is not offered.

Source: `resource.k8s.io/v1` Device.name (a DNS label), ResourcePool.name (DNS subdomains joined by `/`).
"""

import collections
import enum
import fnmatch
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from drawbar.driver import expressions
from drawbar.driver.api import attachments, deviceplugins
from drawbar.driver.node.inventory import model
from drawbar.fabric.classes import OFFERED_CLASSES, DeviceClass

# GPUs, accelerators and FPGAs have drivers and device plugins of their vendors, which an installation must not disturb.
DEFAULT_CLASSES = ("cxl-memory",)
QUIET_MAX_SECONDS = 86_400.0
CLAIMS_LOAD = ("fpga",)
"""Classes of which any claim may ask that a device is made ready for it."""
# Chipset parts, USB controllers and whatever else has no class of ours.
NEEDS_SELECTOR = DeviceClass.OTHER


class Clean(enum.StrEnum):
    """What is done about the traces of a device's user before another one gets it."""

    BY_CLASS = "by-class"
    """Disks are erased, and each function is reset."""
    NONE = "none"
    """Nothing."""
    RESET = "reset"
    """Each function is reset."""
    ERASE = "erase"
    """The user's data are erased where the class has a way to, and each function is reset."""

    @property
    def way(self) -> attachments.Clean | None:
        """The same as a DeviceAttachment has it."""
        return None if self is Clean.BY_CLASS else attachments.Clean(self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which devices of a node are in its own pool.

    Attributes:
        enabled: whether there is a local pool at all.
        classes: the classes of device that are offered.
        selector: a CEL expression over `device`, as in a DeviceClass; only devices for which it is true are offered.
        slots: names of hot-plug slots, or patterns such as `*`, in which devices of this node sit. What sits in any
            other hot-plug slot is taken for a fabric's.
        virtual_functions: offer the virtual functions of a device that has some, each by itself, in its place.
        clean: what is done about the traces of a claim on a device, before another claim gets it.
        bind_when_ready: the classes of device whose pods are bound to the node only when the device is ready.
        despite_others: names of devices, or patterns such as `gpu-*`, that are offered even if another driver, a device
            plugin or a process of the host has them.
        plugin_resources: cards that stand behind further extended resources, as `example.com/*=nic`, `x.io/fec=0x8086`,
            `x.io/fec=0x8086:accelerator` or `x.io/y=none`.
        quiet_seconds: how long after another driver or a device plugin last had a device it is offered.
    """

    enabled: bool = True
    classes: tuple[str, ...] = DEFAULT_CLASSES
    selector: str = ""
    slots: tuple[str, ...] = ()
    virtual_functions: bool = False
    clean: Clean = Clean.BY_CLASS
    bind_when_ready: tuple[str, ...] = CLAIMS_LOAD
    despite_others: tuple[str, ...] = ()
    plugin_resources: tuple[str, ...] = ()
    quiet_seconds: float = 300.0

    def lends(self, device_class: str) -> bool:
        """Return whether the virtual functions of a class of devices are offered."""
        return self.enabled and self.virtual_functions and device_class in self.classes

    def is_offered_anyway(self, name: str) -> bool:
        """Whether the device is offered whatever other components have it."""
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self.despite_others)

    def has_slot(self, name: str) -> bool:
        """Whether devices in that hot-plug slot are this node's."""
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self.slots)


def problems(settings: Selection) -> list[str]:
    """One sentence for each wrong value."""
    offered = [offered_class.value for offered_class in OFFERED_CLASSES]
    wrong = [
        f"the local pool has no class of device {name!r}: choose of {', '.join(offered)}"
        for name in dict.fromkeys((*settings.classes, *settings.bind_when_ready))
        if name not in offered
    ]
    if NEEDS_SELECTOR in settings.classes and not settings.selector:
        wrong.append(
            "the local pool would offer every part of the chipset: class 'other' needs a selector that names the devices"
        )
    if settings.enabled and not settings.classes:
        wrong.append("the local pool has no class of device: name some, or turn it off")
    parsed = map(deviceplugins.parse, settings.plugin_resources)
    wrong += [f"the local pool's pluginResources: {fault}" for fault in parsed if isinstance(fault, str)]
    # Written so that it holds for no NaN.
    if not 0 <= settings.quiet_seconds <= QUIET_MAX_SECONDS:
        wrong.append(
            f"the local pool's quietSeconds {settings.quiet_seconds} is not a number of seconds from 0 to {QUIET_MAX_SECONDS:g}"
        )
    if settings.selector:
        fault = expressions.fault(settings.selector)
        if fault is not None:
            wrong.append(f"the local pool's selector {settings.selector!r} is no CEL expression: {fault}")
    return wrong


LABEL_CHARS = 63
HASH_CHARS = 8
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resident:
    """Something of this node that can be given out as one device.

    Attributes:
        name: its DRA name.
        card: its functions; of a virtual function, that one alone.
        whole: the card that it is, or is a part of.
    """

    name: str
    card: model.Card
    whole: model.Card

    @property
    def is_virtual(self) -> bool:
        """Whether it is a virtual function."""
        return self.card.first.physical_function is not None


def residents(cards: Iterable[model.Card]) -> tuple[Resident, ...]:
    """Every card, and every virtual function of it, under the name it would have; names are unique.

    A name begins with the class and depends on the cards of that class alone, so those of other classes may be left out.
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
        listed += _virtual(card, name)
    return _distinct(listed)


def serial(card: model.Card) -> str | None:
    """The serial number that tells a card, if it has one."""
    texts = [
        (function.serial or function.dsn, function.device_class)
        for function in card.functions
        if function.physical_function is None
    ]
    for text, device_class in texts:
        if text:
            # Whether its driver is bound or not, a CXL device has one number; it is written as the Device Serial Number.
            numbers = model.serial_numbers(text) if device_class is DeviceClass.CXL_MEMORY else ()
            return model.dashed_serial(min(numbers)) if len(numbers) == 1 else text
    return next(
        (model.dashed_serial(memdev.serial) for memdev in card.memdevs if memdev.serial is not None), None
    )


def label(text: str) -> str:
    """A DNS label for any text that is equal only for equal texts, but for case and what separates."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    # Only separators may have changed: anything else, or a cut, is distinguished by a hash of the whole.
    if (
        len(plain) <= LABEL_CHARS
        and _LABEL.fullmatch(plain)
        and re.fullmatch(r"[a-z0-9.:_ -]+", text.lower())
    ):
        return plain
    short = plain[: LABEL_CHARS - HASH_CHARS - 1].rstrip("-")
    return f"{short or 'x'}-{_hash(text)}"


def class_of(name: str) -> DeviceClass | None:
    """The class of the devices that can have that name; None for a name that none of ours has."""
    matching = [listed for listed in DeviceClass if name.startswith(f"{listed}-")]
    return matching[0] if matching else None


def resource_slice(driver: str, pool_name: str) -> str:
    """The one name a pool's slice can have, so that no second one makes the pool invalid."""
    return f"{label(pool_name.partition('/')[0])}-{_hash(f'{driver}/{pool_name}')}"


def _virtual(card: model.Card, name: str) -> Iterable[Resident]:
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


def _distinct(listed: list[Resident]) -> tuple[Resident, ...]:
    """Name devices by their address that would share a name, such as those of serials that differ in separators alone."""
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
    """The state of the node besides its cards.

    Attributes:
        attached: the DeviceAttachments of this node, those that are being deleted among them.
        driver: whose attachments lend the virtual functions of their cards.
        boot_id: of this kernel; a PCI address in an attachment counts for the boot that saw it.
        held: names of devices that a claim holds on this node.
        busy: by the address of a card, what the host itself uses it for; cards that were not looked at are absent.
    """

    attached: tuple[attachments.DeviceAttachment, ...] = ()
    driver: str = ""
    boot_id: str = ""
    held: frozenset[str] = frozenset()
    busy: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What is offered, and why the other devices of the chosen classes are not.

    Attributes:
        refused: by name.
    """

    offered: tuple[Resident, ...]
    refused: Mapping[str, str]


def choose(
    listed: Iterable[Resident],
    wanted: Selection,
    situation: Situation,
    mismatch: Callable[[Resident], str | None],
) -> Choice:
    """Judges every candidate.

    Args:
        listed: the candidates.
        wanted: the configuration.
        situation: the rest of the node.
        mismatch: why the selector does not want a device; None where it does, or where there is none.
    """
    offered, refused = [], {}
    for resident in listed:
        reason = _reason(resident, wanted, situation) or mismatch(resident)
        if reason is None:
            offered.append(resident)
        else:
            refused[resident.name] = reason
    return Choice(offered=tuple(offered), refused=refused)


def _reason(resident: Resident, wanted: Selection, situation: Situation) -> str | None:
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
        _partition(resident, wanted)
        or _belongs(resident, wanted, situation)
        or (None if resident.name in situation.held else situation.busy.get(resident.card.address))
    )


def _belongs(resident: Resident, wanted: Selection, situation: Situation) -> str | None:
    """Why it is not this node's to give out, if so."""
    attachment = lender(resident, situation.attached, situation.driver, situation.boot_id)
    if attachment is None:
        return (
            of_fabric(resident.whole, situation.attached, situation.boot_id)
            or _perhaps_of_fabric(resident, situation)
            or _foreign_slot(resident.whole, wanted)
        )
    if attachment.deleting and resident.name not in situation.held:
        return f"its card is being detached: attachment {attachment.metadata.name}"
    if not attachment.is_made_ready and resident.name not in situation.held:
        return f"its card is not ready for its claim yet: attachment {attachment.metadata.name}"
    return None


def _partition(resident: Resident, wanted: Selection) -> str | None:
    parts = any(function.physical_function is not None for function in resident.whole.functions)
    if resident.is_virtual and not wanted.virtual_functions:
        return "it is a virtual function, and these are not offered"
    if not resident.is_virtual and parts and wanted.virtual_functions:
        return "its virtual functions are offered in its place"
    return None


def marks(attachment: attachments.DeviceAttachment | None) -> tuple[object, ...] | None:
    """Return all that tells which card an attachment means, or may mean, and lends; None without an attachment."""
    if attachment is None:
        return None
    node = attachment.status.node
    place = (node.pci_address, node.boot_id) if node is not None else None
    is_ready = attachment.holds(attachments.VISIBLE), attachment.lends and attachment.is_made_ready
    lends = attachment.lends, is_ready, attachment.deleting
    return attachment.identity, _slots(attachment), place, lends


def of_fabric(card: model.Card, attached: Iterable[attachments.DeviceAttachment], boot_id: str) -> str | None:
    """Why the card is what a fabric attached; None for any other."""
    for attachment in attached:
        if _means(attachment, card, boot_id):
            return f"attachment {attachment.metadata.name} shows that it belongs to fabric {attachment.spec.fabric}"
    return None


def lender(
    resident: Resident, attached: Iterable[attachments.DeviceAttachment], driver: str, boot_id: str
) -> attachments.DeviceAttachment | None:
    """Return the attachment that lends the card whose virtual function this is; None of anything else.

    The card must be visible on this node since it booted, and of one attachment alone, of that driver.
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
    """Return the names of the virtual functions of the card that the attachment means."""
    return frozenset(
        resident.name
        for resident in listed
        if resident.is_virtual and _means(attachment, resident.whole, boot_id)
    )


def _means(attachment: attachments.DeviceAttachment, card: model.Card, boot_id: str) -> bool:
    serial, node = attachment.identity.serial, attachment.status.node
    if serial and _has_serial(card, serial):
        return True
    seen_at = node.pci_address if node is not None and node.boot_id == boot_id else ""
    if seen_at and any(function.address == seen_at for function in card.functions):
        return True
    return card.first.slot in _slots(attachment)


def _perhaps_of_fabric(resident: Resident, situation: Situation) -> str | None:
    """Of an attached device that nothing tells apart, any of its kind may be the one that is on its way."""
    kind = f"{resident.whole.first.vendor:04x}:{resident.whole.first.device:04x}"
    for attachment in situation.attached if resident.name not in situation.held else ():
        identity, node = attachment.identity, attachment.status.node
        is_identified = identity.serial or _slots(attachment) or (node is not None and node.pci_address)
        if not is_identified and identity.pci_id == kind:
            return f"it may be the device of attachment {attachment.metadata.name}, of which no more is known"
    return None


def _slots(attachment: attachments.DeviceAttachment) -> frozenset[str]:
    node, connection = attachment.status.node, attachment.status.connection
    said = {attachment.identity.slot, connection.slot if connection else "", node.slot if node else ""}
    return frozenset(said - {""})


def _has_serial(card: model.Card, text: str) -> bool:
    wanted, numbers = model.canonical_serial(text), model.serial_numbers(text)
    for function in card.functions:
        held = {model.canonical_serial(number) for number in (function.serial, function.dsn) if number}
        if wanted in held:
            return True
        if function.dsn and numbers & model.serial_numbers(function.dsn):
            return True
    return any(memdev.serial in numbers for memdev in card.memdevs if memdev.serial is not None)


def _foreign_slot(card: model.Card, wanted: Selection) -> str | None:
    name = card.first.slot
    if name is None or wanted.has_slot(name):
        return None
    # Without power and presence a slot is no more than a name on the board.
    if card.slot is not None and card.slot.powered is None and card.slot.present is None:
        return None
    return f"it sits in hot-plug slot {name}, which the configuration does not give to this node"
