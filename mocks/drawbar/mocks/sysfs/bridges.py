"""Host bridges and the ports of root complexes and switches; each Kobject leads to a bus."""

import enum

from drawbar.mocks.sysfs import aer, config_space, functions
from drawbar.mocks.sysfs.functions import Ids, Locality
from drawbar.mocks.sysfs.kobjects import Kobject, readable, trigger

_BRIDGE_CLASS = 0x060400
QEMU_ROOT_PORT = Ids(vendor=0x1B36, device=0x000C, class_code=_BRIDGE_CLASS, subsystem=(0x1B36, 0))
QEMU_CXL_ROOT_PORT = Ids(vendor=0x8086, device=0x7075, class_code=_BRIDGE_CLASS, subsystem=(0x8086, 0))
ROOT_PORT = Ids(vendor=0x8086, device=0x352A, class_code=_BRIDGE_CLASS, subsystem=(0x8086, 0))
SWITCH = Ids(vendor=0x1000, device=0xC030, class_code=_BRIDGE_CLASS, subsystem=(0x1000, 0xC030))
_HOST_BRIDGE = Ids(vendor=0x8086, device=0x29C0, class_code=0x060000)


class PortKind(enum.Enum):
    """The kind of a PCI Express port; the value is its capabilities register (7.5.3.2), slot bit included."""

    ROOT = 0x0142
    UPSTREAM = 0x0052
    DOWNSTREAM = 0x0162


def host_bridge(root: str, locality: Locality) -> Kobject:
    """Return the host bridge of the root complex whose directory is `root` (`devices/pci0000:00`)."""
    address = root.rpartition("/pci")[2] + ":00.0"
    ids = _HOST_BRIDGE
    config = config_space.host_bridge(vendor=ids.vendor, device=ids.device)
    return Kobject(
        path=f"{root}/{address}",
        subsystem="pci",
        subsystem_path="bus/pci",
        uevent=functions.uevent(ids, address),
        files=functions.files(ids, config=config, locality=locality),
    )


def volume_management(path: str, locality: Locality) -> Kobject:
    """Return Intel's VMD: an endpoint with a root complex of its own behind it."""
    address = path.rpartition("/")[2]
    ids = Ids(vendor=0x8086, device=0x28C0, class_code=0x010400)
    config = config_space.endpoint(
        vendor=ids.vendor,
        device=ids.device,
        class_code=ids.class_code,
        subsystem=ids.subsystem,
        serial_number=None,
    )
    return Kobject(
        path=path,
        subsystem="pci",
        subsystem_path="bus/pci",
        uevent=functions.uevent(ids, address),
        files=functions.files(ids, config=config, locality=locality),
        driver="vmd",
    )


def port(
    path: str,
    kind: PortKind,
    *,
    ids: Ids,
    buses: tuple[int, int],
    link: tuple[float, int],
    locality: Locality,
    slot: int | None = None,
) -> Kobject:
    """Return a port.

    Args:
        path: its directory below the root of the tree.
        kind: its position in the hierarchy.
        ids: its vendor, device and class ids.
        buses: the bus behind it, and the highest bus number below it.
        link: its maximum speed in GT/s and its number of lanes.
        locality: the locality of its root complex.
        slot: the number of the slot behind it, in the port and the firmware; None without a slot.
    """
    address = path.rpartition("/")[2]
    secondary, subordinate = buses
    fastest, widest = link
    config = config_space.bridge(
        vendor=ids.vendor,
        device=ids.device,
        capability=kind.value,
        buses=(int(address.split(":")[1], 16), secondary, subordinate),
        slot=slot,
    )
    return Kobject(
        path=path,
        subsystem="pci",
        subsystem_path="bus/pci",
        uevent=functions.uevent(ids, address),
        files={
            **functions.files(ids, config=config, locality=locality),
            **functions.link_files(
                current=(functions.speed_text(fastest), str(widest)), fastest_gts=fastest, widest=widest
            ),
            **aer.files(root_port=kind is PortKind.ROOT),
            **({} if slot is None else {"label": readable(f"SLOT {slot}")}),
            "reset_subordinate": trigger(),
            "resource": functions.resource({}, functions.windows(secondary, subordinate)),
            "secondary_bus_number": readable(str(secondary)),
            "subordinate_bus_number": readable(str(subordinate)),
        },
        driver="pcieport",
    )
