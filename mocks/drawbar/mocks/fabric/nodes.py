"""The hosts of a simulated fabric that is part of a real cluster: its nodes with certain labels.

A host has the name of its node for id and name. It stays when its Node goes or loses the labels: what is attached there is
not forgotten, and no pod comes there any more.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from drawbar.driver.api import core
from drawbar.driver.kube import client, config, kinds, mirror
from drawbar.mocks.fabric.configuration import HostSpec
from drawbar.mocks.fabric.console import Console


class Nodes:
    """The nodes that are hosts; made by `following`."""

    def __init__(self, mirrored: mirror.Mirror[core.Node], ports: int) -> None:
        self._mirrored, self._ports = mirrored, ports

    def hosts(self) -> tuple[HostSpec, ...]:
        """Return a host for each node that is there now."""
        return tuple(self._host(node) for node in sorted(self._mirrored, key=lambda each: each.metadata.name))

    def keep(self, console: Console) -> None:
        """Add each node that is there, or comes from now on, to the fabric's hosts."""

        def changed(_old: core.Node | None, node: core.Node | None) -> None:
            if node is not None:
                console.add_host(self._host(node))

        self._mirrored.follow(changed)
        for node in self._mirrored:
            console.add_host(self._host(node))

    def _host(self, node: core.Node) -> HostSpec:
        return HostSpec(id=node.metadata.name, ports=self._ports)


@contextlib.asynccontextmanager
async def following(selector: str, ports: int, kubeconfig: str | None = None) -> AsyncIterator[Nodes]:
    """Follow the nodes with these labels while the block lasts; those that are there are listed once it is entered.

    Args:
        selector: of labels, as `kubectl get nodes --selector` has it.
        ports: of each host.
        kubeconfig: how to reach the API server; None for the pod's service account.

    Raises:
        errors.ConfigError: no API server is configured.
    """
    async with client.connecting(config.load(kubeconfig)) as api, asyncio.TaskGroup() as tasks:
        mirrored = mirror.Mirror(api, kinds.NODE, into=core.Node, labels=selector)
        task = tasks.create_task(mirrored.run(), name="nodes")
        await mirrored.synced.wait()
        try:
            yield Nodes(mirrored, ports)
        finally:
            task.cancel()
