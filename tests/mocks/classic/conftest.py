"""A cluster with classic DRA for one test, and a resource driver of a few lines that plays its part in it."""

import asyncio
import contextlib

import pytest
from tests.scenes import clusters

from drawbar.driver.kube import errors, kinds
from drawbar.mocks import claims, scheduler
from drawbar.mocks.apiserver import profiles
from drawbar.mocks.claims import dialects

DRIVER = "gpu.example.com"
FINALIZER = f"{DRIVER}/deletion-protection"
QUICK = scheduler.Settings(backoff_first_seconds=0.02, backoff_max_seconds=0.1, seed=7)


class Cluster(clusters.Cluster):
    """The cluster as a test sees it, and every write that a driver does."""

    def __init__(self, *served):
        super().__init__(*served)
        version = profiles.CLASSIC_VERSIONS[self.server.profile.name]
        self.dialect = next(dialect for dialect in dialects.CLASSIC if dialect.version == version)

    async def nodes(self, *names):
        for name in names:
            await self.node(name)

    async def device_class(self):
        content = {"driverName": DRIVER} if self.dialect is dialects.V1ALPHA2 else {"spec": {}}
        await self.create(self.dialect.class_kind, "any", **content)

    def claim_spec(self, mode="WaitForFirstConsumer"):
        if self.dialect is dialects.V1ALPHA2:
            return {"resourceClassName": "any", "allocationMode": mode}
        requests = [{"name": "one", "deviceClassName": "any"}]
        return {"controller": DRIVER, "devices": {"requests": requests}}

    async def claim(self, name, **spec):
        return await self.create(self.dialect.claim, name, spec=self.claim_spec(**spec))

    async def template(self, name):
        await self.create(self.dialect.template, name, spec={"spec": self.claim_spec()})

    async def pod(self, name, *claims_, template="", node=""):
        sources = {claim: {"resourceClaimName": claim} for claim in claims_}
        if template:
            sources["gpu"] = {"resourceClaimTemplateName": template}
        nested = self.dialect is dialects.V1ALPHA2
        uses = [
            {"name": entry, **({"source": source} if nested else source)} for entry, source in sources.items()
        ]
        spec = {"containers": [{"name": "main", "image": "none"}], "resourceClaims": uses}
        if node:
            spec["nodeName"] = node
        return await self.create(kinds.POD, name, spec=spec)

    async def delete(self, kind, name):
        await self.api.delete(kind, name, namespace="default")

    async def all(self, kind):
        return {item["metadata"]["name"]: item for item in await self.list(kind)}

    async def event(self, pod, words):
        """Wait for an Event of the scheduler about the pod."""
        await self.until(
            kinds.EVENT,
            lambda items: any(
                words in event.get("note", "") and event["regarding"]["name"] == pod for event in items
            ),
        )

    async def wait_until_bound(self, pod):
        return (await self.wait_for(kinds.POD, pod, lambda pod: pod["spec"].get("nodeName")))["spec"][
            "nodeName"
        ]

    def writes(self, resource, subresource="", name=None):
        return [
            write
            for write in self.server.writes
            if (write.resource, write.subresource) == (resource, subresource)
            and write.code < 300
            and name in {None, write.name}
        ]

    # What a resource driver writes.

    async def answer(self, pod, **unsuitable):
        answers = [{"name": entry, "unsuitableNodes": nodes} for entry, nodes in unsuitable.items()]
        await self.patch(self.dialect.context, pod, {"status": {"resourceClaims": answers}}, "status")

    async def allocate(self, claim, node, *pods):
        """Add the finalizer first, then the allocation and the reservation in one write."""
        stored = (await self.all(self.dialect.claim))[claim]
        finalizers = {"finalizers": [FINALIZER], "resourceVersion": stored["metadata"]["resourceVersion"]}
        stored = await self.patch(self.dialect.claim, claim, {"metadata": finalizers})
        selector = {
            "nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
            ]
        }
        if self.dialect is dialects.V1ALPHA2:
            handles = [{"driverName": DRIVER, "data": "a device"}]
            allocation = {"resourceHandles": handles, "availableOnNodes": selector, "shareable": True}
            status = {"driverName": DRIVER, "allocation": allocation}
        else:
            result = {"request": "one", "driver": DRIVER, "pool": "pool", "device": "device"}
            allocation = {"controller": DRIVER, "devices": {"results": [result]}, "nodeSelector": selector}
            status = {"allocation": allocation}
        if pods:
            status["reservedFor"] = [
                {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
                for pod in pods
            ]
        version = {"resourceVersion": stored["metadata"]["resourceVersion"]}
        await self.patch(self.dialect.claim, claim, {"metadata": version, "status": status}, "status")

    async def deallocate(self, claim):
        status = {"allocation": None, "deallocationRequested": None, "driverName": None}
        if self.dialect is not dialects.V1ALPHA2:
            del status["driverName"]
        await self.patch(self.dialect.claim, claim, {"status": status}, "status")
        with contextlib.suppress(errors.NotFound):
            await self.patch(self.dialect.claim, claim, {"metadata": {"finalizers": None}})


class ResourceDriver:
    """Gives out devices: so many that reach the given nodes. It looks at everything again after every change."""

    def __init__(self, cluster, devices, nodes, limit=128):
        self.cluster, self.devices, self.nodes, self.limit = cluster, devices, frozenset(nodes), limit
        self._changed = asyncio.Event()
        self.most_used = 0

    async def run(self):
        async with asyncio.TaskGroup() as group:
            for kind in (self.cluster.dialect.claim, self.cluster.dialect.context, kinds.POD):
                group.create_task(self._follow(kind), name=f"driver-{kind.plural}")
            while True:
                await self._changed.wait()
                self._changed.clear()
                try:
                    await self._look()
                except (errors.Conflict, errors.NotFound):
                    self._changed.set()

    async def _follow(self, kind):
        listing = await self.cluster.api.list_all(kind, into=dict, namespace="default")
        version = listing.resource_version
        self._changed.set()
        while True:
            async for event in self.cluster.api.watch(
                kind, into=dict, resource_version=version, namespace="default"
            ):
                version = event.resource_version or version
                self._changed.set()

    async def _look(self):
        cluster = self.cluster
        pods = await cluster.all(kinds.POD)
        contexts = await cluster.all(cluster.dialect.context)
        claims_ = await cluster.all(cluster.dialect.claim)
        for name, claim in claims_.items():
            status = claim.get("status", {})
            ended = claim["metadata"].get("deletionTimestamp") and not status.get("reservedFor")
            if status.get("deallocationRequested") or (ended and claim["metadata"].get("finalizers")):
                await cluster.deallocate(name)
                self._changed.set()
                return
        used = sum(bool(claim.get("status", {}).get("allocation")) for claim in claims_.values())
        self.most_used = max(used, self.most_used)
        for name, context in sorted(contexts.items()):
            if name in pods and await self._serve(pods[name], context, claims_, self.devices - used):
                self._changed.set()
                return

    async def _serve(self, pod, context, claims_, free):
        """Allocate or answer for one pod; return whether anything was written."""
        recorded = {
            status["name"]: status["resourceClaimName"]
            for status in pod["status"].get("resourceClaimStatuses", ())
        }
        pending = {}
        for use in pod["spec"]["resourceClaims"]:
            source = use.get("source", use)
            claim = source.get("resourceClaimName") or recorded.get(use["name"])
            if claim in claims_ and not claims_[claim].get("status", {}).get("allocation"):
                pending[use["name"]] = claim
        node = context["spec"].get("selectedNode")
        enough = len(pending) <= free
        if pending and node in self.nodes and enough:
            for claim in pending.values():
                await self.cluster.allocate(claim, node, pod)
            return True
        answers = {answer["name"]: answer for answer in context.get("status", {}).get("resourceClaims", ())}
        asked = {node, *context["spec"].get("potentialNodes", ())} - {None, ""}
        for answer in answers.values():
            asked |= set(answer.get("unsuitableNodes", ()))
        unsuitable = sorted(asked - self.nodes if enough else asked)
        # The selected one matters most when the list is too long.
        unsuitable = sorted(unsuitable, key=lambda name: name != node)[: self.limit]
        if all(
            set(answers.get(entry, {}).get("unsuitableNodes", [None])) == set(unsuitable) for entry in pending
        ):
            return False
        await self.cluster.answer(pod["metadata"]["name"], **dict.fromkeys(pending, unsuitable))
        return True


@contextlib.asynccontextmanager
async def _working(driver):
    async with asyncio.TaskGroup() as group:
        task = group.create_task(driver.run(), name="driver")
        try:
            yield driver
        finally:
            task.cancel()


@pytest.fixture(params=profiles.CLASSIC_VERSIONS)
def profile(request):
    return request.param


@pytest.fixture
async def idle(tmp_path, profile):
    """Run a cluster with classes and without a controller."""
    async with clusters.serving(tmp_path, Cluster, profile=profile) as made:
        await made.device_class()
        yield made


@pytest.fixture
def scheduling(idle):
    return lambda times=QUICK: scheduler.serving(idle.connection, times)


@pytest.fixture
def controlling(idle):
    return lambda: claims.serving(idle.connection)


@pytest.fixture
async def cluster(idle, scheduling):
    """Run a cluster with a scheduler."""
    async with scheduling():
        yield idle


@pytest.fixture
def driving(idle):
    """Return a function: `driving(devices, nodes)` runs a resource driver until its block ends."""
    return lambda devices, nodes: _working(ResourceDriver(idle, devices, nodes))
