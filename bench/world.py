"""What benchmarks put into a cluster, the same in every run, and the controller that they measure."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from drawbar.mocks.fabric import configuration
from drawbar.mocks.testing import worlds

Json = dict[str, Any]
DRIVER = "gpu.fabric.example"
NODES = 5_000
POOLS = 200
POOL_DEVICES = 64
PORTS = 4
NODE_DEVICES = 4
CLAIMS = 10_000
STAMP = "2026-01-01T00:00:00Z"
NODES_PATH = "/api/v1/nodes"
SLICES_PATH = "/apis/resource.k8s.io/v1/resourceslices"
# All claims are of one namespace.
HIGHEST_LIMITS = {"attachesPerNamespacePerMinute": 1000}
CLAIMS_PATH = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


def fabric(nodes: Sequence[str], devices: Sequence[configuration.DeviceSpec]) -> configuration.Configuration:
    """Return a fabric of enclosures of `POOL_DEVICES` devices each, with a host per node."""
    enclosures = tuple(
        configuration.EnclosureSpec(id=f"chassis-{number}", devices=tuple(part))
        for number, part in enumerate(
            devices[first : first + POOL_DEVICES] for first in range(0, len(devices), POOL_DEVICES)
        )
    )
    hosts = tuple(
        configuration.HostSpec(id=f"host-{number}", name=name, ports=PORTS)
        for number, name in enumerate(nodes)
    )
    return configuration.Configuration(hosts=hosts, enclosures=enclosures)


@asynccontextmanager
async def controller(kubeconfig: Path, log: Path) -> AsyncIterator[int]:
    """Run `drawbar controller` while the context lasts; yield its process id."""
    words = (
        *("-m", "drawbar.driver.main", "controller", "--kubeconfig", str(kubeconfig)),
        # The fabric managers of the benchmarks are on this machine.
        *("--fabric-networks", "127.0.0.0/8"),
    )
    with log.open("ab") as file:
        child = await asyncio.create_subprocess_exec(sys.executable, *words, stderr=file)
        try:
            yield child.pid
        finally:
            child.terminate()
            await child.wait()


def nodes(count: int) -> Iterator[Json]:
    """Yield nodes as kubelets register them: some labels, conditions, addresses and capacities."""
    for index in range(count):
        name = f"node-{index:05}"
        labels = {
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "topology.kubernetes.io/zone": f"zone-{index % 8}",
            f"drawbar.dev/chassis-{index % POOLS}": "reachable",
        }
        conditions = [
            {
                "type": kind,
                "status": "True" if kind == "Ready" else "False",
                "reason": f"Kubelet{kind}",
                "message": "as it should be",
                "lastHeartbeatTime": STAMP,
                "lastTransitionTime": STAMP,
            }
            for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
        ]
        amounts = {"cpu": "64", "memory": "527868560Ki", "pods": "110", "ephemeral-storage": "960302804Ki"}
        yield {
            "metadata": {"name": name, "labels": labels},
            "spec": {"podCIDR": f"10.{index // 256}.{index % 256}.0/24", "providerID": f"bare://{name}"},
            "status": {
                "capacity": amounts,
                "allocatable": amounts,
                "conditions": conditions,
                "addresses": [{"type": "InternalIP", "address": f"10.1.{index // 256}.{index % 256}"}],
                "nodeInfo": {"kernelVersion": "6.12.0", "kubeletVersion": "v1.36.2", "osImage": "Linux"},
            },
        }


def pool_slices(count: int) -> Iterator[Json]:
    """Yield one slice per enclosure, with the devices that the fabric attaches."""
    for index in range(count):
        term = {"matchExpressions": [{"key": f"drawbar.dev/chassis-{index}", "operator": "Exists"}]}
        yield _slice(
            f"chassis-{index}",
            {"nodeSelector": {"nodeSelectorTerms": [term]}},
            [_device(f"slot-{slot:02}", f"{index}-{slot}", fabric=True) for slot in range(POOL_DEVICES)],
        )


def node_slices(count: int) -> Iterator[Json]:
    """Yield one slice per node, with the node's own devices."""
    for index in range(count):
        name = f"node-{index:05}"
        devices = [_device(f"gpu-{slot}", f"{name}-{slot}", fabric=False) for slot in range(NODE_DEVICES)]
        yield _slice(name, {"nodeName": name}, devices)


def claims(count: int) -> Iterator[Json]:
    """Yield unallocated claims."""
    for index in range(count):
        exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
        yield {
            "metadata": {"name": claim_name(index), "labels": {"app": f"train-{index % 100}"}},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
        }


def claim_name(index: int) -> str:
    return f"claim-{index:05}"


def allocation(index: int) -> Json:
    """Return the status that the scheduler gives a claim."""
    node = f"node-{index % NODES:05}"
    pool, device = f"chassis-{index % POOLS}", f"slot-{index // POOLS % POOL_DEVICES:02}"
    result = worlds.result(pool, device, driver=DRIVER, request="gpu")
    user = {"resource": "pods", "name": f"pod-{index}", "uid": f"00000000-0000-4000-8000-{index:012}"}
    return {"allocation": worlds.allocation(node, result, at=STAMP), "reservedFor": [user]}


def conditions(index: int, text: str) -> Json:
    """Return an applied claim that reports its device as attached; ``text`` is the condition's message."""
    result = allocation(index)["allocation"]["devices"]["results"][0]
    condition = {
        "type": f"{DRIVER}/attached",
        "status": "True",
        "reason": "Attached",
        "message": text,
        "lastTransitionTime": STAMP,
    }
    entry = {key: result[key] for key in ("driver", "pool", "device")} | {"conditions": [condition]}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": claim_name(index), "namespace": "default"},
        "status": {"devices": [entry]},
    }


def _slice(pool: str, where: Json, devices: list[Json]) -> Json:
    spec = {"driver": DRIVER, "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1}, **where}
    return {"metadata": {"name": f"{pool}-{DRIVER}"}, "spec": {**spec, "devices": devices}}


def _device(name: str, serial: str, *, fabric: bool) -> Json:
    device: Json = {
        "name": name,
        "attributes": {
            "model": {"string": "H200"},
            "serial": {"string": f"SN-{serial}"},
            "numa": {"int": 0},
            "driverVersion": {"version": "1.2.3"},
        },
        "capacity": {"memory": {"value": "141Gi"}},
    }
    if fabric:
        device |= {
            "bindsToNode": True,
            "bindingConditions": [f"{DRIVER}/attached", f"{DRIVER}/visible"],
            "bindingFailureConditions": [f"{DRIVER}/attach-failed", f"{DRIVER}/node-failed"],
        }
    return device
