"""Recognition of a device by its identifiers: derived identifiers, and those that a node can read; pure.

One number is often written into several places: Intel's serial number is a MAC address, and so is most of a Device
Serial Number or of a node GUID. `expand` adds these readings. They can prove that a card is the device. They never
contradict, since a number may only look like a reading of another. A number in the other order of its bytes is a reading, too:
older versions of lspci print Device Serial Numbers in that order, and SMBIOS stores the first fields of a UUID so. A serial
number without its separators or leading zeros is one as well.

Sources: IEEE guidelines for EUI-48 and EUI-64 (ff-ff and ff-fe inserted); Linux 462acf6aca85 (ice) and
`addrconf_addr_eui48` (node GUIDs); ROCm/legacy-rocm-build#5480 (UUID of an AMD GPU); drivers/nvme/host/sysfs.c.
"""

import enum
import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from drawbar.fabric import identifiers, witnesses
from drawbar.fabric.classes import DeviceClass
from drawbar.fabric.witnesses import Identifier, Kind

if TYPE_CHECKING:
    # The contract's other modules would take 0.5 MB of a node daemon, which forecasts nothing.
    from drawbar.fabric.contract import inventory

NVIDIA, AMD, INTEL, MELLANOX, XILINX, KIOXIA, HABANA = (
    0x10DE,
    0x1002,
    0x8086,
    0x15B3,
    0x10EE,
    0x1E0F,
    0x1DA3,
)

STRENGTH = (
    Kind.GPU_UUID,
    Kind.PCIE_DSN,
    Kind.NVME_SERIAL,
    Kind.NGUID,
    Kind.EUI64,
    Kind.GPU_UNIQUE_ID,
    Kind.NVME_NQN,
    Kind.MAC,
    Kind.NODE_GUID,
    Kind.BOARD_SERIAL,
    Kind.VPD_SERIAL,
    Kind.VENDOR,
)
"""The kinds that can identify a device, the strongest first."""

WITHOUT_DRIVER = frozenset({Kind.PCIE_DSN, Kind.VPD_SERIAL})
"""The kinds that a node can read before a driver is bound."""
VAGUE_CLASSES = frozenset(
    {DeviceClass.GPU.value, DeviceClass.ACCELERATOR.value, DeviceClass.FPGA.value, DeviceClass.OTHER.value}
)
"""A board's designer, its vendor's driver and its fabric manager may choose different classes of these."""
_TEXTS = frozenset({Kind.BOARD_SERIAL, Kind.VPD_SERIAL, Kind.NVME_SERIAL})
_WITHOUT_NETWORK = frozenset({DeviceClass.GPU, DeviceClass.NVME, DeviceClass.CXL_MEMORY})
_BOARD_SERIAL_READERS = frozenset({(DeviceClass.GPU, AMD), (DeviceClass.FPGA, XILINX)})
_VPD_WRITERS = frozenset({(DeviceClass.NIC, MELLANOX), (DeviceClass.NIC, INTEL), (DeviceClass.NVME, KIOXIA)})
"""Makers whose printed serial number is also in the Vital Product Data."""
_PCI_ID = re.compile(r"([0-9a-f]{4}):([0-9a-f]{4})")
_NO_IDS = ("0000", "ffff")
READINGS_KEPT = 4096
_V3 = re.compile(r"(?:vpd[-.:/]?)?v3=([0-9a-f]{32})")
_DECIMAL = re.compile(r"[0-9]{4,20}")
_TWELVE = re.compile(r"[0-9a-f]{12}")
_WITH_MAC = re.compile(r"[0-9a-f]{6}ff(?:ff|fe)[0-9a-f]{6}")
_SEPARATORS = re.compile(r"[-:_ ]")
# Of a number, which some managers show as one in JSON, and of a text that fills a field of fixed width.
_ZEROS = re.compile(r"0+(?=[0-9]{6,}$)|0{4,}(?=.{6,}$)")
_DISTINCT = re.compile(r".*[a-f-].*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived(Identifier):
    """An identifier derived from another one of the same device. It can prove, and never contradicts."""


class Means(enum.StrEnum):
    """The means by which a node is expected to recognise a device."""

    IDENTIFIER = "identifier"
    SLOT = "slot"
    SOLE_ARRIVAL = "sole-arrival"


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The expected recognition of a device by a node.

    Attributes:
        kinds: of the identifiers that the node can read as well, the strongest first.
        has_slot: whether the fabric names the device's slot.
        needs_driver: whether the node can read `kinds` only with the device's driver.
    """

    kinds: tuple[Kind, ...] = ()
    has_slot: bool = False
    needs_driver: bool = False

    @property
    def means(self) -> Means:
        """Return the strongest available means."""
        if self.kinds:
            return Means.IDENTIFIER
        return Means.SLOT if self.has_slot else Means.SOLE_ARRIVAL

    def __str__(self) -> str:
        match self.means:
            case Means.IDENTIFIER:
                names = ", ".join(self.kinds)
                return f"{names} (once its driver is bound)" if self.needs_driver else names
            case Means.SLOT:
                return "slot and model"
            case Means.SOLE_ARRIVAL:
                return "sole arrival"


def forecast(device: "inventory.Device", *, has_slot: bool = False) -> Forecast:
    """Return the expected recognition of the device by a node.

    Args:
        device: from the fabric manager.
        has_slot: whether the manager names the slots of the hosts' ports.
    """
    kinds = _list_readable_kinds(device.identifiers, device.serial, device.device_class, device.pci_vendor_id)
    ordered = tuple(kind for kind in STRENGTH if kind in kinds)
    needs_driver = bool(ordered) and not kinds & WITHOUT_DRIVER
    return Forecast(kinds=ordered, has_slot=has_slot, needs_driver=needs_driver)


# A device is attached again and again.
@functools.lru_cache(READINGS_KEPT)
def _list_readable_kinds(
    listed: tuple[Identifier, ...], serial: str | None, device_class: DeviceClass, vendor: int | None
) -> frozenset[Kind]:
    """Return the kinds of a device's identifiers that a node can read as well."""
    kinds = {shown.kind for shown in expand(listed) if _is_readable(shown, device_class, vendor)}
    undeclared = witnesses.identifier(Kind.SERIAL, serial or "")
    if undeclared is not None:
        kinds |= _kinds_by_form(undeclared, device_class, vendor)
    return frozenset(kinds)


def parse_pci_id(text: str) -> tuple[str, str] | None:
    """Return vendor and device of `vvvv:dddd`, or None for another text and for numbers that no device has."""
    match = _PCI_ID.fullmatch(text)
    if match is None or any(part in _NO_IDS for part in match.groups()):
        return None
    return match[1], match[2]


def expand(listed: Iterable[Identifier]) -> tuple[Identifier, ...]:
    """Return the identifiers with all derived ones, each kind and value once; see `Derived`."""
    pending = list(listed)[: witnesses.CARD_IDENTIFIERS_MAX]
    unique = {(each.kind, each.value): each for each in pending}
    while pending:
        for derived in _readings(pending.pop(0)):
            if (derived.kind, derived.value) not in unique:
                unique[derived.kind, derived.value] = derived
                pending.append(derived)
    return tuple(unique.values())


@functools.lru_cache(READINGS_KEPT)
def _readings(listed: Identifier) -> tuple[Derived, ...]:
    texts: list[tuple[Kind, str]] = []
    match listed.kind:
        case Kind.SERIAL:
            names = {Kind.VENDOR} if listed.value.startswith("nqn.") else {Kind.VENDOR, Kind.NVME_NQN}
            texts = [(kind, listed.value) for kind in STRENGTH if kind not in names]
            if _DECIMAL.fullmatch(listed.value):
                texts.append((Kind.PCIE_DSN, f"{int(listed.value):#x}"))
        case Kind.PCIE_DSN:
            digits = listed.value.replace("-", "")
            texts = [*_macs(digits), (Kind.PCIE_DSN, identifiers.reverse_bytes(digits))]
        case Kind.NODE_GUID:
            texts = _macs(listed.value)
        case Kind.BOARD_SERIAL | Kind.VPD_SERIAL | Kind.NVME_SERIAL:
            texts = _read_serial(listed)
        case Kind.EUI64:
            texts = [(Kind.EUI64, identifiers.reverse_bytes(listed.value))]
        case Kind.NGUID:
            texts = [(Kind.NGUID, identifiers.swap_uuid(listed.value))]
        case Kind.GPU_UUID:
            texts = [(Kind.GPU_UUID, identifiers.swap_uuid(listed.value.replace("-", "")))]
            if spelt := witnesses.AMD_UUID.fullmatch(listed.value):
                texts.append((Kind.GPU_UNIQUE_ID, "".join(spelt.groups())))
        case Kind.VENDOR if spelt := _V3.fullmatch(listed.value):
            texts = [(Kind.MAC, spelt[1][-12:])]
        case _:
            pass
    readings = ((kind, witnesses.normal(kind, text)) for kind, text in texts)
    return tuple(Derived(kind=kind, value=value, source=listed.source) for kind, value in readings if value)


def _read_serial(listed: Identifier) -> list[tuple[Kind, str]]:
    """Return the readings of a serial number: without separators and leading zeros, of another kind, and as a MAC address."""
    plain = _SEPARATORS.sub("", listed.value)
    texts = [(kind, listed.value) for kind in _TEXTS if kind is not listed.kind]
    texts.append((listed.kind, _ZEROS.sub("", plain, count=1)))
    if _TWELVE.fullmatch(plain):
        texts.append((Kind.MAC, plain))
    elif _WITH_MAC.fullmatch(plain):
        texts += _macs(plain)
    elif witnesses.FUSE_VERSION.fullmatch(listed.value):
        texts.append((Kind.VENDOR, f"fuse-ver={listed.value}"))
    return texts


def _macs(digits: str) -> list[tuple[Kind, str]]:
    """Return the readings of a 64-bit number that contains a MAC address; none for other numbers."""
    head, inserted, tail = digits[:6], digits[6:10], digits[10:]
    match inserted:
        case "ffff":
            return [(Kind.MAC, head + tail)]
        case "fffe":
            flipped = f"{int(head[:2], 16) ^ 2:02x}{head[2:]}"
            return [(Kind.MAC, head + tail), (Kind.MAC, flipped + tail)]
        case "0300":
            return [(Kind.NODE_GUID, digits), (Kind.MAC, head + tail)]
        case _ if digits.startswith("0000"):
            # Broadcom's NetXtreme (tg3).
            return [(Kind.MAC, digits[4:])]
        case _:
            return []


def _kinds_by_form(undeclared: Identifier, device_class: DeviceClass, vendor: int | None) -> set[Kind]:
    """Return the readable kinds of a serial number, as far as its form shows them."""
    kinds = {
        reading.kind
        for reading in expand((undeclared,))
        if isinstance(reading, Derived) and _is_readable(reading, device_class, vendor)
    }
    if not _DISTINCT.fullmatch(undeclared.value):
        # Decimal digits alone can be a number of any kind. Of CXL memory they are the one that its kernel shows.
        is_memory = device_class is DeviceClass.CXL_MEMORY
        kinds &= {*_TEXTS, Kind.PCIE_DSN} if is_memory else _TEXTS
    return kinds if device_class is DeviceClass.GPU else kinds - {Kind.GPU_UNIQUE_ID}


def _is_readable(shown: Identifier, device_class: DeviceClass, vendor: int | None) -> bool:
    """Return whether a node can read such an identifier from such a device."""
    match shown.kind:
        case Kind.PCIE_DSN:
            return True
        case Kind.GPU_UUID:
            return vendor in (None, NVIDIA) and device_class not in (DeviceClass.NVME, DeviceClass.NIC)
        case Kind.GPU_UNIQUE_ID:
            return vendor in (None, AMD)
        case Kind.NVME_SERIAL | Kind.NVME_NQN | Kind.EUI64 | Kind.NGUID:
            return device_class is DeviceClass.NVME
        case Kind.MAC | Kind.NODE_GUID:
            return device_class not in _WITHOUT_NETWORK
        case Kind.BOARD_SERIAL:
            return (device_class, vendor) in _BOARD_SERIAL_READERS
        case Kind.VPD_SERIAL:
            return (device_class, vendor) in _VPD_WRITERS
        case _:
            # Of the kinds that are a vendor's own, a node reads the fuse version of a Gaudi alone.
            return vendor in (None, HABANA) and shown.value.startswith("fuse-ver=")
