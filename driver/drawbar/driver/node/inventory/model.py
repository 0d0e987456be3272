"""Values for a node's PCI and CXL devices, as the kernel shows them. Pure.

`None` always means that the kernel does not say: the file is absent, unreadable or implausible. Sizes are bytes, link
speeds GT/s per lane, widths lanes.

**Cards.** The functions of a card appear and disappear together, so a card is a fabric's device. The rules for grouping,
in this order:

- A virtual function belongs to its physical function.
- All functions in or below one hot-plug slot belong together, even with a switch on the card. Below nested slots the
  nearer one counts, because an enclosure in a slot has slots of its own.
- The functions of one multi-function device belong together. With ARI a device has up to 256 functions, on all device
  numbers of its bus.

A root port belongs to the host, never to a card.

**Arrivals.** A card that is pulled and put in again between two looks shows the same values. Only its directory is another one.
The kernel numbers the directories of sysfs in order, and uses no number twice in one boot: 64 bits since Linux 5.5, and 31 bits
in a cycle since 4.14 (fs/kernfs/dir.c, `__kernfs_new_node`). The number needs no event. The directory's times do not tell an
arrival: the kernel sets them when it first reads the directory, and again after it has dropped it from its cache.

**Serial numbers.** The kernel writes an NVMe serial as padded text and a CXL memory device's as `0x1234`. It shows the
PCIe Device Serial Number only in configuration space. A fabric manager writes the same 64-bit number as
`00-00-00-00-00-00-12-34`, with colons, in decimal, or as a GCXLID with a final `:<LD-ID>`.
"""

import enum
import re
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from drawbar.driver import wording
from drawbar.fabric import witnesses
from drawbar.fabric.classes import DeviceClass

RegionAttribute = Literal["interleave_granularity", "interleave_ways", "size", "commit"]
DecoderAttribute = Literal["mode", "dpa_size"]
DaxDriver = Literal["device_dax", "kmem"]
MEMDEV = re.compile(r"mem\d+")
"""The name of a CXL memory device."""
ASLEEP = frozenset({"D1", "D2", "D3hot", "D3cold"})
"""The power states in which a device does not answer."""
_SIXTEEN_DIGITS = re.compile(r"[0-9a-f]{16}")
_BEYOND = 1 << 64


def format_serial(number: int) -> str:
    """Return a 64-bit number as eight pairs of hexadecimal digits, most significant first."""
    return number.to_bytes(8, "big").hex("-")


def plausible_serial(number: int | None) -> int | None:
    """Return the number if it is a possible 64-bit serial number, or None. A device without one shows 0, a broken one anything."""
    return number if number and 0 < number < _BEYOND else None


def canonical_serial(serial: str) -> str:
    """Return a textual serial in a notation for comparison, without padding and in small letters."""
    return serial.strip().casefold()


def serial_numbers(serial: str) -> frozenset[int]:
    """Return every 64-bit number that this notation can mean: several if sixteen digits fit both bases."""
    value = canonical_serial(serial)
    if pairs := witnesses.PAIRS.fullmatch(value):
        return frozenset({int(re.sub("[-:]", "", pairs[1]), 16)})
    numbers = set()
    if re.fullmatch("[0-9]{1,20}", value) and int(value) < _BEYOND:
        numbers.add(int(value))
    if value.startswith("0x") and re.fullmatch("[0-9a-f]{1,16}", value[2:]):
        numbers.add(int(value, 16))
    if _SIXTEEN_DIGITS.fullmatch(value):
        numbers.add(int(value, 16))
    return frozenset(numbers)


class DeviceNode(msgspec.Struct, frozen=True, kw_only=True):
    """A device file in /dev of a function's driver.

    Attributes:
        path: its path in devtmpfs, e.g. `/dev/nvme0n1`.
        block: a block device; a character device otherwise.
        subsystem: the kernel's subsystem, e.g. `nvme`, `block`, `drm`, `accel`, `cxl`.
    """

    path: str
    major: int
    minor: int
    block: bool
    subsystem: str


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """The current and the maximum speed and width of a PCIe link."""

    speed_gts: float | None = None
    width: int | None = None
    max_speed_gts: float | None = None
    max_width: int | None = None


class Sriov(msgspec.Struct, frozen=True, kw_only=True):
    """The virtual functions of a physical function: their maximum number, their current number and their addresses."""

    total_vfs: int
    num_vfs: int
    virtual_functions: tuple[str, ...] = ()


class NvmeController(msgspec.Struct, frozen=True, kw_only=True):
    """A controller of the nvme driver: `/sys/class/nvme/nvmeN`.

    Attributes:
        state: `live`, `resetting`, `connecting`, `deleting`, `dead`, ... (drivers/nvme/host/core.c).
    """

    name: str
    state: str | None
    model: str | None
    firmware: str | None
    serial: str | None


class FpgaManager(msgspec.Struct, frozen=True, kw_only=True):
    """The loader of an FPGA's bitstreams: Documentation/ABI/testing/sysfs-class-fpga-manager.

    Attributes:
        name: `fpgaN`.
        path: its directory below the sysfs root.
        title: its driver's name for itself.
        state: `operating`, `unknown`, `write error`, ...
    """

    name: str
    path: str
    title: str | None
    state: str | None


class Silence(enum.StrEnum):
    """The reason why the kernel does not yet show an identifier of some kind."""

    DRIVER_NOT_BOUND = "driver-not-bound"
    """The driver for this identifier is not bound to the function."""
    NOT_INITIALISED = "not-initialised"
    """The driver is bound and has not yet initialised the device."""
    NO_PRIVILEGE = "no-privilege"
    """This process has no privilege to read it."""
    VPD_SLOW = "vpd-slow"
    """The device has not yet answered the read of its Vital Product Data."""


class PciFunction(msgspec.Struct, frozen=True, kw_only=True):
    """One PCI function.

    Attributes:
        address: `domain:bus:device.function`.
        path: its directory below the sysfs root, beginning with `devices/`.
        class_code: 24 bits: base class, subclass, programming interface.
        pcie_root: the root complex above it, e.g. `pci0000:00`.
        serial: the NVMe controller's or CXL memory device's serial, else the Device Serial Number.
        dsn: the PCIe Device Serial Number as eight dashed pairs; shared by all functions of a card. None for bridges and
            virtual functions, because they are no cards.
        dsn_hidden: it may have a `dsn`, but this process has no privilege to read it.
        slot: the name of the hot-plug slot at or above it.
        link: its link; empty for a virtual function, which has the link of its physical function.
        sriov: the virtual functions of a physical function; None if it cannot have any.
        physical_function: the address of a virtual function's physical function.
        secondary_bus: the number of the bus behind a bridge.
        nvme: the nvme driver's controllers: one, or none while it is not bound.
        fpga_managers: the loaders of its bitstreams, at any depth below it.
        unassigned_bars: the numbers of its memory BARs without an address; read only if no driver, or vfio, is bound.
        identifiers: the identifiers shown by the kernel and the function's driver; none for bridges and virtual functions.
        unread: the kinds of identifiers missing from a read, each with the reason; see `silences.silences`.
        ari: its device number is a part of its function number (Alternative Routing-ID Interpretation); not of device 0.
        defect: its driver's missing device file, as a clause with the remedy.
        arrival: the number of its directory; a function that was removed and came back has another. 0 if unknown.
    """

    address: str
    path: str
    class_code: int
    device_class: DeviceClass
    vendor: int
    device: int
    subsystem_vendor: int | None
    subsystem_device: int | None
    driver: str | None
    numa_node: int | None
    pcie_root: str | None
    link: Link
    serial: str | None
    dsn: str | None
    dsn_hidden: bool
    iommu_group: int | None
    sriov: Sriov | None
    physical_function: str | None
    slot: str | None
    device_nodes: tuple[DeviceNode, ...]
    net_interfaces: tuple[str, ...]
    secondary_bus: int | None = None
    nvme: tuple[NvmeController, ...] = ()
    fpga_managers: tuple[FpgaManager, ...] = ()
    unassigned_bars: tuple[int, ...] = ()
    identifiers: tuple[witnesses.Identifier, ...] = ()
    unread: tuple[tuple[witnesses.Kind, Silence], ...] = ()
    ari: bool = False
    defect: str | None = None
    arrival: int = 0

    @property
    def is_root_port(self) -> bool:
        """Return whether it is a bridge on the bus of a root complex."""
        return self.secondary_bus is not None and self.path.rpartition("/")[0].rpartition("/")[2].startswith(
            "pci"
        )

    @property
    def device_address(self) -> str:
        """Return the address, without a function number, of the function's device. A virtual function has its physical one's."""
        device = (self.physical_function or self.address).rpartition(".")[0]
        return f"{device[:-2]}00" if self.ari else device


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """A hot-plug slot: Documentation/ABI/testing/sysfs-bus-pci, `/sys/bus/pci/slots`.

    `present` without `powered` is an ordinary state: a card in the slot waits for power.

    Attributes:
        address: `domain:bus:device` of the device in the slot, or of the ports above it if firmware names the slot.
        port: the address of the port above the slot, if `address` is that of ports.
        is_ambiguous: `address` is that of several ports, and none of them can be identified as the slot's.
    """

    name: str
    address: str
    present: bool | None
    powered: bool | None
    attention: int | None
    speed_gts: float | None
    max_speed_gts: float | None
    port: str | None = None
    is_ambiguous: bool = False

    @property
    def location(self) -> str | None:
        """Return the address of the device in the slot, or of the port above it with its function number; None if unknown."""
        return None if self.is_ambiguous else self.port or self.address


class Memdev(msgspec.Struct, frozen=True, kw_only=True):
    """A CXL memory device (`memN`): Documentation/ABI/testing/sysfs-bus-cxl."""

    name: str
    path: str
    serial: int | None
    pci_address: str | None
    ram_bytes: int | None
    pmem_bytes: int | None
    numa_node: int | None
    firmware: str | None
    device_node: DeviceNode | None


class Port(msgspec.Struct, frozen=True, kw_only=True):
    """A CXL port.

    Attributes:
        kind: `root`, `switch` or `endpoint`.
        uport: the name of the device above it: a memdev, a PCI function, an ACPI device.
        parent: the port above, None for a root.
    """

    name: str
    path: str
    kind: str
    uport: str | None
    parent: str | None
    decoders_committed: int | None


class Decoder(msgspec.Struct, frozen=True, kw_only=True):
    """An HDM decoder of a CXL port; `start` is None for unprivileged readers."""

    name: str
    path: str
    kind: str
    port: str | None
    start: int | None
    size_bytes: int | None
    mode: str | None
    target_type: str | None
    targets: tuple[int, ...]
    region: str | None
    interleave_ways: int | None
    interleave_granularity_bytes: int | None
    locked: bool | None
    dpa_bytes: int | None


class Region(msgspec.Struct, frozen=True, kw_only=True):
    """A CXL region; `targets` are endpoint decoders in interleave order."""

    name: str
    path: str
    uuid: str | None
    start: int | None
    size_bytes: int | None
    mode: str | None
    committed: bool | None
    interleave_ways: int | None
    interleave_granularity_bytes: int | None
    targets: tuple[str, ...]


class DaxDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A range of memory as one device (`daxN.M`): Documentation/ABI/testing/sysfs-bus-dax.

    Attributes:
        region: its CXL region; None for memory reserved by firmware.
        driver: `kmem` for system memory, `device_dax` for mapping by programs.
        target_node: the NUMA node of its memory, now or once it is online.
        align_bytes: the alignment required of its mappings.
    """

    name: str
    path: str
    region: str | None
    driver: str | None
    size_bytes: int | None
    align_bytes: int | None
    target_node: int | None
    device_node: DeviceNode | None


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """The PCI functions of one device, which appear and disappear together.

    Attributes:
        functions: the first one represents the card: a GPU, an accelerator or an FPGA, if the card has one. Virtual functions
            follow physical ones, and bridges come last; the rest is in order of address.
        slot: the current state of its hot-plug slot, or None if it is in none.
        memdevs: the CXL memory devices of its functions.
    """

    functions: tuple[PciFunction, ...]
    slot: Slot | None = None
    memdevs: tuple[Memdev, ...] = ()

    @property
    def first(self) -> PciFunction:
        """Return the function that represents the card: physical, and no bridge if the card has other functions."""
        return self.functions[0]

    @property
    def address(self) -> str:
        """Return the PCI address of the first function."""
        return self.first.address

    @property
    def arrival(self) -> int:
        """Return the arrival of the first function."""
        return self.first.arrival

    def has_stayed(self, address: str, arrival: int) -> bool:
        """Return whether the card has had the function at this address since that arrival; 0 stands for any arrival."""
        return any(each.address == address and arrival in (0, each.arrival) for each in self.functions)

    @property
    def device_class(self) -> DeviceClass:
        """Return the class of the first function; `BRIDGE` for a card with bridges only."""
        return self.first.device_class

    @property
    def serial(self) -> str | None:
        """Return the serial number of the card, or None.

        A CXL device has the same number with and without its driver, in the notation of a Device Serial Number.
        """
        for function in self.functions:
            text = function.serial
            if text and function.device_class is DeviceClass.CXL_MEMORY:
                numbers = serial_numbers(text)
                return format_serial(min(numbers)) if len(numbers) == 1 else text
            if text:
                return text
        return next((format_serial(each.serial) for each in self.memdevs if each.serial), None)

    @property
    def identifiers(self) -> tuple[witnesses.Identifier, ...]:
        """Return the identifiers of all functions and memory devices, each value of a kind once."""
        listed = [each for function in self.bare.functions for each in function.identifiers]
        for memdev in self.memdevs:
            number = "" if memdev.serial is None else f"{memdev.serial:#x}"
            shown = witnesses.identifier(witnesses.Kind.PCIE_DSN, number, f"{memdev.name}/serial")
            listed += [shown] if shown is not None else []
        distinct: dict[tuple[witnesses.Kind, str], witnesses.Identifier] = {}
        for each in listed:
            distinct.setdefault((each.kind, each.value), each)
        return tuple(distinct.values())[: witnesses.CARD_IDENTIFIERS_MAX]

    @property
    def bare(self) -> "Card":
        """Return the card without its virtual functions; a virtual function that is a device by itself stays."""
        addresses = {function.address for function in self.functions}
        own = tuple(function for function in self.functions if function.physical_function not in addresses)
        return self if len(own) == len(self.functions) else msgspec.structs.replace(self, functions=own)

    @property
    def unassigned_bars(self) -> tuple[tuple[str, int], ...]:
        """Return the memory BARs without an address, each as its function's address and its number."""
        return tuple(
            (function.address, number) for function in self.functions for number in function.unassigned_bars
        )

    @property
    def device_nodes(self) -> tuple[DeviceNode, ...]:
        """Return the device files of all functions."""
        return tuple(node for function in self.functions for node in function.device_nodes)


_BARS_NAMED = 4


def describe_unassigned(card: Card) -> str | None:
    """Return which memory BARs of a card have no address, as a clause with the remedy, or None if all have one."""
    unassigned = card.unassigned_bars
    if not unassigned:
        return None
    named = wording.join_some([f"{number} of {address}" for address, number in unassigned], _BARS_NAMED)
    return (
        f"the kernel has no memory addresses for BAR {named}, so no driver can use it; "
        "run drawbar doctor --node on the node, which names the setting to change"
    )


def card_group(function: PciFunction) -> str:
    """Return the common key of the functions of one card: their slot, or the address of their device."""
    if function.slot is not None:
        return slot_group(function.slot)
    return f"port {function.address}" if function.is_root_port else function.device_address


def slot_group(name: str) -> str:
    """Return the key of the functions in the slot of this name."""
    return f"slot {name}"


def make_card(
    functions: Iterable[PciFunction], slots: Mapping[str, Slot], memdevs: Mapping[str, tuple[Memdev, ...]]
) -> Card:
    """Return the card of functions with one `card_group`.

    Args:
        functions: one or more.
        slots: by name.
        memdevs: by the address of their function.
    """
    ordered = tuple(sorted(functions, key=_rank))
    name = ordered[0].slot
    return Card(
        functions=ordered,
        slot=slots.get(name) if name is not None else None,
        memdevs=tuple(memdev for function in ordered for memdev in memdevs.get(function.address, ())),
    )


def address_order(address: str) -> tuple[int, str]:
    """Return a sort key for addresses: domains of five digits come after those of four."""
    return len(address), address


_COMPUTES = frozenset({DeviceClass.GPU, DeviceClass.ACCELERATOR, DeviceClass.FPGA})


def _rank(function: PciFunction) -> tuple[bool, bool, bool, tuple[int, str]]:
    bridge = function.device_class is DeviceClass.BRIDGE
    computes = function.device_class in _COMPUTES
    return bridge, function.physical_function is not None, not computes, address_order(function.address)


_CORE_FILES = """
aer_dev_correctable aer_dev_fatal aer_dev_nonfatal aer_rootport_total_err_cor aer_rootport_total_err_fatal
aer_rootport_total_err_nonfatal ari_enabled boot_vga broken_parity_status class config consistent_dma_mask_bits
current_link_speed current_link_width d3cold_allowed device devspec dma_mask_bits driver driver_override enable
firmware_node index iommu iommu_group irq label local_cpulist local_cpus max_link_speed max_link_width modalias msi_bus
numa_node physfn power_state remove rescan reset reset_method reset_subordinate resource resource0 resource0_wc
resource1 resource2 resource2_wc resource3 resource4 resource4_wc resource5 revision rom secondary_bus_number
serial_number sriov_drivers_autoprobe sriov_numvfs sriov_offset sriov_stride sriov_totalvfs sriov_vf_device
sriov_vf_total_msix subordinate_bus_number subsystem subsystem_device subsystem_vendor uevent vendor vpd
"""
_CORE_FOLDERS = "link msi_irqs pci_bus pools power wakeup"

CORE_ENTRIES = frozenset(_CORE_FILES.split()) | frozenset(_CORE_FOLDERS.split())
"""Entries of the PCI core, which need no further read (drivers/pci/pci-sysfs.c, pcie/aer.c, pcie/aspm.c, iov.c; also links)."""
