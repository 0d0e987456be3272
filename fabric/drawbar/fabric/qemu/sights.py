"""What is seen of the virtual machines at one moment: values, parsed once from QEMU's answers.

QEMU keeps everything there is to know. The device that we add has our own id, `drawbar.<device>`. Beside it stands a
note, an object of the kind `authz-simple` that nothing refers to and whose one string says which request made the
connection, and the caller's mark. Files are opened by objects and block nodes that are numbered, since some versions
of QEMU (7.2 for CXL memory) never let go of one that a device has used.
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
"""The models of QEMU that a device can be plugged into while the guest runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupant:
    """What is plugged into a port.

    Attributes:
        path: QEMU's path of the device.
        device_id: the pool's id; None for a device that is not of the pool.
        note: what stands beside it.
    """

    path: str
    device_id: str | None = None
    note: Note = field(default_factory=Note)


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """A hot-plug port of a virtual machine.

    Attributes:
        id: QEMU's id of the port and of the bus behind it.
        cxl: whether CXL devices go here, and nothing else.
        slot: the number of the physical slot, which the guest's kernel shows too.
        occupants: everything on the bus behind it.
    """

    id: str
    cxl: bool = False
    slot: int | None = None
    occupants: tuple[Occupant, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A virtual machine.

    Attributes:
        id: of the configuration.
        running: whether there is a QEMU; without one it has no devices.
        uuid: of the machine, as its firmware shows it; None when none was given to QEMU.
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
        """The port of that id."""
        return next((port for port in self.ports if port.id == port_id), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a device of the pool is."""

    host: Host
    port: Port
    occupant: Occupant


def places(hosts: Iterable[Host]) -> Mapping[str, Place]:
    """Where every attached device of the pool is. One that is seen twice is where it is seen first."""
    by_device: dict[str, Place] = {}
    for host in hosts:
        for port in host.ports:
            for occupant in port.occupants:
                if occupant.device_id is not None:
                    by_device.setdefault(occupant.device_id, Place(host=host, port=port, occupant=occupant))
    return by_device


def qemu_id(device_id: str) -> str:
    """QEMU's id of a device of the pool."""
    return f"{PREFIX}{device_id}"


def device_id(qemu_path: str) -> str | None:
    """The pool's id in a path or id of QEMU; None if it is no device of ours."""
    name = qemu_path.rpartition("/")[2]
    rest = name.removeprefix(PREFIX)
    return rest if rest != name and rest and "." not in rest else None


def note_id(device_id: str) -> str:
    """The id of the note beside a device."""
    return f"{PREFIX}{device_id}.{NOTE}"


def node_prefix(device_id: str) -> str:
    """How the names of a device's block nodes begin; QEMU allows 31 characters."""
    return f"{NODE_PREFIX}{hashlib.sha256(device_id.encode()).hexdigest()[:12]}-"
