"""A whole controller on the last two releases with classic allocation; the test plays scheduler, nodes and people."""

import asyncio
import contextlib

import pytest

from drawbar.driver import evaluation
from drawbar.driver.api import attachments, handles
from drawbar.driver.kube import client, config, kinds
from drawbar.driver.kube import errors as kube_errors
from drawbar.mocks import claims, scheduler
from drawbar.mocks.apiserver import profiles
from drawbar.mocks.testing import worlds

DRIVER = "drawbar.dev"
FINALIZER = "drawbar.dev/allocation"
NODES = ("node-1", "node-2")
ENCLOSURES = [
    {"id": "e", "devices": [{"id": f"gpu-{n}", "class": "gpu", "serial": f"S{n}"} for n in range(2)]}
]


@pytest.fixture
def running(controller_world, until):
    """Return a function; `async with running(profile) as classic` runs that release with a controller."""

    @contextlib.asynccontextmanager
    async def beginning(profile):
        async with controller_world(profile, enclosures=ENCLOSURES) as world:
            world.start(leader_election=False)
            scene = Classic(world, until, profile)
            await scene.begin()
            yield scene

    return beginning


class Classic:
    """The cluster, in the words of one version of the API."""

    def __init__(self, world, until, profile):
        self.world, self.api, self.until = world, world.api, until
        self.attachments, self.node_says = world.attachments, world.node_says
        self.version = profiles.CLASSIC_VERSIONS[profile]
        self.claims, self.contexts = (
            kinds.CLASSIC_CLAIMS[self.version],
            kinds.SCHEDULING_CONTEXTS[self.version],
        )

    async def begin(self):
        """Make the nodes ready, and create the Fabric and a class, as kubelets and the administrator do."""
        for name in NODES:
            ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
            await self.api.patch(
                kinds.NODE, name, ready, content=client.Patch.MERGE, into=dict, subresource="status"
            )
        await self.world.make_fabric()
        if self.version == "v1alpha2":
            body = {"metadata": {"name": "gpu"}, "driverName": DRIVER}
            await self.make(kinds.RESOURCE_CLASS, body)
        else:
            expression = f"device.attributes['{DRIVER}'].class == 'gpu'"
            spec = {"selectors": [{"cel": {"expression": expression}}]}
            await self.make(kinds.CLASSIC_DEVICE_CLASS, {"metadata": {"name": "gpu"}, "spec": spec})

    async def make(self, kind, body, namespace=None):
        document = {"apiVersion": kind.api_version, "kind": kind.kind} | body
        return await self.api.create(kind, document, into=dict, namespace=namespace)

    async def claim(self, name="c1"):
        spec = {"resourceClassName": "gpu"}
        if self.version == "v1alpha3":
            request = {"name": "gpu", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
            spec = {"controller": DRIVER, "devices": {"requests": [request]}}
        return await self.make(self.claims, {"metadata": {"name": name}, "spec": spec}, "default")

    async def pod(self, name="p1", claim="c1"):
        named = {"name": "device", "resourceClaimName": claim}
        if self.version == "v1alpha2":
            named = {"name": "device", "source": {"resourceClaimName": claim}}
        container = {"name": "main", "image": "busybox", "resources": {"claims": [{"name": "device"}]}}
        spec = {"containers": [container], "resourceClaims": [named]}
        return await self.make(kinds.POD, {"metadata": {"name": name}, "spec": spec}, "default")

    async def context(self, pod, **spec):
        """Create the context that a scheduler makes for the pod."""
        owner = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": pod["metadata"]["name"],
            "uid": pod["metadata"]["uid"],
        }
        body = {"metadata": {"name": pod["metadata"]["name"], "ownerReferences": [owner]}, "spec": spec}
        return await self.make(self.contexts, body, "default")

    async def read(self, name="c1"):
        return await self.api.read(self.claims, name, namespace="default", into=dict)

    async def answer(self, name="p1"):
        context = await self.api.read(self.contexts, name, namespace="default", into=dict)
        return {
            entry["name"]: sorted(entry.get("unsuitableNodes", ()))
            for entry in context.get("status", {}).get("resourceClaims", ())
        }

    async def play_nodes(self):
        """Play node daemons for which everything goes well, until cancelled."""
        while True:
            for name, attachment in (await self.attachments()).items():
                conditions = [each["type"] for each in attachment.get("status", {}).get("conditions", ())]
                wanted = (
                    attachments.RELEASED
                    if "deletionTimestamp" in attachment["metadata"]
                    else attachments.VISIBLE
                )
                if wanted not in conditions and (
                    wanted == attachments.RELEASED or attachments.ATTACHED in conditions
                ):
                    with contextlib.suppress(kube_errors.NotFound):
                        await self.node_says(name, wanted)
            await asyncio.sleep(0.01)

    async def pods(self):
        """Return the node of each pod, by the pod's name."""
        listed = await self.api.list_all(kinds.POD, into=dict)
        return {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in listed.items}

    async def claims_left(self):
        return [
            claim["metadata"]["name"] for claim in (await self.api.list_all(self.claims, into=dict)).items
        ]

    async def events(self):
        """Return the last message by reason."""
        return {
            event["reason"]: event["note"]
            for event in (await self.api.list_all(kinds.EVENT, into=dict)).items
        }

    async def end(self, pod):
        """Delete the pod at once, after its run."""
        path = kinds.POD.path(namespace="default", name=pod)
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        await self.api.request("DELETE", path, body=body)

    async def wait_until_attached(self, count=1):
        """Wait until the fabric has connected that many devices; return their attachments by name."""

        def all_there(by_name):
            reported = [attachment.get("status", {}).get("conditions", ()) for attachment in by_name.values()]
            is_attached = [
                any((c["type"], c["status"]) == ("Attached", "True") for c in conditions)
                for conditions in reported
            ]
            return len(by_name) == count and all(is_attached)

        return await self.until(self.attachments, all_there)

    async def wait_until_allocated(self, name="c1"):
        claim = await self.until(
            lambda: self.read(name), lambda claim: claim.get("status", {}).get("allocation")
        )
        return claim["status"]

    def handle(self, status):
        if self.version == "v1alpha2":
            return handles.decode(status["allocation"]["resourceHandles"][0]["data"])
        return handles.from_document(status["allocation"]["devices"]["config"][0]["opaque"]["parameters"])

    async def change(self, name, status):
        """Write the claim's status, as the scheduler or kube-controller-manager does."""
        await self.api.patch(
            self.claims,
            name,
            {"status": status},
            content=client.Patch.MERGE,
            into=dict,
            namespace="default",
            subresource="status",
        )


@pytest.fixture(params=profiles.CLASSIC_VERSIONS)
def profile(request):
    return request.param


async def test_a_pod_gets_its_device_attached_before_its_claim_is_allocated_and_gives_it_back(
    running, until, profile
):
    async with running(profile) as classic:
        await classic.claim()
        pod = await classic.pod()
        await classic.context(pod, potentialNodes=list(NODES), selectedNode="node-1")

        ((name, attachment),) = (await classic.wait_until_attached()).items()
        assert attachment["spec"]["nodeName"] == "node-1"
        claim = await classic.read()
        assert claim["metadata"]["finalizers"] == [FINALIZER]
        assert "allocation" not in claim.get("status", {})
        await classic.node_says(name, attachments.VISIBLE)

        status = await classic.wait_until_allocated()
        assert [consumer["uid"] for consumer in status["reservedFor"]] == [pod["metadata"]["uid"]]
        handle = classic.handle(status)
        assert (handle.node, [device.attachment for device in handle.devices]) == ("node-1", [name])
        assert handle.allocated_at == attachment["spec"]["allocationTimestamp"]
        assert await until(classic.answer, bool) == {"device": []}

        await classic.change("c1", {"reservedFor": None, "deallocationRequested": True})
        await until(classic.attachments, lambda stored: "deletionTimestamp" in stored[name]["metadata"])
        assert (await classic.read())["status"]["allocation"]
        await classic.node_says(name, attachments.RELEASED)
        left = await until(classic.read, lambda claim: not claim["metadata"].get("finalizers"))
        assert not left.get("status", {}).get("allocation")
        assert not left.get("status", {}).get("deallocationRequested")
        assert await classic.attachments() == {}


async def test_an_immediate_claim_is_allocated_without_a_pod_by_the_parameters_of_its_class(running, until):
    async with running("1.30-classic") as classic:
        data = {"deviceClass": "gpu", "selector": f"device.attributes['{DRIVER}'].serial == 'S1'"}
        metadata = {"name": "second", "labels": {"drawbar.dev/parameters": ""}}
        await classic.make(kinds.CONFIG_MAP, {"metadata": metadata, "data": data}, "default")
        reference = {"kind": "ConfigMap", "name": "second", "namespace": "default"}
        body = {"metadata": {"name": "chosen"}, "driverName": DRIVER, "parametersRef": reference}
        await classic.make(kinds.RESOURCE_CLASS, body)
        spec = {"resourceClassName": "chosen", "allocationMode": "Immediate"}
        await classic.make(classic.claims, {"metadata": {"name": "c1"}, "spec": spec}, "default")

        ((name, attachment),) = (await classic.wait_until_attached()).items()
        assert name == "fab.gpu-1"
        await classic.node_says(name, attachments.VISIBLE)
        status = await classic.wait_until_allocated()
        assert "reservedFor" not in status
        assert classic.handle(status).node == attachment["spec"]["nodeName"]


async def test_a_selector_of_a_configmap_that_takes_minutes_is_reported_and_holds_up_no_other_claim(
    running, until
):
    endless = f"[{', '.join(['1'] * 3000)}].all(x, 'aaaa'.matches('\\\\pL{{1,200}}'))"
    async with running("1.30-classic") as classic:
        for name, selector in (("hostile", endless), ("good", f"device.driver == '{DRIVER}'")):
            metadata = {"name": name, "labels": {"drawbar.dev/parameters": ""}}
            data = {"deviceClass": "gpu", "selector": selector}
            await classic.make(kinds.CONFIG_MAP, {"metadata": metadata, "data": data}, "default")
            spec = {
                "resourceClassName": "gpu",
                "allocationMode": "Immediate",
                "parametersRef": {"kind": "ConfigMap", "name": name},
            }
            await classic.make(classic.claims, {"metadata": {"name": name}, "spec": spec}, "default")
        ((name, _),) = (await classic.wait_until_attached()).items()
        await classic.node_says(name, attachments.VISIBLE)
        await until(lambda: classic.read("good"), lambda claim: claim.get("status", {}).get("allocation"))
        events = await until(classic.events, lambda events: "CannotServeClaim" in events)
        assert evaluation.TOO_EXPENSIVE in events["CannotServeClaim"]
        assert not (await classic.read("hostile")).get("status", {}).get("allocation")


async def test_a_device_that_its_node_cannot_use_is_tainted_and_another_one_is_tried(running, until):
    async with running("1.31-classic") as classic:
        await classic.claim()
        pod = await classic.pod()
        await classic.context(pod, potentialNodes=list(NODES), selectedNode="node-1")
        ((first, _),) = (await classic.wait_until_attached()).items()
        await classic.node_says(first, attachments.VISIBLE, status="False", reason="LinkDown")
        stored = await until(
            classic.attachments, lambda all_: "deletionTimestamp" in all_.get(first, {}).get("metadata", {})
        )
        assert stored[first]["status"]["error"]["reason"] == "LinkDown"
        await classic.node_says(first, attachments.RELEASED)

        second = await until(classic.attachments, lambda all_: all_ and first not in all_)
        ((name, attachment),) = second.items()
        assert attachment["spec"]["nodeName"] == "node-1"
        await until(classic.wait_until_attached, bool)
        await classic.node_says(name, attachments.VISIBLE)
        assert classic.handle(await classic.wait_until_allocated()).devices[0].attachment == name


async def test_a_lost_record_is_written_again_and_deleted_with_its_claim(running, until):
    async with running("1.31-classic") as classic:
        await classic.claim()
        pod = await classic.pod()
        await classic.context(pod, potentialNodes=list(NODES), selectedNode="node-1")
        ((name, lost),) = (await classic.wait_until_attached()).items()
        await classic.node_says(name, attachments.VISIBLE)
        await classic.wait_until_allocated()
        await worlds.vanish(classic.api, name)

        def is_another(stored):
            return name in stored and stored[name]["metadata"]["uid"] != lost["metadata"]["uid"]

        stored = await until(classic.attachments, is_another)
        for field in ("claim", "nodeName", "allocationTimestamp"):
            assert stored[name]["spec"][field] == lost["spec"][field]

        bare = {"metadata": {"finalizers": None}}
        await classic.api.patch(
            classic.claims, "c1", bare, content=client.Patch.MERGE, into=dict, namespace="default"
        )
        await until(classic.read, lambda claim: claim["metadata"].get("finalizers"))
        await classic.change("c1", {"reservedFor": None})
        await classic.api.delete(classic.claims, "c1", namespace="default")
        await until(classic.attachments, lambda all_: "deletionTimestamp" in all_[name]["metadata"])
        await classic.node_says(name, attachments.RELEASED)
        await until(classic.attachments, lambda all_: all_ == {})
        assert await until(classic.claims_left, lambda left: left == []) == []


async def test_a_claim_that_cannot_be_served_gets_the_reason(running, until):
    async with running("1.31-classic") as classic:
        request = {"name": "gpu", "deviceClassName": "none", "allocationMode": "ExactCount", "count": 1}
        spec = {"controller": DRIVER, "devices": {"requests": [request]}}
        await classic.make(classic.claims, {"metadata": {"name": "c1"}, "spec": spec}, "default")
        pod = await classic.pod()
        await classic.context(pod, potentialNodes=list(NODES), selectedNode="node-1")
        assert await until(classic.answer, bool) == {"device": ["node-1", "node-2"]}
        events = await until(classic.events, lambda events: "CannotServeClaim" in events)
        assert events["CannotServeClaim"] == "its class none does not exist"


async def test_parameters_of_class_and_claim_are_written_into_the_allocation(running, until):
    def opaque(**content):
        head = {"apiVersion": "drawbar.dev/v1alpha1", "kind": "DeviceParameters"}
        return {"opaque": {"driver": DRIVER, "parameters": head | content}}

    async with running("1.31-classic") as classic:
        of_class = opaque(environment={"MODE": "fast"}, claimVariables=["DEPTH"])
        body = {"metadata": {"name": "fast"}, "spec": {"config": [of_class]}}
        await classic.make(kinds.CLASSIC_DEVICE_CLASS, body)
        request = {"name": "gpu", "deviceClassName": "fast", "allocationMode": "ExactCount", "count": 1}
        own, bad = opaque(environment={"DEPTH": "4"}), opaque(environment={"MODE": "slow"})
        for name, config in (("bad", bad), ("good", own)):
            devices = {"requests": [request], "config": [config]}
            body = {"metadata": {"name": name}, "spec": {"controller": DRIVER, "devices": devices}}
            await classic.make(classic.claims, body, "default")
            pod = await classic.pod(f"pod-{name}", name)
            await classic.context(pod, potentialNodes=list(NODES), selectedNode="node-1")

        ((name, attachment),) = (await classic.wait_until_attached()).items()
        assert attachment["spec"]["claim"]["name"] == "good"
        await classic.node_says(name, attachments.VISIBLE)
        status = await classic.wait_until_allocated("good")
        handle, *config = status["allocation"]["devices"]["config"]
        assert handles.is_handle(handle["opaque"]["parameters"])
        assert config == [
            of_class | {"source": "FromClass", "requests": ["gpu"]},
            own | {"source": "FromClaim"},
        ]

        events = await until(classic.events, lambda events: "CannotServeClaim" in events)
        assert "environment.MODE is not among the claimVariables" in events["CannotServeClaim"]
        assert "allocation" not in (await classic.read("bad")).get("status", {})


async def test_pods_that_compete_for_devices_are_all_served_by_scheduler_and_controller(
    tmp_path, running, until, profile
):
    names = [f"p{number}" for number in range(5)]
    admin = tmp_path / "admin"
    times = scheduler.Settings(backoff_first_seconds=0.05, backoff_max_seconds=0.2, seed=1)
    async with (
        running(profile) as classic,
        claims.serving(config.from_kubeconfig(admin)),
        scheduler.serving(config.from_kubeconfig(admin), times),
        asyncio.TaskGroup() as tasks,
    ):
        nodes = tasks.create_task(classic.play_nodes())
        for name in names:
            await classic.claim(f"of-{name}")
            await classic.pod(name, f"of-{name}")
        for left in range(len(names), 0, -1):
            pods = await until(classic.pods, lambda pods: any(pods.values()))
            assert len(pods) == left
            await classic.end(next(name for name, node in pods.items() if node))
        await until(classic.attachments, lambda stored: stored == {})
        for name in names:
            await until(
                lambda name=name: classic.read(f"of-{name}"),
                lambda claim: not claim["metadata"].get("finalizers"),
            )
        nodes.cancel()


async def test_an_attempt_survives_that_its_node_is_deleted_and_created_again(running, until):
    async with running("1.31-classic") as classic:
        await classic.claim()
        await classic.context(await classic.pod(), selectedNode=NODES[0], potentialNodes=list(NODES))
        ((name, before),) = (await classic.wait_until_attached()).items()

        async def read_mapping():
            return (await classic.world.fabric_condition("HostsMapped"))["message"]

        node = await classic.api.read(kinds.NODE, NODES[0], into=dict)
        whole = await read_mapping()
        await classic.api.delete(kinds.NODE, NODES[0])
        await until(read_mapping, lambda mapping: mapping != whole)
        again = {"metadata": {"name": NODES[0], "labels": node["metadata"]["labels"]}}
        await classic.make(kinds.NODE, again)
        await until(read_mapping, lambda mapping: mapping == whole)
        await classic.node_says(name, attachments.VISIBLE)
        await classic.wait_until_allocated()
        assert (await classic.attachments())[name]["metadata"]["uid"] == before["metadata"]["uid"]
