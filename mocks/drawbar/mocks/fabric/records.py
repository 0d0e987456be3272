"""What a simulated fabric remembers over a restart of its process, and the file that holds it.

A fabric manager's hardware does not forget: a device that was reported attached is attached after a crash too.
So the file is replaced atomically before anything is reported done.
"""

import os
from collections.abc import Mapping
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
    """One operation with the request that began it.

    Attributes:
        operation: as last changed.
        attach: the request, if it was an attach.
        detach: the request, if it was a detach.
        create: the request, if it was the creation of a slice.
        delete: the request, if it was the deletion of one.
        device_id: the device that it is about; of a creation, the one that is carved.
        host_id: the host; empty where slices are made or deleted.
        port_id: the port; None when there was nothing to do.
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
        """Whichever it was."""
        request = self.attach or self.detach or self.create or self.delete
        if request is None:
            raise ValueError(f"the record of {self.operation.id} has no request")
        return request


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Everything that is not in the configuration.

    Attributes:
        counter: the number of the last operation.
        connections: by device id, those that are attached.
        revisions: by device id, how often it changed.
        records: the remembered operations, oldest first.
        failures_used: by index in the list of faults, how many calls were hit.
        failures_seen: likewise, how many calls fitted.
        draws: by key, how often chance was asked.
        added: devices that were put in while the fabric ran, and slices that were made; free.
        removed: ids of devices of the configuration that were taken out.
        healths: by device id, those that were changed.
        faulty_ports: (host id, port id) of ports at fault.
    """

    counter: int = 0
    connections: Mapping[str, contract.Connection] = field(default_factory=dict)
    revisions: Mapping[str, int] = field(default_factory=dict)
    records: tuple[Record, ...] = ()
    failures_used: Mapping[str, int] = field(default_factory=dict)
    failures_seen: Mapping[str, int] = field(default_factory=dict)
    draws: Mapping[str, int] = field(default_factory=dict)
    added: tuple[contract.Device, ...] = ()
    removed: tuple[str, ...] = ()
    healths: Mapping[str, contract.Health] = field(default_factory=dict)
    faulty_ports: tuple[tuple[str, str], ...] = ()


class StateFile:
    """A file that always holds one whole state, or no file at all."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def load(self) -> State:
        """The state; an empty one if there is no file.

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

    def save(self, state: State) -> None:
        """Replaces the state. Survives a crash of the process; a power loss may bring the one before back."""
        if self._path is None:
            return
        fresh = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        fresh.write_bytes(msgspec.json.encode(state))
        fresh.replace(self._path)
