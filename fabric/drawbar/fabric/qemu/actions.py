"""What can be done to a virtual machine: a closed union, one QMP command each."""

from collections.abc import Mapping
from dataclasses import dataclass


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
    """Plugs a device in; the guest is told by itself.

    Attributes:
        port_id: where; it must be empty, since QEMU accepts a second device and loses both.
        arguments: everything that QEMU is told, the port included.
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
