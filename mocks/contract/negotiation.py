"""A resource driver of classic DRA as the rules need it: its class, claims and writes, in either version.

In `v1alpha2` a ResourceClass names the driver, and an allocation consists of handles; in `v1alpha3` the claim itself names
its controller, and an allocation consists of devices.
"""

from typing import Any

from contract import bodies
from contract.api import Json, Reply
from contract.world import Corner

FINALIZER = "contract.drawbar.dev/allocated"
POOL = "pool"


class Driver:
    """One driver in a test's corner.

    Attributes:
        world: the corner.
        version: that of `resource.k8s.io`.
        name: the driver's name.
        device_class: its ResourceClass, or a DeviceClass.
    """

    def __init__(self, world: Corner, *, device_class: str) -> None:
        self.world = world
        self.version = world.can.classic
        self.name = world.driver
        self.device_class = device_class

    @property
    def by_class(self) -> bool:
        """Return whether a class names the driver."""
        return self.version == "v1alpha2"

    def spec(self, **fields: Any) -> Json:
        """Return a claim's spec that asks for one device."""
        if self.by_class:
            return {"resourceClassName": self.device_class, **fields}
        request = {"name": "one", "deviceClassName": self.device_class}
        return {"controller": self.name, "devices": {"requests": [request]}, **fields}

    def allocation(self, *nodes: str, **fields: Any) -> Json:
        """Return an allocation that can be used on some nodes, or anywhere, by many pods."""
        selector = {
            "nodeSelectorTerms": [bodies.node_selector(node)["nodeSelectorTerms"][0] for node in nodes]
        }
        if self.by_class:
            handle = {"driverName": self.name, "data": "d1"}
            where = {"availableOnNodes": selector} if nodes else {}
            return {"resourceHandles": [handle], "shareable": True, **where, **fields}
        where = {"nodeSelector": selector} if nodes else {}
        results = [bodies.result(self.name, POOL, "d1")]
        return {"controller": self.name, "devices": {"results": results}, **where, **fields}

    def make_allocated_status(self, *nodes: str, reserved: list[Json] | None = None, **fields: Any) -> Json:
        """Return the status of an allocated claim; `fields` are of its allocation."""
        status: Json = {"allocation": self.allocation(*nodes, **fields)}
        if self.by_class:
            status["driverName"] = self.name
        return status | ({"reservedFor": reserved} if reserved else {})

    def uses(self, **claims: str) -> list[Json]:
        """Return a pod's claims, by its names for them."""
        return self._entries("resourceClaimName", claims)

    def makes(self, **templates: str) -> list[Json]:
        """Return a pod's claims that are made for it."""
        return self._entries("resourceClaimTemplateName", templates)

    def _entries(self, key: str, names: dict[str, str]) -> list[Json]:
        if self.by_class:
            return [{"name": entry, "source": {key: name}} for entry, name in names.items()]
        return [{"name": entry, key: name} for entry, name in names.items()]

    async def more(self, **fields: Any) -> "Driver":
        """Return the same driver with another class."""
        return await make_driver(self.world, **fields)

    async def claim(self, **fields: Any) -> "Claim":
        """Create a claim."""
        made = await self.world.make("resourceclaims", spec=self.spec(**fields))
        return self.remember(made["metadata"]["name"])

    def remember(self, name: str) -> "Claim":
        """Delete an existing claim when the test ends."""
        claim = Claim(self, name)
        self.world.remember(claim.path)
        return claim


class Claim:
    """A claim, and its written fields."""

    def __init__(self, driver: Driver, name: str) -> None:
        self.driver = driver
        self.name = name
        self.path = driver.world.path("resourceclaims", name)
        self.status_path = driver.world.path("resourceclaims", name, "status")

    async def status(self, **status: Any) -> Reply:
        """Change the status; None takes a field away."""
        return await self.driver.world.api.merge(self.status_path, {"status": status})

    async def allocate(self, *nodes: str, reserved: list[Json] | None = None) -> Json:
        """Allocate as a driver does: finalizer first, then allocation and consumers in one write."""
        api = self.driver.world.api
        marked = await api.merge(self.path, {"metadata": {"finalizers": [FINALIZER]}})
        assert marked.code == 200, marked.body
        reply = await self.status(**self.driver.make_allocated_status(*nodes, reserved=reserved))
        assert reply.code == 200, reply.body
        allocated: Json = reply.body
        return allocated

    async def deallocate(self) -> None:
        """Give everything up, as an asked driver does."""
        reply = await self.status(allocation=None, deallocationRequested=None, driverName=None)
        assert reply.code == 200, reply.body
        reply = await self.driver.world.api.merge(self.path, {"metadata": {"finalizers": None}})
        assert reply.code == 200, reply.body

    async def current(self) -> Json:
        """Return the claim as it is."""
        stored: Json = (await self.driver.world.api.get(self.path)).body
        return stored


def consumers(number: int) -> list[Json]:
    """Return some consumers of a claim; none is a pod, so that no controller finds out that there is no such thing."""
    return [
        {"apiGroup": "contract.drawbar.dev", "resource": "others", "name": f"o{index}", "uid": f"u{index}"}
        for index in range(number)
    ]


def refuses(reply: Reply, field: str, reason: str) -> None:
    """Check that the refusal complains of this field for this reason."""
    assert (reply.code, reply.reason) == (422, "Invalid"), reply.body
    assert reply.causes.get(field) == reason, reply.causes


async def make_driver(world: Corner, **fields: Any) -> Driver:
    """Make a driver, with its class; `fields` are the class's."""
    if world.can.classic == "v1alpha2":
        created = await world.make("resourceclasses", driverName=world.driver, **fields)
    else:
        created = await world.make("deviceclasses", spec=fields)
    return Driver(world, device_class=created["metadata"]["name"])
