"""What is done to a virtual machine, from what QEMU shows: a closed union of actions, one QMP command each; pure.

The invariant: no plan plugs a device into a port that is not seen empty. A plan to attach clears what an earlier life
of the device left behind, then brings the note before the device: so a device of the pool that is seen with a note is
seen with the note it was attached with.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from drawbar.fabric import errors
from drawbar.fabric.notes import Note
from drawbar.fabric.qemu import pool, sights


@dataclass(frozen=True, slots=True, kw_only=True)
class AddNote:
    """Puts the note beside a device that is about to come."""

    id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AddMemory:
    """Maps a file as memory; it is made if it is missing."""

    id: str
    path: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AddNode:
    """Opens a file as a raw disk."""

    name: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AddDevice:
    """Plugs a device in; QEMU notifies the guest.

    Attributes:
        port_id: where; it must be empty, since QEMU accepts a second device and loses both.
        arguments: all that QEMU gets, the port included.
    """

    port_id: str
    arguments: Mapping[str, str | int | bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveDevice:
    """Asks the guest to let a device go; it is gone when the guest has answered."""

    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveObject:
    """Removes a note or unmaps a file; one that QEMU still holds stays."""

    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveNode:
    """Closes a file; one that QEMU still holds stays open."""

    name: str


Action = AddNote | AddMemory | AddNode | AddDevice | RemoveDevice | RemoveObject | RemoveNode


ASK_AGAIN_SECONDS = 15.0
"""A guest that has not answered by then gets a new request. Sooner, a second press of the attention button would cancel
the first: Linux waits 5 s for that."""


def attach(model: pool.Model, port: sights.Port, host: sights.Host, note: Note) -> tuple[Action, ...]:
    """Everything from what is left of an earlier life to the device in its port.

    Raises:
        Aborted: something is in the port, so that it must be looked at again.
    """
    if port.occupants:
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
    return (*left_of(model.id, host), beside, *backends, device)


def left_of(device_id: str, host: sights.Host) -> tuple[Action, ...]:
    """Removes what is left of a device that is not there; the note last, since it marks that something is left."""
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
    """Removes what is left of devices that went by themselves: what still has a note, but is not there."""
    return tuple(
        action
        for device_id in device_ids
        if device_id not in attached and device_id not in busy and sights.note_id(device_id) in host.objects
        for action in left_of(device_id, host)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Ask the guest to let the device go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """It is under way: look again after an event, or a little later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The device is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUp:
    """The guest does not let it go."""

    error: errors.FabricError


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a detach is; all times on one clock, in seconds.

    Attributes:
        deadline: when it is given up.
        asked: when the guest was last asked with effect; None if it was not, or was busy.
        refused: the guest said that it does not let the device go.
    """

    deadline: float
    asked: float | None = None
    refused: bool = False


def detach(device_id: str, progress: Progress, now: float, *, there: bool) -> Ask | Wait | Done | GiveUp:
    """The next step of a detach."""
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
    """What a device needs beside itself, and the properties for that."""
    match model:
        case pool.Nvme(serial=serial):
            name = _unused(sights.node_prefix(model.id), host.nodes)
            return (AddNode(name=name, path=model.file),), {"drive": name, "serial": serial}
        case pool.CxlMemory(serial=serial):
            memory = _unused(f"{sights.PREFIX}{model.id}.memory-", host.objects)
            labels = _unused(f"{sights.PREFIX}{model.id}.labels-", host.objects)
            return (
                AddMemory(id=memory, path=model.file, size_bytes=model.size_mib * pool.MIB),
                AddMemory(id=labels, path=model.labels_file, size_bytes=model.labels_mib * pool.MIB),
            ), {"memdev": memory, "lsa": labels, "sn": serial}
        case pool.SharedMemory():
            memory = _unused(f"{sights.PREFIX}{model.id}.memory-", host.objects)
            add = AddMemory(id=memory, path=model.file, size_bytes=model.size_mib * pool.MIB)
            return (add,), {"memdev": memory}
        case pool.E1000e(mac=mac) | pool.Igb(mac=mac):
            return (), {"mac": mac}
        case pool.Edu():
            return (), {}


def _unused(prefix: str, names: Set[str]) -> str:
    """The first name that is not there: what QEMU never lets go of keeps its name."""
    numbers = (f"{prefix}{number}" for number in range(len(names) + 1))
    return next(name for name in numbers if name not in names)
