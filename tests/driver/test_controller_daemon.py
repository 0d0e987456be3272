"""The controller against the API server double and the simulated fabric, in one process."""

import asyncio
import contextlib
import json
from pathlib import Path

import pytest
import yaml

from drawbar.driver.controller import daemon, settings
from drawbar.driver.kube import client, config, errors, kinds
from drawbar.fabric import contract
from drawbar.fabric.grpc import server as fabric_server
from drawbar.mocks import apiserver
from drawbar.mocks.fabric import configuration
from drawbar.mocks.fabric.simulation import SimulatedFabric

DEPLOY = Path(__file__).parents[2] / "deploy"
DRIVER = "drawbar.dev"
NODES = ("node-1", "node-2")
POOL = "fab/enc-1"
FAILURES = [f"{DRIVER}/attach-failed", f"{DRIVER}/node-failed"]


def fabric_file(path, **changes):
    described = {
        "hosts": [{"id": f"host-{name}", "name": name, "ports": 2} for name in NODES],
        "enclosures": [
            {
                "id": "enc-1",
                "devices": [
                    {"id": "disk-0", "class": "nvme", "model": "M1", "serial": "SN0", "memoryBytes": 0},
                    {"id": "gpu-0", "class": "gpu", "serial": "48-b0-2d-00-00-00-00-01"},
                    {"id": "GPU/1", "class": "gpu", "serial": "48-b0-2d-00-00-00-00-02"},
                ],
            }
        ],
        "attachSeconds": 0.0,
        "detachSeconds": 0.0,
    }
    path.write_text(json.dumps(described | changes))
    return configuration.load(path)


async def apply_files(api):
    await api.create(
        kinds.NAMESPACE,
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "drawbar"}},
        into=dict,
    )
    for folder in ("crds", "rbac"):
        for file in sorted((DEPLOY / folder).glob("*.yaml")):
            for document in yaml.safe_load_all(file.read_text()):
                group, _, version = document["apiVersion"].rpartition("/")
                namespace = document["metadata"].get("namespace")
                kind = kinds.Kind(
                    group=group,
                    version=version,
                    kind=document["kind"],
                    plural=document["kind"].lower() + "s",
                    namespaced=bool(namespace),
                )
                await api.create(kind, document, into=dict, namespace=namespace)


async def until(read, holds, seconds=20):
    """Reads until the value holds; gives the value."""
    async with asyncio.timeout(seconds):
        while True:
            value = await read()
            if holds(value):
                return value
            await asyncio.sleep(0.01)


class World:
    """The cluster as a test sees it: everything through the API server and the fabric."""

    def __init__(self, server, api, path, fabric):
        self.server, self.api, self.path, self.fabric = server, api, path, fabric
        self.controller = None

    @property
    def journal(self):
        lines = (self.path / "journal").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def calls(self, kind):
        return [line["device"] for line in self.journal if (line["event"], line["kind"]) == ("started", kind)]

    def start(self, **changes):
        options = settings.Settings(kubeconfig=str(self.path / "controller"), **changes)
        self.controller = asyncio.Task(daemon.run(options))

    async def stop(self):
        if self.controller is not None:
            self.controller.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.controller

    async def make_fabric(self, name="fab", **spec):
        body = {
            "apiVersion": "drawbar.dev/v1alpha1",
            "kind": "Fabric",
            "metadata": {"name": name},
            "spec": {"adapter": "grpc", "endpoint": f"unix:{self.path / 'f.sock'}"} | spec,
        }
        await self.api.create(kinds.FABRIC, body, into=dict)

    async def fabric_condition(self, kind, name="fab"):
        found = await self.api.read(kinds.FABRIC, name, into=dict)
        known = found.get("status", {}).get("conditions", ())
        return next((one for one in known if one["type"] == kind), {})

    async def slices(self):
        return [one["spec"] for one in (await self.api.list_all(kinds.SLICE, into=dict)).items]

    async def published(self):
        return await until(self.slices, bool)

    async def allocate(self, *devices, name="c1", node=NODES[0], pod="pod-1", at=None):
        claim = await self.api.create(
            kinds.CLAIM,
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": name},
                "spec": {
                    "devices": {
                        "requests": [
                            {"name": f"r{number}", "exactly": {"deviceClassName": "any"}}
                            for number in range(len(devices))
                        ]
                    }
                },
            },
            namespace="default",
            into=dict,
        )
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        results = [
            {
                "request": f"r{number}",
                "driver": DRIVER,
                "pool": POOL,
                "device": device,
                "bindingConditions": [f"{DRIVER}/attached", f"{DRIVER}/visible"],
                "bindingFailureConditions": FAILURES,
            }
            for number, device in enumerate(devices)
        ]
        now = daemon._now().strftime("%Y-%m-%dT%H:%M:%SZ")
        claim["status"] = {
            "allocation": {
                "devices": {"results": results},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
                "allocationTimestamp": at or now,
            },
            "reservedFor": [{"resource": "pods", "name": pod, "uid": pod}],
        }
        return await self.api.replace(
            kinds.CLAIM, name, claim, namespace="default", subresource="status", into=dict
        )

    async def said(self, name="c1"):
        """By device the conditions of the claim that are True, with their reasons."""
        claim = await self.api.read(kinds.CLAIM, name, namespace="default", into=dict)
        return {
            device["device"]: {
                one["type"].removeprefix(f"{DRIVER}/"): one["reason"]
                for one in device["conditions"]
                if one["status"] == "True"
            }
            for device in claim["status"].get("devices", ())
        }

    async def attachments(self):
        return {
            one["metadata"]["name"]: one
            for one in (await self.api.list_all(kinds.ATTACHMENT, into=dict)).items
        }

    async def node_says(self, name, condition, status="True", reason="Said"):
        """What the node daemon would apply."""
        body = {
            "apiVersion": "drawbar.dev/v1alpha1",
            "kind": "DeviceAttachment",
            "metadata": {"name": name},
            "status": {
                "conditions": [
                    {
                        "type": condition,
                        "status": status,
                        "reason": reason,
                        "message": "",
                        "lastTransitionTime": "2026-01-02T03:04:05Z",
                    }
                ]
            },
        }
        await self.api.patch(
            kinds.ATTACHMENT,
            name,
            body,
            content=client.Patch.APPLY,
            into=dict,
            subresource="status",
            manager="drawbar-node",
        )

    async def deallocate(self, name="c1"):
        claim = await self.api.read(kinds.CLAIM, name, namespace="default", into=dict)
        claim["status"] = {}
        await self.api.replace(kinds.CLAIM, name, claim, namespace="default", subresource="status", into=dict)


@contextlib.asynccontextmanager
async def world(tmp_path, profile="1.36", **fabric_changes):
    described = fabric_file(tmp_path / "fabric.json", **fabric_changes)
    async with (
        apiserver.serving(profile=profile) as server,
        SimulatedFabric.running(described, journal=tmp_path / "journal") as fabric,
        fabric_server.serving(fabric, f"unix:{tmp_path / 'f.sock'}", name="sim", version="1"),
    ):
        server.kubeconfig(tmp_path / "admin", "admin")
        server.kubeconfig(tmp_path / "controller", "drawbar:drawbar-controller")
        async with client.connecting(config.from_kubeconfig(tmp_path / "admin")) as api:
            await apply_files(api)
            for name in NODES:
                body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
                await api.create(kinds.NODE, body, into=dict)
            found = World(server, api, tmp_path, fabric)
            try:
                yield found
            finally:
                await found.stop()


async def test_a_fabric_is_published_as_one_pool_per_enclosure(tmp_path):
    async with world(tmp_path) as cluster:
        cluster.start()
        await cluster.make_fabric()
        (published,) = await cluster.published()
        assert published["pool"] == {"name": POOL, "generation": 1, "resourceSliceCount": 1}
        found = {device["name"]: device for device in published["devices"]}
        assert {"disk-0", "gpu-0"} < found.keys()
        assert found["disk-0"]["bindsToNode"]
        assert found["disk-0"]["bindingConditions"] == [f"{DRIVER}/attached", f"{DRIVER}/visible"]
        assert found["disk-0"]["bindingFailureConditions"] == FAILURES
        assert found["disk-0"]["attributes"]["class"] == {"string": "nvme"}
        assert not any("taints" in device for device in found.values())

        async def labels():
            return (await cluster.api.read(kinds.NODE, NODES[0], into=dict))["metadata"].get("labels", {})

        await until(labels, lambda value: value.get("fabric.drawbar.dev/fab") == "true")
        connected = await until(
            lambda: cluster.fabric_condition("Connected"), lambda value: value.get("status") == "True"
        )
        assert connected["reason"] == "Connected"


async def test_an_allocated_device_is_attached_once_said_and_detached_when_released(tmp_path):
    async with world(tmp_path) as cluster:
        cluster.start()
        await cluster.make_fabric()
        await cluster.published()
        claim = await cluster.allocate("disk-0")
        said = await until(cluster.said, lambda value: "attached" in value.get("disk-0", {}))
        assert said == {"disk-0": {"attached": "Attached"}}
        (attachment,) = (
            await until(cluster.attachments, lambda value: "status" in value["fab.disk-0"])
        ).values()
        assert attachment["spec"]["nodeName"] == NODES[0]
        assert attachment["spec"]["hostID"] == "host-node-1"
        assert attachment["spec"]["claim"]["uid"] == claim["metadata"]["uid"]
        assert attachment["spec"]["identity"]["serial"] == "SN0"
        assert attachment["metadata"]["finalizers"] == ["drawbar.dev/detach"]

        await cluster.deallocate()
        deleting = await until(
            cluster.attachments, lambda value: "deletionTimestamp" in value["fab.disk-0"]["metadata"]
        )
        assert cluster.calls("detach") == [], "the node still has it"
        assert deleting
        await cluster.node_says("fab.disk-0", "Released")
        await until(cluster.attachments, lambda value: not value)
        assert cluster.calls("attach") == ["disk-0"]
        assert cluster.calls("detach") == ["disk-0"]
        writes = cluster.server.writes
        assert (
            writes.count(user="system:serviceaccount:drawbar:drawbar-controller", resource="resourceclaims")
            == 1
        )
        assert (
            writes.count(
                user="system:serviceaccount:drawbar:drawbar-controller", resource="deviceattachments"
            )
            == 4
        )


def taints(slices, device):
    found = {one["name"]: one for spec in slices for one in spec["devices"]}
    return [(taint["key"], taint.get("value", "")) for taint in found[device].get("taints", ())]


async def test_a_failed_attach_taints_the_device_then_fails_every_claim_of_the_pod(tmp_path):
    fails = [{"device": "gpu-0", "message": "the link did not come up"}]
    async with world(tmp_path, attachFails=fails) as cluster:
        cluster.start()
        await cluster.make_fabric()
        await cluster.published()
        # The second claim's devices never fail by themselves; the pod's scheduler must see the failure all the same.
        await cluster.allocate("disk-0", name="c2")
        await cluster.allocate("gpu-0", name="c1")
        said = await until(
            lambda: cluster.said("c1"), lambda value: "attach-failed" in value.get("gpu-0", {})
        )
        assert said["gpu-0"]["attach-failed"] == "FabricError"
        assert taints(await cluster.slices(), "gpu-0") == [(f"{DRIVER}/attach-failed", "FabricError")]
        await until(lambda: cluster.said("c2"), lambda value: "attach-failed" in value.get("disk-0", {}))
        failed = (await cluster.attachments())["fab.gpu-0"]["status"]
        assert failed["phase"] == "Failed"
        assert "the link did not come up" in failed["error"]["message"]

        # The scheduler lets go; the attachment is rolled back, and the device stays marked on probation.
        await cluster.deallocate("c1")
        await cluster.node_says("fab.gpu-0", "Released")
        await until(cluster.attachments, lambda value: "fab.gpu-0" not in value)
        assert taints(await cluster.slices(), "gpu-0")


async def test_a_failure_that_the_fabric_calls_passing_is_tried_again_under_a_new_id(tmp_path):
    fails = [{"device": "gpu-0", "code": "UNAVAILABLE", "times": 1}]
    async with world(tmp_path, attachFails=fails) as cluster:
        cluster.start()
        await cluster.make_fabric()
        await cluster.published()
        await cluster.allocate("gpu-0")
        await until(cluster.said, lambda value: "attached" in value.get("gpu-0", {}))
        begun = [line for line in cluster.journal if line["event"] == "started"]
        assert [line["requestID"][-3:] for line in begun] == ["-a1", "-a2"]


async def test_a_taint_is_lifted_after_probation(tmp_path):
    fails = [{"device": "gpu-0"}]
    async with world(tmp_path, attachFails=fails) as cluster:
        cluster.start()
        await cluster.make_fabric(policy={"probationSeconds": 0})
        await cluster.published()
        await cluster.allocate("gpu-0")
        await until(cluster.slices, lambda value: taints(value, "gpu-0"))
        await cluster.deallocate()
        await cluster.node_says("fab.gpu-0", "Released")
        await until(cluster.attachments, lambda value: not value)
        await until(cluster.slices, lambda value: not taints(value, "gpu-0"))


async def test_a_device_that_the_node_could_not_initialise_is_tainted_and_its_claim_failed(tmp_path):
    async with world(tmp_path) as cluster:
        cluster.start()
        await cluster.make_fabric()
        await cluster.published()
        await cluster.allocate("gpu-0")
        await until(cluster.said, lambda value: "attached" in value.get("gpu-0", {}))
        await cluster.node_says("fab.gpu-0", "Visible", status="False", reason="DriverNotBound")
        said = await until(cluster.said, lambda value: "attach-failed" in value.get("gpu-0", {}))
        assert said["gpu-0"]["attach-failed"] == "DriverNotBound"
        assert taints(await cluster.slices(), "gpu-0") == [(f"{DRIVER}/attach-failed", "DriverNotBound")]


async def test_a_claim_for_a_device_that_is_gone_fails_with_the_reason(tmp_path):
    async with world(tmp_path) as cluster:
        cluster.start()
        await cluster.make_fabric()
        await cluster.published()
        await cluster.allocate("no-such-device")
        said = await until(cluster.said, bool)
        assert said["no-such-device"] == {"attach-failed": "DeviceGone"}
        assert await cluster.attachments() == {}


async def test_a_claim_on_a_node_that_the_fabric_does_not_reach_says_what_to_do(tmp_path):
    async with world(tmp_path) as cluster:
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "elsewhere"}}
        await cluster.api.create(kinds.NODE, body, into=dict)
        cluster.start()
        await cluster.make_fabric()
        await cluster.published()
        await cluster.allocate("gpu-0", node="elsewhere")
        said = await until(cluster.said, bool)
        assert said["gpu-0"] == {"attach-failed": "NodeNotOnFabric"}
        assert not taints(await cluster.slices(), "gpu-0"), "the device is not to blame"


async def test_a_device_that_somebody_else_attached_is_marked_and_never_touched(tmp_path):
    async with world(tmp_path) as cluster:
        await cluster.fabric.attach(
            contract.AttachRequest(request_id="other", device_id="gpu-0", host_id="host-node-2")
        )
        cluster.start()
        await cluster.make_fabric()
        await until(cluster.slices, lambda value: value and taints(value, "gpu-0"))
        assert taints(await cluster.slices(), "gpu-0") == [(f"{DRIVER}/in-use", "")]
        await cluster.allocate("gpu-0")
        said = await until(cluster.said, bool)
        assert said["gpu-0"] == {"attach-failed": "DeviceInUse"}
        assert cluster.calls("detach") == []
        await cluster.fabric.detach(
            contract.DetachRequest(
                request_id="other-d", device_id="gpu-0", host_id="host-node-2", host_prepared=True
            )
        )
        await until(cluster.slices, lambda value: not taints(value, "gpu-0"))


@pytest.mark.parametrize("when", ["attaching", "attached", "detaching"])
async def test_a_controller_that_died_goes_on_where_it_was_and_calls_nothing_twice(tmp_path, when):
    async with world(tmp_path, attachSeconds=0.3, detachSeconds=0.3) as cluster:
        cluster.start()
        await cluster.make_fabric()
        await cluster.published()
        await cluster.allocate("gpu-0")

        async def attach_calls():
            return cluster.calls("attach")

        async def detach_calls():
            return cluster.calls("detach")

        await until(attach_calls, bool)
        if when == "attaching":
            await cluster.stop()
            cluster.start()
        await until(cluster.said, lambda value: "attached" in value.get("gpu-0", {}))
        if when == "attached":
            await cluster.stop()
            cluster.start()
        await cluster.deallocate()
        await until(cluster.attachments, lambda value: "deletionTimestamp" in value["fab.gpu-0"]["metadata"])
        await cluster.node_says("fab.gpu-0", "Released")
        await until(detach_calls, bool)
        if when == "detaching":
            await cluster.stop()
            cluster.start()
        await until(cluster.attachments, lambda value: not value)
        assert cluster.calls("attach") == ["gpu-0"]
        assert cluster.calls("detach") == ["gpu-0"]
        inventory = await cluster.fabric.devices()
        assert inventory.device("gpu-0").connection is None


async def test_a_claim_deleted_in_mid_attach_leaves_nothing_attached(tmp_path):
    async with world(tmp_path, attachSeconds=0.3) as cluster:
        cluster.start()
        await cluster.make_fabric()
        await cluster.published()
        await cluster.allocate("gpu-0")

        async def attach_calls():
            return cluster.calls("attach")

        await until(attach_calls, bool)
        await cluster.deallocate()
        await until(cluster.attachments, lambda value: "deletionTimestamp" in value["fab.gpu-0"]["metadata"])
        await cluster.node_says("fab.gpu-0", "Released")
        await until(cluster.attachments, lambda value: not value)
        inventory = await cluster.fabric.devices()
        assert inventory.device("gpu-0").connection is None


async def test_a_deadline_that_passed_while_the_fabric_was_silent_fails_the_claim(tmp_path):
    async with world(tmp_path) as cluster:
        cluster.start()
        await cluster.make_fabric(endpoint=f"unix:{tmp_path / 'nobody'}")
        await until(
            lambda: cluster.fabric_condition("Connected"), lambda value: value.get("status") == "False"
        )
        await cluster.allocate("gpu-0", at="2026-01-02T03:04:05Z")
        said = await until(cluster.said, bool)
        assert said["gpu-0"] == {"attach-failed": "AttachDeadlineExceeded"}


@pytest.mark.parametrize(
    ("spec", "reason", "word"),
    [
        ({"adapter": "redfsh"}, "InvalidConfiguration", 'unknown fabric adapter "redfsh"'),
        ({"endpoint": "http://x"}, "InvalidConfiguration", "unix:"),
    ],
    ids=["an unknown adapter", "an endpoint that is no socket"],
)
async def test_a_malformed_fabric_is_told_on_the_object_and_stops_no_other(tmp_path, spec, reason, word):
    async with world(tmp_path) as cluster:
        cluster.start()
        await cluster.make_fabric("broken", **spec)
        await cluster.make_fabric()
        found = await until(lambda: cluster.fabric_condition("Connected", "broken"), bool)
        assert (found["status"], found["reason"]) == ("False", reason)
        assert word in found["message"]
        assert await cluster.published()


async def test_nothing_is_published_where_the_api_server_drops_binding_conditions(tmp_path):
    async with world(tmp_path, profile="1.34") as cluster:
        cluster.start()
        await cluster.make_fabric()
        found = await until(
            lambda: cluster.fabric_condition("FeaturesDropped"), lambda value: value.get("status") == "True"
        )
        assert "bindingConditions" in found["message"]
        assert "DRADeviceBindingConditions" in found["message"]
        assert await cluster.slices() == []


async def test_a_slice_that_somebody_deletes_comes_back_and_pools_go_with_their_fabric(tmp_path):
    async with world(tmp_path) as cluster:
        cluster.start()
        await cluster.make_fabric()
        await cluster.published()
        (found,) = (await cluster.api.list_all(kinds.SLICE, into=dict)).items
        await cluster.api.delete(kinds.SLICE, found["metadata"]["name"])
        (again,) = (
            await until(lambda: cluster.api.list_all(kinds.SLICE, into=dict), lambda one: one.items)
        ).items
        assert again["metadata"]["uid"] != found["metadata"]["uid"]
        assert again["spec"]["devices"] == found["spec"]["devices"]
        await cluster.api.delete(kinds.FABRIC, "fab")
        await until(cluster.slices, lambda value: not value)


async def test_a_fabric_whose_name_is_too_long_for_a_label_is_refused_with_the_reason(tmp_path):
    async with world(tmp_path) as cluster:
        with pytest.raises(errors.Invalid, match="at most 63 characters"):
            await cluster.make_fabric("f" * 64)
        await cluster.make_fabric("f" * 63)


async def test_a_missing_permission_is_told_on_the_fabric_and_mended_without_a_restart(tmp_path):
    async with world(tmp_path) as cluster:
        role = kinds.Kind(
            group="rbac.authorization.k8s.io",
            version="v1",
            kind="ClusterRole",
            plural="clusterroles",
            namespaced=False,
        )
        whole = await cluster.api.read(role, "drawbar-controller", into=dict)
        rules = [rule for rule in whole["rules"] if "resourceslices" not in rule["resources"]]
        watching = {
            "apiGroups": ["resource.k8s.io"],
            "resources": ["resourceslices"],
            "verbs": ["list", "watch"],
        }
        body = {"rules": [*rules, watching]}
        await cluster.api.patch(role, "drawbar-controller", body, content=client.Patch.MERGE, into=dict)
        cluster.start()
        await cluster.make_fabric()
        told = await until(
            lambda: cluster.fabric_condition("Published"), lambda value: value.get("status") == "False"
        )
        assert "resourceslices" in told["message"]
        assert "cannot create" in told["message"]
        body = {"rules": whole["rules"]}
        await cluster.api.patch(role, "drawbar-controller", body, content=client.Patch.MERGE, into=dict)
        await until(
            lambda: cluster.fabric_condition("Published"), lambda value: value.get("status") == "True"
        )
        assert await cluster.slices()
