"""The layouts of mocked hosts: root complexes, switches and slots, by name.

A layout is a plain description, so any process can rebuild it from its name and number of slots.

Limits: no other devices, no ACPI companions of PCI devices, no IOMMU, no `pci_bus` folders, no services of ports.
"""

import dataclasses
from collections.abc import Callable, Mapping

from drawbar.mocks.sysfs import bridges, cxl, errors, kobjects, nvdimm
from drawbar.mocks.sysfs.bridges import PortKind
from drawbar.mocks.sysfs.functions import Ids, Locality
from drawbar.mocks.sysfs.kobjects import Kobject, readable
from drawbar.mocks.sysfs.slots import Slot

PLAIN = "plain"
MEMORY_BLOCK_BYTES = 1 << 28
ONLINE_POLICY = "devices/system/memory/auto_online_blocks"
MOST_SLOTS = 224  # 28 device numbers of 8 functions each; every slot is a bus of its own
_FIRST_PORT, _PORT_DEVICES = 3, 28
_GEN4, _GEN5 = 16.0, 32.0
_DEBIAN_12, _BACKPORTS = (6, 1), (6, 12)
_SOCKETS = (
    Locality(node=0, cpulist="0-31", cpumap="00000000,ffffffff"),
    Locality(node=1, cpulist="32-63", cpumap="ffffffff,00000000"),
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A host with empty slots.

    Attributes:
        objects: every device, parents first.
        slots: the slots by number.
        cxl_ports: the CXL ports from the host bridge down to the one above the endpoints.
        nodes: its NUMA nodes with processors; empty if the kernel has none.
        linux: the version of its kernel; it decides the CXL attributes.
    """

    objects: tuple[Kobject, ...]
    slots: Mapping[int, Slot]
    cxl_ports: tuple[cxl.Port, ...]
    nodes: tuple[Locality, ...] = ()
    linux: tuple[int, int] = cxl.VOLATILE_REGIONS

    @property
    def says_mode(self) -> bool:
        """Return true if a CXL region shows its mode."""
        return self.linux >= cxl.VOLATILE_REGIONS

    @property
    def first_endpoint(self) -> int:
        """Return the number of the first CXL endpoint; the ports above have the lower numbers."""
        return len(self.cxl_ports) + 1

    def buses(self, *, beside: Slot) -> frozenset[int]:
        """Return the bus numbers used by everything except this slot."""
        inner = {int(each.name.split(":")[1], 16) for each in self.objects if each.subsystem == "pci"}
        return frozenset(inner | {slot.bus for slot in self.slots.values() if slot != beside})

    def files(self) -> dict[str, kobjects.Attribute]:
        """Return the files without a device, by path below the root."""
        files = {
            "devices/system/memory/block_size_bytes": readable(f"{MEMORY_BLOCK_BYTES:x}"),
            ONLINE_POLICY: kobjects.writable("online"),
            "module/pciehp/uevent": kobjects.trigger(),
            "bus/pci/rescan": kobjects.trigger(),
        }
        for bus in ("pci", "cxl", "dax"):
            files[f"bus/{bus}/drivers_probe"] = kobjects.trigger()
            files[f"bus/{bus}/drivers_autoprobe"] = kobjects.writable("1")
        for driver in ("device_dax", "kmem"):
            for name in ("bind", "new_id", "remove_id", "uevent", "unbind"):
                files[f"bus/dax/drivers/{driver}/{name}"] = kobjects.trigger()
        if self.nodes:
            numbers = f"0-{len(self.nodes) - 1}" if len(self.nodes) > 1 else "0"
            files |= {f"devices/system/node/{name}": readable(numbers) for name in ("online", "has_cpu")}
        return files


def find_layout(name: str, slots: int) -> Layout:
    """Return the layout of the name; only `plain` has a variable number of slots.

    Raises:
        ImpossibleWorld: there is no such layout, or it cannot have so many slots.
    """
    if name == PLAIN:
        return plain(slots)
    if (make := _NAMED.get(name)) is None:
        raise errors.ImpossibleWorld(f"there is no layout {name}: choose {', '.join([PLAIN, *_NAMED])}")
    return make()


def plain(slots: int) -> Layout:
    """Return one root complex whose root ports are the slots 1 to `slots`, as on QEMU's q35."""
    if not 0 <= slots <= MOST_SLOTS:
        raise errors.ImpossibleWorld(f"a mocked host has 0 to {MOST_SLOTS} slots, not {slots}")
    root = "devices/pci0000:00"
    ports, made = [], {}
    for number in range(1, slots + 1):
        function, device = divmod(number - 1, _PORT_DEVICES)
        path = f"{root}/0000:00:{_FIRST_PORT + device:02x}.{function}"
        ports.append(
            _port(
                path,
                PortKind.ROOT,
                bridges.QEMU_ROOT_PORT,
                buses=(number, number),
                speed_gts=_GEN4,
                locality=Locality(),
                slot=number,
            )
        )
        made[number] = Slot(number=number, port=path, bus=number, cxl_port=cxl.HOST_BRIDGE_PORT)
    # A simplification: on this host every root port also leads to the CXL host bridge.
    cxl_port = cxl.host_bridge_port({0: root})
    return Layout(
        objects=(
            bridges.host_bridge(root, Locality()),
            *ports,
            *cxl.objects(uid=0, ports=(cxl_port,)),
            *nvdimm.bridge(),
        ),
        slots=made,
        cxl_ports=(cxl_port,),
    )


def _lab(linux: tuple[int, int] = _DEBIAN_12) -> Layout:
    """Return a guest of the QEMU lab: root ports 1 to 4, and CXL root ports from 101.

    Debian 12's QEMU has one CXL root port, whose cards wait for power. The newer QEMU has two.
    """
    made = plain(4)
    count = 1 if linux == _DEBIAN_12 else 2
    ports = {
        101 + index: (f"devices/pci0000:40/0000:40:{index:02x}.0", 0x41 + index) for index in range(count)
    }
    cxl_port = cxl.host_bridge_port({index: path for index, (path, _) in enumerate(ports.values())})
    return dataclasses.replace(
        made,
        objects=(
            *(each for each in made.objects if each.subsystem == "pci"),
            *(
                _port(
                    path,
                    PortKind.ROOT,
                    bridges.QEMU_CXL_ROOT_PORT,
                    buses=(bus, bus),
                    speed_gts=_GEN4,
                    locality=Locality(),
                    slot=number,
                )
                for number, (path, bus) in ports.items()
            ),
            *cxl.objects(uid=64, ports=(cxl_port,), linux=linux),
            *nvdimm.bridge(),
        ),
        slots={
            **{number: dataclasses.replace(slot, ejects=True) for number, slot in made.slots.items()},
            **{
                number: Slot(
                    number=number,
                    port=path,
                    bus=bus,
                    cxl_port=cxl_port.path,
                    powers=linux != _DEBIAN_12,
                    ejects=True,
                )
                for number, (path, bus) in ports.items()
            },
        },
        cxl_ports=(cxl_port,),
        linux=linux,
    )


def _two_sockets() -> Layout:
    """Return two sockets, each with a root complex and a switch with six slots."""
    parts = [
        _make_switch("devices/pci0000:10", 0x10, _SOCKETS[0], first_slot=1, slots=6),
        _make_switch("devices/pci0000:90", 0x90, _SOCKETS[1], first_slot=7, slots=6),
    ]
    return _join_parts(parts, nodes=_SOCKETS)


def _one_switch() -> Layout:
    """Return one socket with a switch of four slots."""
    return _join_parts(
        [_make_switch("devices/pci0000:10", 0x10, _SOCKETS[0], first_slot=1, slots=4)], nodes=_SOCKETS[:1]
    )


def _root_ports() -> Layout:
    """Return one socket with five root ports, each a slot."""
    root = "devices/pci0000:40"
    objects, slots = [bridges.host_bridge(root, _SOCKETS[0])], {}
    for number in range(1, 6):
        path, bus = f"{root}/0000:40:{number:02x}.0", 0x40 + number
        objects.append(
            _port(
                path,
                PortKind.ROOT,
                bridges.ROOT_PORT,
                buses=(bus, bus),
                speed_gts=_GEN5,
                locality=_SOCKETS[0],
                slot=number,
            )
        )
        slots[number] = _make_slot(number, path, bus, _SOCKETS[0])
    return _join_parts([(objects, slots)], nodes=_SOCKETS[:1])


def _server() -> Layout:
    """Return a socket of a server with unusual numbers of slots.

    Slots 1 and 2 are at two root ports of one device, whose address is that of both slots; each has 16 buses. Slots 3
    and 4 are behind a VMD (drivers/pci/controller/vmd.c), in domain 10000. The driver amdgpu has made /dev/kfd.
    """
    root = "devices/pci0000:80"
    objects, slots = [bridges.host_bridge(root, _SOCKETS[0])], {}
    for number, bus in ((1, 0x81), (2, 0x91)):
        path = f"{root}/0000:80:03.{number}"
        objects.append(_slot_port(path, number, (bus, bus + 15)))
        slots[number] = dataclasses.replace(_make_slot(number, path, bus, _SOCKETS[0]), room=16, at_port=True)
    objects.append(bridges.volume_management(f"{root}/0000:80:05.5", _SOCKETS[0]))
    for number, bus in ((3, 0xE1), (4, 0xE2)):
        path = f"{root}/0000:80:05.5/pci10000:e0/10000:e0:{number:02x}.0"
        objects.append(_slot_port(path, number, (bus, bus)))
        slots[number] = dataclasses.replace(_make_slot(number, path, bus, _SOCKETS[0]), domain=0x10000)
    kfd = Kobject(
        path="devices/virtual/kfd/kfd",
        subsystem="kfd",
        subsystem_path="class/kfd",
        uevent={"MAJOR": "235", "MINOR": "0", "DEVNAME": "kfd"},
        files={"dev": readable("235:0")},
    )
    return _join_parts([([*objects, kfd], slots)], nodes=_SOCKETS[:1])


def _slot_port(path: str, number: int, buses: tuple[int, int]) -> Kobject:
    return bridges.port(
        path,
        PortKind.ROOT,
        ids=bridges.ROOT_PORT,
        buses=buses,
        link=(_GEN5, 16),
        locality=_SOCKETS[0],
        slot=number,
    )


def _cxl_switch() -> Layout:
    """Return a CXL host bridge with one root port, and below it a CXL switch with four slots."""
    objects, slots = _make_switch(
        "devices/pci0000:0c", 0x0C, _SOCKETS[0], first_slot=1, slots=4, root_ids=bridges.QEMU_CXL_ROOT_PORT
    )
    upper = cxl.host_bridge_port({0: slots[1].root_port})
    upstream = slots[1].port.rpartition("/")[0]
    lower = cxl.Port(
        path=f"{upper.path}/port2",
        uport=upstream,
        dports={number - 1: slot.port for number, slot in slots.items()},
    )
    behind = {number: dataclasses.replace(slot, cxl_port=lower.path) for number, slot in slots.items()}
    return _join_parts([(objects, behind)], nodes=_SOCKETS[:1], uid=12, cxl_ports=(upper, lower))


_Part = tuple[list[Kobject], dict[int, Slot]]


def _make_switch(
    root: str,
    first_bus: int,
    locality: Locality,
    *,
    first_slot: int,
    slots: int,
    root_ids: Ids = bridges.ROOT_PORT,
) -> _Part:
    """Return a root complex with a root port, a switch below it, and a slot at each of the switch's downstream ports."""
    upper, inner, first = first_bus + 1, first_bus + 2, first_bus + 3
    last = first + slots - 1
    root_port = f"{root}/0000:{first_bus:02x}:01.0"
    upstream = f"{root_port}/0000:{upper:02x}:00.0"
    objects = [
        bridges.host_bridge(root, locality),
        _port(root_port, PortKind.ROOT, root_ids, buses=(upper, last), speed_gts=_GEN5, locality=locality),
        _port(
            upstream,
            PortKind.UPSTREAM,
            bridges.SWITCH,
            buses=(inner, last),
            speed_gts=_GEN5,
            locality=locality,
        ),
    ]
    made = {}
    for index in range(slots):
        path, bus = f"{upstream}/0000:{inner:02x}:{index:02x}.0", first + index
        objects.append(
            _port(
                path,
                PortKind.DOWNSTREAM,
                bridges.SWITCH,
                buses=(bus, bus),
                speed_gts=_GEN5,
                locality=locality,
                slot=first_slot + index,
            )
        )
        made[first_slot + index] = _make_slot(first_slot + index, path, bus, locality)
    return objects, made


def _join_parts(
    parts: list[_Part], *, nodes: tuple[Locality, ...], uid: int = 0, cxl_ports: tuple[cxl.Port, ...] = ()
) -> Layout:
    objects: list[Kobject] = [_node(node) for node in nodes]
    slots: dict[int, Slot] = {}
    for added, made in parts:
        objects += added
        slots |= made
    ports = cxl_ports or (cxl.host_bridge_port({0: next(iter(slots.values())).root_port}),)
    return Layout(
        objects=(*objects, *cxl.objects(uid=uid, ports=ports), *nvdimm.bridge()),
        slots=slots,
        cxl_ports=ports,
        nodes=nodes,
    )


def _port(
    path: str,
    kind: PortKind,
    ids: Ids,
    *,
    buses: tuple[int, int],
    speed_gts: float,
    locality: Locality,
    slot: int | None = None,
) -> Kobject:
    return bridges.port(path, kind, ids=ids, buses=buses, link=(speed_gts, 16), locality=locality, slot=slot)


def _make_slot(number: int, port: str, bus: int, locality: Locality) -> Slot:
    return Slot(
        number=number,
        port=port,
        bus=bus,
        speed_gts=_GEN5,
        locality=locality,
        cxl_port=cxl.HOST_BRIDGE_PORT,
    )


def _node(locality: Locality) -> Kobject:
    return node(locality.node, cpulist=locality.cpulist, cpumap=locality.cpumap)


def node(number: int, *, cpulist: str = "", cpumap: str = "0") -> Kobject:
    """Return a NUMA node; a node with memory only has no processors."""
    return Kobject(
        path=f"devices/system/node/node{number}",
        subsystem="node",
        subsystem_path="bus/node",
        files={"cpulist": readable(cpulist), "cpumap": readable(cpumap)},
    )


_NAMED: Mapping[str, Callable[[], Layout]] = {
    "lab": _lab,
    "newer-lab": lambda: _lab(_BACKPORTS),
    "two-sockets": _two_sockets,
    "one-switch": _one_switch,
    "root-ports": _root_ports,
    "server": _server,
    "cxl-switch": _cxl_switch,
}
