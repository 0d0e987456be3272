"""The actions on a virtual machine, planned from QEMU's state: a closed union, one QMP command each; pure.

The invariant: no plan plugs a device into a port that is not empty. An attach first clears the remains of the
device's earlier connections, then adds the note before the device. So a device of the pool with a note always has the
note of its attach.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from drawbar.fabric import errors
from drawbar.fabric.notes import Note
from drawbar.fabric.qemu import pool, sights


@dataclass(frozen=True, slots=True, kw_only=True)
class AddNote:
    """Add the note of a device before the device."""

    id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AddMemory:
    """Map a file as memory; QEMU creates a missing file."""

    id: str
    path: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AddNode:
    """Open a file as a raw disk."""

    name: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AddDevice:
    """Plug a device in; QEMU notifies the guest.

    Attributes:
        port_id: the port; it must be empty, since QEMU accepts a second device and loses both.
        arguments: all arguments for QEMU, the port included.
    """

    port_id: str
    arguments: Mapping[str, str | int | bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveDevice:
    """Ask the guest to release a device; it is gone after the guest's answer."""

    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveObject:
    """Remove a note or unmap a file; an object in use by QEMU stays."""

    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveNode:
    """Close a file; a file in use by QEMU stays open."""

    name: str


Action = AddNote | AddMemory | AddNode | AddDevice | RemoveDevice | RemoveObject | RemoveNode


ASK_AGAIN_SECONDS = 15.0
"""A guest that has not answered by then gets a new request. Sooner, a second press of the attention button would cancel
the first: Linux waits 5 s for that."""


def attach(model: pool.Model, port: sights.Port, host: sights.Host, note: Note) -> tuple[Action, ...]:
    """Return the actions of an attach: remove earlier remains, then plug the device into its port.

    Raises:
        Aborted: the port is occupied, so read the machine again.
    """
    if port.port_devices:
        raise errors.Aborted(f"port {port.id} of host {host.id} was taken by something else; read it again")
    backends, arguments = _backends(model, host)
    device = AddDevice(
        port_id=port.id,
        arguments={
            **model.properties,
            "driver": pool.driver(model),
            "id": sights.qemu_id(model.id),
            "bus": port.id,
            **arguments,
        },
    )
    beside = AddNote(id=sights.note_id(model.id), text=note.text())
    return (*list_remains(model.id, host), beside, *backends, device)


def list_remains(device_id: str, host: sights.Host) -> tuple[Action, ...]:
    """Return the actions that remove an absent device's remains.

    The note comes last, since it marks that there are remains.
    """
    own = f"{sights.PREFIX}{device_id}."
    note = sights.note_id(device_id)
    objects = sorted(name for name in host.objects if name.startswith(own) and name != note)
    nodes = sorted(name for name in host.nodes if name.startswith(sights.node_prefix(device_id)))
    return (
        *(RemoveObject(id=name) for name in objects),
        *(RemoveNode(name=name) for name in nodes),
        *((RemoveObject(id=note),) if note in host.objects else ()),
    )


def tidy(
    device_ids: Iterable[str], host: sights.Host, attached: Set[str], busy: Set[str]
) -> tuple[Action, ...]:
    """Return the actions for devices that are gone without a detach: they still have a note."""
    return tuple(
        action
        for device_id in device_ids
        if device_id not in attached and device_id not in busy and sights.note_id(device_id) in host.objects
        for action in list_remains(device_id, host)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Ask the guest to release the device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """The release is in progress: read again after an event, or a little later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The device is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUp:
    """The guest does not release the device."""

    error: errors.FabricError


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of a detach; all times on one clock, in seconds.

    Attributes:
        deadline: the end of all attempts.
        asked: the time of the last effective request to the guest; None if there was none, or the guest was busy.
        refused: whether the guest has refused to release the device.
    """

    deadline: float
    asked: float | None = None
    refused: bool = False


def detach(device_id: str, progress: Progress, now: float, *, there: bool) -> Ask | Wait | Done | GiveUp:
    """Return the next step of a detach."""
    if not there:
        return Done()
    if progress.refused:
        return GiveUp(
            error=errors.FailedPrecondition(
                f"the guest does not let device {device_id} go; release it there and try again",
                reason="GUEST_REFUSED",
                retryable=True,
            )
        )
    if now >= progress.deadline:
        return GiveUp(
            error=errors.DeadlineExceeded(
                f"the guest has not let device {device_id} go in time; power its slot off there and try again",
                reason="GUEST_SILENT",
            )
        )
    if progress.asked is None or now - progress.asked >= ASK_AGAIN_SECONDS:
        return Ask()
    return Wait()


def _backends(
    model: pool.Model, host: sights.Host
) -> tuple[tuple[Action, ...], Mapping[str, str | int | bool]]:
    """Return the actions that prepare a device's backends, and the properties that refer to them."""
    match model:
        case pool.Nvme(serial=serial):
            name = _find_unused_name(sights.node_prefix(model.id), host.nodes)
            return (AddNode(name=name, path=model.file),), {"drive": name, "serial": serial}
        case pool.CxlMemory(serial=serial):
            memory = _find_unused_name(f"{sights.PREFIX}{model.id}.memory-", host.objects)
            labels = _find_unused_name(f"{sights.PREFIX}{model.id}.labels-", host.objects)
            return (
                AddMemory(id=memory, path=model.file, size_bytes=model.size_mib * pool.MIB),
                AddMemory(id=labels, path=model.labels_file, size_bytes=model.labels_mib * pool.MIB),
            ), {"memdev": memory, "lsa": labels, "sn": serial}
        case pool.SharedMemory():
            memory = _find_unused_name(f"{sights.PREFIX}{model.id}.memory-", host.objects)
            add = AddMemory(id=memory, path=model.file, size_bytes=model.size_mib * pool.MIB)
            return (add,), {"memdev": memory}
        case pool.E1000e(mac=mac) | pool.Igb(mac=mac):
            return (), {"mac": mac}
        case pool.Edu():
            return (), {}


def _find_unused_name(prefix: str, names: Set[str]) -> str:
    """Return the first unused name; an object that QEMU never releases keeps its name."""
    numbers = (f"{prefix}{number}" for number in range(len(names) + 1))
    return next(name for name in numbers if name not in names)
