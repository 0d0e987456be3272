"""Ready-made nodes by name: a layout with cards in it.

Vendors and ids are those of real cards (pci.ids). Serial numbers are invented in each class's format, one for every
card.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from drawbar.fabric.contract import DeviceClass
from drawbar.mocks.sysfs import errors, layouts
from drawbar.mocks.sysfs.device import MockDevice
from drawbar.mocks.sysfs.tree import SysfsTree

_GIB = 1 << 30
_NVME_BYTES = 3_840_755_982_336
_VFS = 4
_GEN5 = 32.0
"""The speed of a PCI Express 5.0 link in GT/s; the other cards have 4.0."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One kind of node.

    Attributes:
        summary: a description of one line.
        layout: the name of its host's layout.
        slots: the number of slots, for the plain layout.
        cards: the cards by slot.
        vfs: the number of virtual functions by slot.
        regions: the slots of each CXL region.
    """

    summary: str
    layout: str
    slots: int = 0
    cards: Mapping[int, MockDevice] = dataclasses.field(default_factory=dict)
    vfs: Mapping[int, int] = dataclasses.field(default_factory=dict)
    regions: tuple[tuple[int, ...], ...] = ()


def build(name: str, root: Path, *, uevent_socket: Path | None = None) -> SysfsTree:
    """Make the node of the name at `root`, an empty or missing folder, with events; return its tree.

    Raises:
        ImpossibleWorld: there is no such node, or `SysfsTree.create` refuses.
    """
    node = NODES.get(name)
    if node is None:
        raise errors.ImpossibleWorld(f"there is no ready-made node {name}: choose {', '.join(NODES)}")
    tree = SysfsTree.create(root, slots=node.slots, layout=node.layout, uevent_socket=uevent_socket)
    for slot, card in node.cards.items():
        tree.attach(slot, card)
    for slot, amount in node.vfs.items():
        tree.set_vfs(slot, amount)
    for slots in node.regions:
        tree.create_region(slots)
    return tree


def _gpu(number: int) -> MockDevice:
    return MockDevice(
        device_class=DeviceClass.GPU,
        vendor=0x10DE,
        device=0x2330,
        serial=f"16544220{number:05d}",
        memory_bytes=80 * _GIB,
    ).with_usual_link(_GEN5)


def _nic(number: int) -> MockDevice:
    return MockDevice(
        device_class=DeviceClass.NIC,
        vendor=0x15B3,
        device=0x1021,
        serial=f"MT2304XZ{number:04d}",
    ).with_usual_link(_GEN5)


def _nvme(number: int) -> MockDevice:
    return MockDevice(
        device_class=DeviceClass.NVME,
        vendor=0x144D,
        device=0xA824,
        serial=f"S4YNNE0N80{number:04d}",
        memory_bytes=_NVME_BYTES,
    ).with_usual_link()


def _cxl(number: int) -> MockDevice:
    return MockDevice(
        device_class=DeviceClass.CXL_MEMORY,
        vendor=0x1B00,
        device=0xC001,
        serial=f"{0x352000000 + number:#x}",
        memory_bytes=2 * _GIB,
    ).with_usual_link(_GEN5)


_FPGA = MockDevice(
    device_class=DeviceClass.FPGA,
    vendor=0x8086,
    device=0x0B2B,
    serial="00-0a-35-00-00-00-00-01",
    total_vfs=8,
    vf_device=0x0B2C,
    vf_driver="dfl-pci",
).with_usual_link()
_FPGA_WITHOUT_VFS = MockDevice(
    device_class=DeviceClass.FPGA, vendor=0x10EE, device=0x5004, serial="00-0a-35-00-00-00-00-02"
).with_usual_link()

NODES: Mapping[str, Node] = {
    "gpu-node": Node(
        summary="two sockets, each with a root complex and a switch: 8 GPUs and 4 NICs",
        layout="two-sockets",
        cards={
            **{slot: _gpu(slot) for slot in (1, 2, 3, 4, 7, 8, 9, 10)},
            **{slot: _nic(slot) for slot in (5, 6, 11, 12)},
        },
    ),
    "fpga-node": Node(
        summary=f"an FPGA with {_VFS} of 8 virtual functions, another without SR-IOV, three empty slots",
        layout="root-ports",
        cards={1: _FPGA, 2: _FPGA_WITHOUT_VFS},
        vfs={1: _VFS},
    ),
    "nvme-node": Node(
        summary="four NVMe disks at root ports, one empty slot",
        layout="root-ports",
        cards={slot: _nvme(slot) for slot in range(1, 5)},
    ),
    "cxl-node": Node(
        summary="a CXL switch with three memory devices, two of them interleaved in an online region; an empty slot",
        layout="cxl-switch",
        cards={slot: _cxl(slot) for slot in (1, 2, 3)},
        regions=((1, 2),),
    ),
    "switch-node": Node(
        summary="a PCIe switch with an NVMe disk, a GPU and two empty slots",
        layout="one-switch",
        cards={1: _nvme(1), 2: _gpu(2)},
    ),
    "empty-node": Node(summary="four empty hot-plug slots", layout=layouts.PLAIN, slots=4),
}
