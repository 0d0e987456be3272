"""What the methods of attaching have in common: what they read, and the one request that an attach or detach becomes."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Protocol

from drawbar.fabric import contract, errors
from drawbar.fabric.redfish import documents, restoring
from drawbar.fabric.redfish.reading import Reader

NAMED_MAX = 5
"""How many devices or hosts are named in one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """An action of a resource; it carries the ETag in its body.

    Attributes:
        resource_uri: of the resource.
        etag_parameter: the name of the parameter.
    """

    resource_uri: str
    etag_parameter: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request that changes the fabric.

    Attributes:
        method: of HTTP.
        uri: of the resource, collection or action.
        body: None without one.
        etag: the resource must not have changed since it was read with this ETag.
        is_shared: other devices of the host are in the resource too; it is verified that they stay.
        hint: what may be the reason if the service refuses it; empty where nothing is known.
        change: the array that the request sets; None for a request without one, after which nothing is put back.
        action: that the request is; None for a change of the resource itself.
    """

    method: str
    uri: str
    body: documents.Json | None = None
    etag: str | None = None
    is_shared: bool = False
    hint: str = ""
    change: restoring.Change | None = None
    action: Action | None = None

    def with_etag(self, etag: str | None) -> tuple[documents.Json | None, str | None]:
        """Return the body and the header If-Match of the request that carries this ETag."""
        if self.action is None or self.body is None:
            return self.body, etag
        return ({**self.body, self.action.etag_parameter: etag} if etag else self.body), None


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The fabric as a method reads it, in terms of the contract.

    Attributes:
        devices: with their connections, by id.
        hosts: without the ports that are only reserved, by id.
        oddities: one sentence for everything that is listed in a way that cannot be used.
        unread: by URI, a sentence for everything that the service failed to show; what depends on it is left out.
    """

    devices: Mapping[str, contract.Device] = field(default_factory=dict)
    hosts: Mapping[str, contract.Host] = field(default_factory=dict)
    oddities: tuple[str, ...] = ()
    unread: Mapping[str, str] = field(default_factory=dict)


class Method(Protocol):
    """How devices and hosts are connected by one kind of service. Its plans are of what was read last."""

    async def read(self, reader: Reader) -> None:
        """Read all that there is.

        Raises:
            FabricError: it cannot be read.
        """
        ...

    async def read_connections(self, reader: Reader) -> None:
        """Read anew only what an attach or detach changes.

        Raises:
            FabricError: it cannot be read.
        """
        ...

    def view(self) -> View:
        """Return what was read."""
        ...

    def device_ids(self, uris: Set[str]) -> frozenset[str]:
        """Return the devices that these URIs stand for: their own, or those of a connection of theirs."""
        ...

    def attach(self, request: contract.AttachRequest, device_id: str, port_id: str) -> Call:
        """Return the request that connects a device.

        Raises:
            FabricError: it cannot be connected as things are.
        """
        ...

    def detach(self, request: contract.DetachRequest, device_id: str) -> Call | None:
        """Return the request that disconnects a device, or None where it is not connected.

        Raises:
            FabricError: it cannot be disconnected as things are.
        """
        ...


def set_array(document: documents.Document, change: restoring.Change) -> Call:
    """Return the request that sets an array which several devices share."""
    return Call(
        method="PATCH",
        uri=document.uri,
        body=change.body(),
        etag=document.etag,
        is_shared=True,
        change=change,
    )


def gone(kind: str, name: str) -> errors.Aborted:
    """Return the error of a device or host that was removed while an operation for it began."""
    return errors.Aborted(f"the {kind} {name} was removed from the fabric meanwhile; read the fabric again")


def describe_unreached(
    devices: Mapping[str, contract.Device], hosts: Mapping[str, contract.Host], kind: str
) -> tuple[str, ...]:
    """Return a sentence for each group of devices that some hosts cannot have.

    Args:
        devices: by id, with their reachability groups.
        hosts: likewise.
        kind: of the groups, such as "resource zone".
    """
    alike: dict[frozenset[str], list[str]] = {}
    for device in devices.values():
        if device.reach_groups:
            alike.setdefault(device.reach_groups, []).append(device.id)
    sentences = []
    for groups, device_ids in sorted(alike.items(), key=lambda entry: entry[1]):
        beyond = [host.id for host in hosts.values() if not contract.reaches(groups, host.reach_groups)]
        if beyond:
            verb = "is" if len(device_ids) == 1 else "are"
            sentences.append(f"{name_some(device_ids)} {verb} in no {kind} of {name_some(beyond)}")
    return tuple(sentences)


def name_some(names: Sequence[str]) -> str:
    """Return the first few of the names in words, with a count of the rest."""
    rest = len(names) - NAMED_MAX
    return f"{', '.join(names[:NAMED_MAX])}{f' and {rest} more' if rest > 0 else ''}"


def port_id(origin: str, device_id: str) -> str:
    """Return the id of the port with a device, below a host or an endpoint of it.

    The services know one port with many devices, the contract one device a port.
    """
    return f"{origin}/{device_id}"


def ports(origin: str, device_ids: Sequence[str], *, most: int) -> tuple[contract.Port, ...]:
    """Return the ports with devices, and as many free ones as there may be more."""
    used = [
        contract.Port(id=port_id(origin, device_id), state=contract.PortState.USED, device_id=device_id)
        for device_id in device_ids
    ]
    free = [
        contract.Port(id=port_id(origin, f"free-{number}"), state=contract.PortState.FREE)
        for number in range(1, most - len(used) + 1)
    ]
    return (*used, *free)
