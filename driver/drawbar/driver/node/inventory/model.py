"""The inventory of a node's PCI and CXL devices, as values.

`None` always means "the kernel does not say": the file is absent, unreadable or held nonsense.
Sizes are bytes, link speeds GT/s per lane, widths lanes.
"""

import dataclasses
from collections.abc import Iterator

from drawbar.driver.node.inventory import serials
from drawbar.driver.node.inventory.classification import FunctionClass


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeviceNode:
    """A file in /dev that a driver of a function offers.

    Attributes:
        path: where devtmpfs puts it, e.g. `/dev/nvme0n1`.
        block: a block device; a character device otherwise.
        subsystem: the kernel's subsystem, e.g. `nvme`, `block`, `drm`, `accel`, `cxl`.
    """

    path: str
    major: int
    minor: int
    block: bool
    subsystem: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A PCIe link as it runs now, and as it could run at most."""

    speed_gts: float | None = None
    width: int | None = None
    max_speed_gts: float | None = None
    max_width: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sriov:
    """The virtual functions of a physical function: how many it can have, has, and which they are."""

    total_vfs: int
    num_vfs: int
    virtual_functions: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PciFunction:
    """One PCI function.

    Attributes:
        address: `domain:bus:device.function`.
        path: its directory below the sysfs root, beginning with `devices/`.
        class_code: 24 bits: base class, subclass, programming interface.
        pcie_root: the root complex it hangs from, e.g. `pci0000:00`.
        serial: the NVMe controller's or CXL memory device's serial, else the Device Serial Number.
        dsn: the PCIe Device Serial Number as eight dashed pairs; shared by all functions of a card.
        dsn_hidden: it may have a `dsn`, which this process has no privilege to read.
        slot: the name of the hot-plug slot it sits in or below.
        sriov: for a physical function that can have virtual ones.
        physical_function: for a virtual function, the address of the one it belongs to.
    """

    address: str
    path: str
    class_code: int
    device_class: FunctionClass
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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A hot-plug slot: Documentation/ABI/testing/sysfs-bus-pci, `/sys/bus/pci/slots`.

    `present` without `powered` is an ordinary state: a card is in and waits for power.
    `address` is `domain:bus:device`, without a function.
    """

    name: str
    address: str
    present: bool | None
    powered: bool | None
    attention: int | None
    speed_gts: float | None
    max_speed_gts: float | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Memdev:
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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """A CXL port.

    Attributes:
        kind: `root`, `switch` or `endpoint`.
        uport: the last component of the device above it: a memdev, a PCI function, an ACPI device.
        parent: the port above, None for a root.
    """

    name: str
    path: str
    kind: str
    uport: str | None
    parent: str | None
    decoders_committed: int | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """An HDM decoder of a CXL port; `start` is None for readers without privilege."""

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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Region:
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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """The functions that come and go together, so what a fabric calls a device.

    Attributes:
        functions: physical and virtual ones, in order of address; the first is what the card is known by.
        slot: the hot-plug slot that it sits in, as it is now; None where its port has none.
        memdevs: the CXL memory devices of its functions.
    """

    functions: tuple[PciFunction, ...]
    slot: Slot | None = None
    memdevs: tuple[Memdev, ...] = ()

    @property
    def first(self) -> PciFunction:
        """The function that the card is known by: physical, and no bridge where it has others."""
        return self.functions[0]

    @property
    def address(self) -> str:
        """PCI address of the first function."""
        return self.first.address

    @property
    def device_nodes(self) -> tuple[DeviceNode, ...]:
        """The device files of all functions."""
        return tuple(node for function in self.functions for node in function.device_nodes)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """Everything that was read, in order of address or name."""

    functions: tuple[PciFunction, ...]
    slots: tuple[Slot, ...] = ()
    memdevs: tuple[Memdev, ...] = ()
    ports: tuple[Port, ...] = ()
    decoders: tuple[Decoder, ...] = ()
    regions: tuple[Region, ...] = ()

    def by_address(self, address: str) -> PciFunction | None:
        """The function at an address, or None."""
        return next((function for function in self.functions if function.address == address), None)

    def by_serial(self, serial: str) -> PciFunction | None:
        """The function with this serial, or None.

        NVMe serials match without regard to case and padding, CXL serials and Device Serial Numbers by
        number, in any notation. Of several functions the one with the lowest address counts, so of a
        card with several functions it is function 0; `all_by_serial` shows whether there are more.
        """
        return next(self._matching(serial), None)

    def all_by_serial(self, serial: str) -> tuple[PciFunction, ...]:
        """Every function with this serial: the functions of one card, or two cards that claim the same."""
        return tuple(self._matching(serial))

    def _matching(self, serial: str) -> Iterator[PciFunction]:
        wanted = serials.canonical(serial)
        if not wanted:
            return
        exact = [function for function in self.functions if wanted in _texts(function)]
        yield from exact
        numbers = serials.numbers(wanted)
        for function in self.functions:
            if function not in exact and numbers & _numbers(function):
                yield function


def _texts(function: PciFunction) -> set[str]:
    return {serials.canonical(text) for text in (function.serial, function.dsn) if text}


def _numbers(function: PciFunction) -> frozenset[int]:
    found = serials.numbers(function.dsn) if function.dsn else frozenset()
    if function.serial and function.device_class is FunctionClass.CXL_MEMORY:
        found |= serials.numbers(function.serial)
    return found
