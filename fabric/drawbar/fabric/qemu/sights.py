"""The visible state of the virtual machines at one moment: values, parsed once from QEMU's answers.

QEMU keeps the whole state. An added device has our own id, `drawbar.<device>`. It has a note: an unused object of the
kind `authz-simple`, whose one string holds the request of the connection and the caller's mark. Objects and block
nodes that open files are numbered, since some versions of QEMU (7.2 for CXL memory) never release one that a device
has used.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from drawbar.fabric.notes import Note

PREFIX = "drawbar."
NODE_PREFIX = "drawbar-"
NOTE = "note"

CXL_PORTS = frozenset({"cxl-rp", "cxl-downstream"})
PORTS = CXL_PORTS | {"pcie-root-port", "xio3130-downstream"}
"""QEMU's models of ports for hot-plug."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PortDevice:
    """A device in a port.

    Attributes:
        path: QEMU's path of the device.
        device_id: the pool's id; None for a device outside the pool.
        note: the device's note.
    """

    path: str
    device_id: str | None = None
    note: Note = field(default_factory=Note)


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """A hot-plug port of a virtual machine.

    Attributes:
        id: QEMU's id of the port and of the bus behind it.
        cxl: whether the port takes CXL devices, and only these.
        slot: the number of the physical slot, as in the guest's kernel.
        port_devices: all devices on the bus behind it.
    """

    id: str
    cxl: bool = False
    slot: int | None = None
    port_devices: tuple[PortDevice, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A virtual machine.

    Attributes:
        id: of the configuration.
        running: whether QEMU runs; otherwise there are no devices.
        uuid: of the machine, as its firmware shows it; None if QEMU was given none.
        ports: in QEMU's order of ids.
        objects: ids of our own objects (files of memory, notes).
        nodes: names of our own block nodes.
    """

    id: str
    running: bool = True
    uuid: str | None = None
    ports: tuple[Port, ...] = ()
    objects: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()

    def port(self, port_id: str) -> Port | None:
        """Return the port with that id, or None."""
        return next((port for port in self.ports if port.id == port_id), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """The location of an attached device of the pool."""

    host: Host
    port: Port
    port_device: PortDevice


def find_locations(hosts: Iterable[Host]) -> Mapping[str, Location]:
    """Return the locations of the attached devices of the pool, by id; the first one counts."""
    by_device: dict[str, Location] = {}
    for host in hosts:
        for port in host.ports:
            for port_device in port.port_devices:
                if port_device.device_id is not None:
                    by_device.setdefault(
                        port_device.device_id, Location(host=host, port=port, port_device=port_device)
                    )
    return by_device


def qemu_id(device_id: str) -> str:
    """Return QEMU's id of a device of the pool."""
    return f"{PREFIX}{device_id}"


def device_id(qemu_path: str) -> str | None:
    """Return the pool's id in a path or id of QEMU, or None for a foreign device."""
    name = qemu_path.rpartition("/")[2]
    rest = name.removeprefix(PREFIX)
    return rest if rest != name and rest and "." not in rest else None


def note_id(device_id: str) -> str:
    """Return the id of a device's note."""
    return f"{PREFIX}{device_id}.{NOTE}"


def node_prefix(device_id: str) -> str:
    """Return the prefix for the names of a device's block nodes; QEMU allows 31 characters."""
    return f"{NODE_PREFIX}{hashlib.sha256(device_id.encode()).hexdigest()[:12]}-"
