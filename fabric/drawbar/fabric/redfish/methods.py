"""The common part of the methods of attaching: their reading, and the one request of an attach or detach."""

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
        etag: the ETag of the reading; the resource must not have changed since.
        is_shared: whether other devices of the host are in the resource too; then they are checked afterwards.
        hint: the probable reason if the service refuses it; empty if unknown.
        change: the array that the request sets; None for a request without one, after which nothing is restored.
        action: the action of the request; None for a change of the resource itself.
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
    """A method's reading of the fabric, in terms of the contract.

    Attributes:
        devices: with their connections, by id.
        hosts: without the ports that are only reserved, by id.
        oddities: one sentence for each listed resource that cannot be used.
        unread: by URI, a sentence for each resource that the service failed to show; dependent resources are omitted.
    """

    devices: Mapping[str, contract.Device] = field(default_factory=dict)
    hosts: Mapping[str, contract.Host] = field(default_factory=dict)
    oddities: tuple[str, ...] = ()
    unread: Mapping[str, str] = field(default_factory=dict)


class Method(Protocol):
    """A way to connect devices and hosts, of one kind of service. Its plans follow from the last reading."""

    async def read(self, reader: Reader) -> None:
        """Read all resources.

        Raises:
            FabricError: they cannot be read.
        """
        ...

    async def read_connections(self, reader: Reader) -> None:
        """Read again only the resources that an attach or detach changes.

        Raises:
            FabricError: they cannot be read.
        """
        ...

    def view(self) -> View:
        """Return the last reading."""
        ...

    def device_ids(self, uris: Set[str]) -> frozenset[str]:
        """Return the ids of the devices of these URIs: the devices' own, or those of their connections."""
        ...

    def attach(self, request: contract.AttachRequest, device_id: str, port_id: str) -> Call:
        """Return the request that connects a device.

        Raises:
            FabricError: it cannot be connected as things are.
        """
        ...

    def detach(self, request: contract.DetachRequest, device_id: str) -> Call | None:
        """Return the request that disconnects a device, or None if it is not connected.

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


def check_read(view: View, device_id: str | None) -> None:
    """Refuse to judge a device that is not shown while a part of the service cannot be read.

    Raises:
        Unavailable: it may be there, and attached.
    """
    if device_id is not None and view.unread and device_id not in view.devices:
        raise errors.Unavailable(
            f"device {device_id} is not listed, and the Redfish service cannot show all of its parts "
            f"({next(iter(view.unread.values()))}); look at the service",
            reason="NOT_READ",
        )


def build_gone_error(kind: str, name: str) -> errors.Aborted:
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
    """Return the id of the port with a device, below a host or one of its endpoints.

    The services have ports with many devices, the contract has one device for each port.
    """
    return f"{origin}/{device_id}"


def ports(origin: str, device_ids: Sequence[str], *, most: int) -> tuple[contract.Port, ...]:
    """Return the ports with devices, and free ones up to `most`."""
    used = [
        contract.Port(id=port_id(origin, device_id), state=contract.PortState.USED, device_id=device_id)
        for device_id in device_ids
    ]
    free = [
        contract.Port(id=port_id(origin, f"free-{number}"), state=contract.PortState.FREE)
        for number in range(1, most - len(used) + 1)
    ]
    return (*used, *free)
