"""The interface of the methods of attaching: each reads the service, and plans the one request of an attach or detach."""

from collections.abc import Set
from typing import Protocol

from drawbar.fabric import contract
from drawbar.fabric.redfish import calls, views
from drawbar.fabric.redfish.reading import Reader


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

    def view(self) -> views.View:
        """Return the last reading."""
        ...

    def device_ids(self, uris: Set[str]) -> frozenset[str]:
        """Return the ids of the devices of these URIs: the devices' own, or those of their connections."""
        ...

    def attach(self, request: contract.AttachRequest, device_id: str, port_id: str) -> calls.Call:
        """Return the request that connects a device.

        Raises:
            FabricError: it cannot be connected as things are.
        """
        ...

    def detach(self, request: contract.DetachRequest, device_id: str) -> calls.Call | None:
        """Return the request that disconnects a device, or None if it is not connected.

        Raises:
            FabricError: it cannot be disconnected as things are.
        """
        ...
