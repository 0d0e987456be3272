"""The set-up to watch a scheduler at work: a node without a machine, a class, pools, claims and pods.

Only pods of ours can get to the node, and only the node can use the pools.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from contract import bodies
from contract.api import Json
from contract.world import Corner

QUIET_POLLS = 4


class Lab:
    """A test's scheduling world.

    Attributes:
        world: its corner of the cluster.
        node: the fake node's name.
        label: the label by which its pods and pools select it.
        device_class: a class of all devices of the test's driver.
    """

    def __init__(self, world: Corner, *, node: str, label: str, device_class: str) -> None:
        self.world = world
        self.node = node
        self.label = label
        self.device_class = device_class

    async def pool(self, *devices: Json, name: str = "", **spec: Any) -> Json:
        """Publish a slice that is its whole pool, for our node."""
        pool = name or self.world.name("pool")
        whole = {
            "driver": self.world.driver,
            "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1},
            "nodeSelector": bodies.for_nodes(self.label),
            "devices": list(devices),
            **spec,
        }
        return await self.world.make("resourceslices", spec={k: v for k, v in whole.items() if v is not None})

    async def claim(self, name: str = "", *, requests: list[Json] | None = None, **devices: Any) -> str:
        """Create a claim for one device, or with the given requests; return its name."""
        wanted = [bodies.request("one", self.device_class)] if requests is None else requests
        made = await self.world.make(
            "resourceclaims", name, spec={"devices": {"requests": wanted, **devices}}
        )
        return str(made["metadata"]["name"])

    def request(self, name: str = "one", **exactly: Any) -> Json:
        """Return a request of our class."""
        return bodies.request(name, self.device_class, **exactly)

    async def pod(self, *claims: str, metadata: Json | None = None, **spec: Any) -> str:
        """Create a pod that uses claims, and return its name."""
        body = bodies.pod_spec(*claims, node=self.label, **spec)
        made = await self.world.make("pods", metadata=metadata, spec=body)
        return str(made["metadata"]["name"])

    async def wait_until_allocated(self, claim: str, holds: Callable[[Json], Any] = lambda _: True) -> Json:
        """Wait until a claim is allocated, and more; return the claim."""
        return await self.world.until(
            "resourceclaims", claim, lambda stored: is_allocated(stored) and holds(stored)
        )

    async def wait_until_deallocated(self, claim: str) -> Json:
        """Wait until a claim has no allocation."""
        return await self.world.until("resourceclaims", claim, lambda stored: not is_allocated(stored))

    async def wait_until_bound(self, pod: str) -> Json:
        """Wait until a pod has its node, which must be ours."""
        assigned = await self.world.until("pods", pod, lambda stored: stored["spec"].get("nodeName"))
        assert assigned["spec"]["nodeName"] == self.node
        return assigned

    async def unschedulable(self, pod: str) -> str:
        """Wait until the scheduler reports that a pod fits on no node, and return its message."""
        pending = await self.world.until("pods", pod, lambda stored: refusal(stored) is not None)
        return str(refusal(pending))

    async def quiet(self, plural: str, name: str, changed: Callable[[Json], Any]) -> None:
        """Assert that `changed` does not hold of the object during some of the scheduler's polls."""
        try:
            async with asyncio.timeout(QUIET_POLLS * self.world.poll_seconds):
                stored = await self.world.until(plural, name, changed)
        except TimeoutError:
            return
        raise AssertionError(f"this was not to happen: {stored}")

    async def tell(self, claim: str, *devices: Json) -> Json:
        """Write the status of devices of a claim, as a controller does."""
        reply = await self.world.api.merge(
            self.world.path("resourceclaims", claim, "status"), {"status": {"devices": list(devices)}}
        )
        assert reply.code == 200, reply.body
        written: Json = reply.body
        return written

    async def ready(self, claim: Json, *conditions: str) -> Json:
        """Report these conditions of all devices of an allocated claim as True."""
        wanted = [bodies.condition(kind) for kind in conditions or (bodies.ATTACHED,)]
        return await self.tell(
            claim["metadata"]["name"], *(state(result, *wanted) for result in results(claim))
        )

    async def event(self, pod: str, reason: str, words: str = "") -> Json:
        """Wait for an event about a pod."""

        def is_match(event: Json) -> bool:
            return (
                pod in (event["regarding"].get("name"), (event.get("related") or {}).get("name"))
                and event["reason"] == reason
                and words in event.get("note", "")
            )

        path = self.world.path("events")
        reply = await self.world.eventually(
            lambda: self.world.api.get(path), lambda reply: any(map(is_match, reply.items))
        )
        return next(filter(is_match, reply.items))


async def make_lab(world: Corner) -> Lab:
    """Make a node, a class of devices, and the lab of both."""
    label = world.name("lab")
    node = await world.node(label, **{bodies.NODE_LABEL: label})
    selector = {"cel": {"expression": f'device.driver == "{world.driver}"'}}
    device_class = await world.make("deviceclasses", spec={"selectors": [selector]})
    return Lab(
        world,
        node=node["metadata"]["name"],
        label=label,
        device_class=device_class["metadata"]["name"],
    )


def is_allocated(claim: Json) -> bool:
    """Return whether a claim has an allocation."""
    return bool((claim.get("status") or {}).get("allocation"))


def results(claim: Json) -> list[Json]:
    """Return the devices of an allocated claim."""
    entries: list[Json] = claim["status"]["allocation"]["devices"]["results"]
    return entries


def devices(claim: Json) -> list[str]:
    """Return the names of the claim's devices."""
    return [result["device"] for result in results(claim)]


def state(result: Json, *conditions: Json) -> Json:
    """Return a status of an allocated device."""
    return bodies.device_status(result["driver"], result["pool"], result["device"], *conditions)


def list_consumers(claim: Json) -> list[str]:
    """Return the names of the pods that use a claim."""
    return [consumer["name"] for consumer in (claim.get("status") or {}).get("reservedFor") or []]


def refusal(pod: Json) -> str | None:
    """Return the scheduler's reason for leaving a pod unscheduled; None if it gives none."""
    for condition in pod["status"].get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("message", ""))
    return None
