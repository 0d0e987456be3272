"""Classic allocation under competition: 500 pods for 100 devices over 200 nodes, until every pod has had its turn.

The real `drawbar controller` and the doubles of the scheduler and of the claim controller are processes of their own;
the API server double, a fabric without latency, the node daemons (for which everything goes well at once) and the pods'
lives share a fourth, all on the same cores. The pods come all at once, each with a claim of its own from a template; a
pod that was given its node runs for a while and is deleted, so that the next one can have the device.

Writes are counted by who wrote them, Events apart. No target stands for them: they are stated.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apiserver as measuring
import msgspec
import report
import world
import yaml

from drawbar.driver.api import attachments, classic_contexts, meta
from drawbar.driver.kube import client, config, kinds, reflector
from drawbar.driver.kube import errors as kube_errors
from drawbar.fabric import contract
from drawbar.fabric.grpc import server as fabric_server
from drawbar.mocks import apiserver, claims, scheduler
from drawbar.mocks.cluster import deployment
from drawbar.mocks.fabric import configuration
from drawbar.mocks.fabric.simulation import SimulatedFabric

Json = dict[str, Any]
DRIVER = "drawbar.dev"
FABRIC = "rack"
VERSIONS = {"1.30-classic": "v1alpha2", "1.31-classic": "v1alpha3"}
WRITERS = ("controller", "scheduler", "claim-controller")
POOL_DEVICES = 64
PORTS = 4
WORKERS = 8
PATIENCE_SECONDS = 600.0
_RBAC: Json = {"group": "rbac.authorization.k8s.io", "version": "v1", "namespaced": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What competes for what."""

    pods: int
    devices: int
    nodes: int
    run_seconds: float


@dataclass(slots=True, kw_only=True, eq=False)
class Life:
    """Node daemons for which everything goes well, and pods that run for a while and end.

    Attributes:
        served: the pods' names, in the order in which they were given a node.
        most: how many devices were asked for at once at most.
    """

    api: client.Client
    run_seconds: float
    served: dict[str, float] = field(default_factory=dict)
    most: int = 0
    gone: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    _there: set[str] = field(default_factory=set)
    _said: set[tuple[str, str]] = field(default_factory=set)
    _words: asyncio.Queue[tuple[str, str]] = field(default_factory=asyncio.Queue)
    _ended: asyncio.Queue[tuple[str, float]] = field(default_factory=asyncio.Queue)

    def attachment_changed(
        self, old: attachments.DeviceAttachment | None, new: attachments.DeviceAttachment | None
    ) -> None:
        """Says that a device is visible, or released, once each."""
        found = new or old
        assert found is not None
        if new is None:
            self._there.discard(found.metadata.uid)
            self._said -= {(found.metadata.uid, attachments.VISIBLE), (found.metadata.uid, attachments.RELEASED)}
            self.changed.set()
            return
        self._there.add(new.metadata.uid)
        self.most = max(self.most, len(self._there))
        word = attachments.RELEASED if new.deleting else attachments.VISIBLE
        ready = new.deleting or new.holds(attachments.ATTACHED)
        if ready and (new.metadata.uid, word) not in self._said:
            self._said.add((new.metadata.uid, word))
            self._words.put_nowait((new.metadata.name, word))

    def pod_changed(self, old: classic_contexts.Pod | None, new: classic_contexts.Pod | None) -> None:
        """A pod begins to run when it is given its node."""
        if new is None:
            assert old is not None
            self.gone += 1
            self.changed.set()
        elif new.spec.node_name and new.metadata.name not in self.served:
            self.served[new.metadata.name] = time.perf_counter()
            self._ended.put_nowait((new.metadata.name, time.perf_counter() + self.run_seconds))

    async def speak(self) -> None:
        """What node daemons write."""
        while True:
            name, word = await self._words.get()
            said = meta.transition((), word, status=True, reason="Said", message="", now=world.STAMP)
            body = {
                "apiVersion": attachments.API_VERSION,
                "kind": attachments.KIND,
                "metadata": {"name": name},
                "status": {"conditions": [msgspec.to_builtins(said)]},
            }
            await self.api.patch(
                kinds.ATTACHMENT,
                name,
                body,
                content=client.Patch.APPLY,
                into=Json,
                subresource="status",
                manager="drawbar-node",
            )

    async def end(self) -> None:
        """Deletes the pods that have run."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        while True:
            name, until = await self._ended.get()
            await asyncio.sleep(max(0.0, until - time.perf_counter()))
            await self.api.request("DELETE", kinds.POD.path(namespace="default", name=name), body=body)

    async def over(self, pods: int) -> None:
        """Waits until that many pods are gone, and every device is back."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while self.gone < pods or self._there:
                self.changed.clear()
                await self.changed.wait()


def _fabric(size: Size) -> configuration.Configuration:
    enclosures = tuple(
        configuration.EnclosureSpec(
            id=f"chassis-{first // POOL_DEVICES}",
            devices=tuple(
                configuration.DeviceSpec(
                    id=f"gpu-{number}", device_class=contract.DeviceClass.GPU, serial=f"serial-{number}"
                )
                for number in range(first, min(first + POOL_DEVICES, size.devices))
            ),
        )
        for first in range(0, size.devices, POOL_DEVICES)
    )
    hosts = tuple(
        configuration.HostSpec(id=f"host-{number}", name=node["metadata"]["name"], ports=PORTS)
        for number, node in enumerate(world.nodes(size.nodes))
    )
    return configuration.Configuration(hosts=hosts, enclosures=enclosures)


def _objects(version: str, size: Size, endpoint: str) -> Iterator[tuple[kinds.Kind, str | None, Json]]:
    """The cluster before the first pod; each with its namespace, if it has one."""
    for file in sorted((deployment.folder() / "drawbar/crds").glob("*.yaml")):
        yield kinds.CUSTOM_RESOURCE, None, yaml.safe_load(file.read_text(encoding="utf-8"))
    role = {"name": "everything", "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole"}
    rule = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    everything = kinds.Kind(**_RBAC, kind="ClusterRole", plural="clusterroles")
    yield everything, None, {"metadata": {"name": "everything"}, "rules": [rule]}
    subjects = [{"kind": "User", "name": name, "apiGroup": role["apiGroup"]} for name in WRITERS]
    binding = kinds.Kind(**_RBAC, kind="ClusterRoleBinding", plural="clusterrolebindings")
    yield binding, None, {"metadata": {"name": "everything"}, "roleRef": role, "subjects": subjects}
    for node in world.nodes(size.nodes):
        yield kinds.NODE, None, node
    rack = {"metadata": {"name": FABRIC}, "spec": {"adapter": "grpc", "endpoint": endpoint}}
    yield kinds.FABRIC, None, rack
    asked: Json
    if version == "v1alpha2":
        yield kinds.RESOURCE_CLASS, None, {"metadata": {"name": "gpu"}, "driverName": DRIVER}
        asked = {"resourceClassName": "gpu"}
    else:
        expression = f"device.attributes['{DRIVER}'].class == 'gpu'"
        spec = {"selectors": [{"cel": {"expression": expression}}]}
        yield kinds.CLASSIC_DEVICE_CLASS, None, {"metadata": {"name": "gpu"}, "spec": spec}
        request = {"name": "gpu", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
        asked = {"controller": DRIVER, "devices": {"requests": [request]}}
    template = msgspec.structs.replace if False else None
    del template
    yield _template(version), "default", {"metadata": {"name": "gpu"}, "spec": {"spec": asked}}


def _template(version: str) -> kinds.Kind:
    group = kinds.CLAIM_TEMPLATE.group
    return kinds.Kind(
        group=group, version=version, kind="ResourceClaimTemplate", plural="resourceclaimtemplates", namespaced=True
    )
