"""What the kernel shows of a node's PCI and CXL devices, as values.

`None` always means "the kernel does not say": the file is absent, unreadable or held nonsense.
Sizes are bytes, link speeds GT/s per lane, widths lanes.
"""

import dataclasses

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
class NvmeController:
    """A controller that the nvme driver made: `/sys/class/nvme/nvmeN`.

    Attributes:
        state: `live`, `resetting`, `connecting`, `deleting`, `dead`, ... (drivers/nvme/host/core.c).
    """

    name: str
    state: str | None
    model: str | None
    firmware: str | None
    serial: str | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FpgaManager:
    """What loads bitstreams into an FPGA: Documentation/ABI/testing/sysfs-class-fpga-manager.

    Attributes:
        name: `fpgaN`.
        path: its directory below the sysfs root.
        title: what its driver calls itself.
        state: `operating`, `unknown`, `write error`, ...
    """

    name: str
    path: str
    title: str | None
    state: str | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PciFunction:
    """One PCI function.

    Attributes:
        address: `domain:bus:device.function`.
        path: its directory below the sysfs root, beginning with `devices/`.
        class_code: 24 bits: base class, subclass, programming interface.
        pcie_root: the root complex it hangs from, e.g. `pci0000:00`.
        serial: the NVMe controller's or CXL memory device's serial, else the Device Serial Number.
        dsn: the PCIe Device Serial Number as eight dashed pairs; shared by all functions of a card. Not of bridges
            and virtual functions, which are no cards.
        dsn_hidden: it may have a `dsn`, which this process has no privilege to read.
        slot: the name of the hot-plug slot it sits in or below.
        link: of a virtual function it is that of its physical one, and not told again.
        sriov: for a physical function that can have virtual ones.
        physical_function: for a virtual function, the address of the one it belongs to.
        secondary_bus: the number of the bus behind it, if it is a bridge to one.
        nvme: the controllers that the nvme driver made of it; one, or none while it is not bound.
        fpga_managers: what can load bitstreams into it, at any depth below it.
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
    secondary_bus: int | None = None
    nvme: tuple[NvmeController, ...] = ()
    fpga_managers: tuple[FpgaManager, ...] = ()


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
class DaxDevice:
    """A range of memory as one device (`daxN.M`): Documentation/ABI/testing/sysfs-bus-dax.

    Attributes:
        region: the CXL region that it is made of; None for memory that the firmware set apart.
        driver: `kmem` while it serves as system memory, `device_dax` while programs map it.
        target_node: the NUMA node that its memory has, or will have once online.
        align_bytes: what mappings of it must be aligned to.
    """

    name: str
    path: str
    region: str | None
    driver: str | None
    size_bytes: int | None
    align_bytes: int | None
    target_node: int | None
    device_node: DeviceNode | None
