"""The hosts of a simulated fabric in a real cluster: the nodes with certain labels.

Real hardware would remember its connections. A simulated fabric in a new pod reads them from the DeviceAttachments. A
host's id and name are its node's name. If the Node disappears or loses the labels, the host stays with its
attachments.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from drawbar.fabric import contract
from drawbar.mocks import attachments
from drawbar.mocks.claims import documents
from drawbar.mocks.fabric.configuration import HostSpec
from drawbar.mocks.fabric.console import Console
from drawbar.mocks.kube import client, connections, kinds, mirror


class Nodes:
    """The nodes that are hosts; made by `following`."""

    def __init__(self, api: client.Client, mirrored: mirror.Mirror[documents.Document], ports: int) -> None:
        self._api, self._mirrored, self._ports = api, mirrored, ports

    def hosts(self) -> tuple[HostSpec, ...]:
        """Return a host for each present node."""
        return tuple(self._host(node) for node in sorted(self._mirrored, key=lambda each: each.metadata.name))

    async def connections(self) -> dict[str, contract.Connection]:
        """Return the connection of each attached device, by the device's id.

        Without marks, which the cluster does not store.

        Raises:
            errors.KubeError: the API server does not answer.
        """
        listing = await self._api.list_all(kinds.ATTACHMENT, into=attachments.DeviceAttachment)
        return {
            attachment.device_id: contract.Connection(
                host_id=attachment.spec.host_id,
                port_id=connection.port,
                slot_hint=connection.slot,
                request_id=operation.request_id if (operation := attachment.status.operation) else None,
            )
            for attachment in listing.items
            if (connection := attachment.status.connection) is not None
            and attachment.holds(attachments.ATTACHED)
        }

    def keep(self, console: Console) -> None:
        """Add each present and each later node to the fabric's hosts."""

        def add_host(_old: documents.Document | None, node: documents.Document | None) -> None:
            if node is not None:
                console.add_host(self._host(node))

        self._mirrored.follow(add_host)
        for node in self._mirrored:
            console.add_host(self._host(node))

    def _host(self, node: documents.Document) -> HostSpec:
        return HostSpec(id=node.metadata.name, ports=self._ports)


@contextlib.asynccontextmanager
async def following(selector: str, ports: int, kubeconfig: str | None = None) -> AsyncIterator[Nodes]:
    """Follow the nodes with these labels until the block ends; the present ones are listed on entry.

    Args:
        selector: the label selector, as for `kubectl get nodes --selector`.
        ports: the number of ports of each host.
        kubeconfig: the file for access to the API server; None for the pod's service account.

    Raises:
        errors.ConfigError: no API server is configured.
    """
    async with client.connecting(connections.load(kubeconfig)) as api, asyncio.TaskGroup() as tasks:
        mirrored = mirror.Mirror(api, kinds.NODE, into=documents.Document, labels=selector)
        task = tasks.create_task(mirrored.run(), name="nodes")
        await mirrored.synced.wait()
        try:
            yield Nodes(api, mirrored, ports)
        finally:
            task.cancel()
