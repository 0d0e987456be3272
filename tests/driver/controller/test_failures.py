"""The controller against the API server double and the simulated fabric: what fails, and which object reports it."""

import pytest

from drawbar.driver.kube import client, errors, kinds
from drawbar.fabric import contract

DRIVER = "drawbar.dev"


async def test_a_failed_attach_taints_the_device_then_fails_every_claim_of_the_pod(served_world, until):
    fails = [{"device": "gpu-0", "message": "the link did not come up"}]
    async with served_world(attachFails=fails) as cluster:
        # The second claim's devices never fail by themselves; the pod's scheduler must see the failure all the same.
        await cluster.allocate("disk-0", name="c2")
        await cluster.allocate("gpu-0", name="c1")
        device_conditions = await cluster.wait_until_failed("gpu-0", "c1")
        assert device_conditions["gpu-0"]["attach-failed"] == "FabricError"
        assert await cluster.marks("gpu-0") == [("attach-failed", "FabricError", "NoSchedule")]
        await cluster.wait_until_failed("disk-0", "c2")
        failed = (await cluster.attachments())["fab.gpu-0"]["status"]
        assert failed["phase"] == "Failed"
        assert "the link did not come up" in failed["error"]["message"]

        # The scheduler lets go; the attachment is rolled back, and the device stays marked on probation.
        await cluster.deallocate("c1")
        await cluster.node_says("fab.gpu-0", "Released")
        await until(cluster.attachments, lambda value: "fab.gpu-0" not in value)
        assert await cluster.marks("gpu-0")


async def test_a_failure_that_the_fabric_calls_passing_is_tried_again_under_a_new_id(served_world):
    fails = [{"device": "gpu-0", "code": "UNAVAILABLE", "times": 1}]
    async with served_world(attachFails=fails) as cluster:
        await cluster.allocate("gpu-0")
        await cluster.wait_until_attached("gpu-0")
        begun = [line for line in cluster.journal if line["event"] == "started"]
        assert [line["requestID"][-3:] for line in begun] == ["-a1", "-a2"]


async def test_a_taint_is_lifted_after_probation(served_world, until):
    fails = [{"device": "gpu-0"}]
    async with served_world(attachFails=fails, spec={"policy": {"probationSeconds": 0}}) as cluster:
        await cluster.allocate("gpu-0")
        await until(lambda: cluster.marks("gpu-0"), bool)
        await cluster.deallocate()
        await cluster.release_attachments("fab.gpu-0")
        await until(lambda: cluster.marks("gpu-0"), lambda taints: taints == [])


async def test_a_device_that_the_node_could_not_initialise_is_tainted_and_its_claim_failed(served_world):
    async with served_world() as cluster:
        await cluster.allocate("gpu-0")
        await cluster.wait_until_attached("gpu-0")
        await cluster.node_says("fab.gpu-0", "Visible", status="False", reason="DriverNotBound")
        device_conditions = await cluster.wait_until_failed("gpu-0")
        assert device_conditions["gpu-0"]["attach-failed"] == "DriverNotBound"
        status = (await cluster.attachments())["fab.gpu-0"]["status"]
        assert status["error"]["reason"] == "DriverNotBound"
        conditions = {condition["type"]: condition["status"] for condition in status["conditions"]}
        assert conditions["Attached"] == "True"
        assert await cluster.marks("gpu-0") == [("attach-failed", "DriverNotBound", "NoSchedule")]


async def test_a_claim_for_a_device_that_is_gone_fails_with_the_reason(served_world, until):
    async with served_world() as cluster:
        await cluster.allocate("no-such-device")
        device_conditions = await until(cluster.device_conditions, bool)
        assert device_conditions["no-such-device"] == {"attach-failed": "DeviceGone"}
        assert await cluster.attachments() == {}


async def test_a_claim_on_an_unreachable_node_fails_with_a_remedy(controller_world, until):
    async with controller_world() as cluster:
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "elsewhere"}}
        await cluster.api.create(kinds.NODE, body, into=dict)
        cluster.start()
        await cluster.make_fabric()
        await cluster.wait_for_slices()
        await cluster.allocate("gpu-0", node="elsewhere")
        device_conditions = await until(cluster.device_conditions, bool)
        assert device_conditions["gpu-0"] == {"attach-failed": "NodeNotOnFabric"}
        assert await cluster.marks("gpu-0") == [], "the device is not to blame"


async def test_a_device_that_was_attached_from_outside_is_marked_and_never_touched(controller_world, until):
    async with controller_world() as cluster:
        await cluster.fabric.attach(
            contract.AttachRequest(request_id="other", device_id="gpu-0", host_id="host-node-2")
        )
        cluster.start()
        await cluster.make_fabric()
        await until(lambda: cluster.marks("gpu-0"), bool)
        assert await cluster.marks("gpu-0") == [("in-use", "", "NoSchedule")]
        await cluster.allocate("gpu-0")
        device_conditions = await until(cluster.device_conditions, bool)
        assert device_conditions["gpu-0"] == {"attach-failed": "DeviceInUse"}
        assert cluster.calls("detach") == []
        await cluster.fabric.detach(
            contract.DetachRequest(
                request_id="other-d", device_id="gpu-0", host_id="host-node-2", host_prepared=True
            )
        )
        await until(lambda: cluster.marks("gpu-0"), lambda taints: taints == [])


async def test_a_deadline_that_passed_while_the_fabric_was_silent_fails_the_claim(controller_world, until):
    async with controller_world() as cluster:
        cluster.start(binding_timeout_seconds=2.0)
        await cluster.make_fabric(endpoint=f"unix:{cluster.path / 'absent'}")
        await cluster.condition("Connected", status="False")
        await cluster.allocate("gpu-0")
        device_conditions = await until(cluster.device_conditions, bool)
        assert device_conditions["gpu-0"] == {"attach-failed": "FabricUnreachable"}


@pytest.mark.parametrize(
    ("spec", "reason", "word"),
    [
        ({"adapter": "redfsh"}, "InvalidConfiguration", 'unknown fabric adapter "redfsh"'),
        ({"endpoint": "http://x"}, "InvalidConfiguration", "unix:"),
    ],
    ids=["an unknown adapter", "an endpoint that is no socket"],
)
async def test_a_malformed_fabric_is_reported_on_the_object_and_stops_no_other(
    controller_world, spec, reason, word
):
    async with controller_world() as cluster:
        cluster.start()
        await cluster.make_fabric("broken", **spec)
        await cluster.make_fabric()
        condition = await cluster.condition("Connected", "broken", status="False")
        assert condition["reason"] == reason
        assert word in condition["message"]
        assert await cluster.wait_for_slices()


async def test_nothing_is_published_where_the_api_server_drops_binding_conditions(controller_world):
    async with controller_world(profile="1.34") as cluster:
        cluster.start()
        await cluster.make_fabric()
        condition = await cluster.condition("FeaturesDropped", status="True")
        assert "bindingConditions" in condition["message"]
        assert "DRADeviceBindingConditions" in condition["message"]
        assert await cluster.slices() == []


async def test_a_fabric_whose_name_is_too_long_for_a_label_is_refused_with_the_reason(controller_world):
    async with controller_world() as cluster:
        with pytest.raises(errors.Invalid, match="at most 63 characters"):
            await cluster.make_fabric("f" * 64)
        await cluster.make_fabric("f" * 63)


async def test_a_missing_permission_is_reported_on_the_fabric_and_mended_without_a_restart(
    controller_world, until
):
    async with controller_world() as cluster:
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
        # It is not published before the fabric has answered, either.
        condition = await until(
            lambda: cluster.fabric_condition("Published"),
            lambda value: "cannot create" in value.get("message", ""),
        )
        assert "resourceslices" in condition["message"]
        assert condition["status"] == "False"
        body = {"rules": whole["rules"]}
        await cluster.api.patch(role, "drawbar-controller", body, content=client.Patch.MERGE, into=dict)
        await cluster.condition("Published", status="True")
        assert await cluster.slices()
