"""The saved state of a simulated fabric, and its file.

Real hardware does not forget: a device reported as attached is attached after a crash too. So the file is replaced
atomically before any operation is reported as done.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from drawbar.fabric import contract, errors

Request = (
    contract.AttachRequest
    | contract.DetachRequest
    | contract.CreateSliceRequest
    | contract.DeleteSliceRequest
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """An operation with its request.

    Attributes:
        operation: the operation's last state.
        attach: the request of an attach.
        detach: the request of a detach.
        create: the request to create a slice.
        delete: the request to delete a slice.
        device_id: the device; for a creation, the carved device.
        host_id: the host; empty for creation and deletion of slices.
        port_id: the port; None if there was nothing to do.
    """

    operation: contract.Operation
    attach: contract.AttachRequest | None = None
    detach: contract.DetachRequest | None = None
    create: contract.CreateSliceRequest | None = None
    delete: contract.DeleteSliceRequest | None = None
    device_id: str
    host_id: str
    port_id: str | None = None

    @property
    def request(self) -> Request:
        """Return the request, of any kind."""
        request = self.attach or self.detach or self.create or self.delete
        if request is None:
            raise ValueError(f"the record of {self.operation.id} has no request")
        return request


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The whole state outside the configuration.

    Attributes:
        counter: the number of the last operation.
        connections: the connections of attached devices, by device id.
        revisions: the number of changes, by device id.
        records: the remembered operations, oldest first.
        failures_used: the number of hits, by index in the list of faults.
        failures_seen: the number of matching calls, by index in the list of faults.
        added: the devices and slices added at run time, as free devices.
        removed: the ids of removed devices of the configuration.
        healths: the changed healths, by device id.
        faulty_ports: the (host id, port id) of faulty ports.
    """

    counter: int = 0
    connections: Mapping[str, contract.Connection] = field(default_factory=dict)
    revisions: Mapping[str, int] = field(default_factory=dict)
    records: tuple[Record, ...] = ()
    failures_used: Mapping[str, int] = field(default_factory=dict)
    failures_seen: Mapping[str, int] = field(default_factory=dict)
    added: tuple[contract.Device, ...] = ()
    removed: tuple[str, ...] = ()
    healths: Mapping[str, contract.Health] = field(default_factory=dict)
    faulty_ports: tuple[tuple[str, str], ...] = ()


class StateFile:
    """A file with one complete state; it may be absent."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def load(self) -> State:
        """Return the saved state, or an empty one if there is no file.

        Raises:
            InvalidConfiguration: the file cannot be read.
        """
        if self._path is None or not self._path.exists():
            return State()
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=State)
        except (OSError, msgspec.DecodeError) as error:
            raise errors.InvalidConfiguration(
                [f"the state of the fabric {self._path} cannot be read ({error}); remove it to start afresh"]
            ) from error

    def save(self, make: Callable[[], State]) -> None:
        """Replace the saved state by a new one; without a file, none is made.

        It survives a crash of the process; a power loss may restore the previous one.
        """
        if self._path is None:
            return
        fresh = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        fresh.write_bytes(msgspec.json.encode(make()))
        fresh.replace(self._path)
