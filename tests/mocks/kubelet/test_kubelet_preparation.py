"""From a bound pod to its containers: the calls, the errors, and which container gets which device."""

import json

import pytest

from drawbar.driver.kube import kinds
from drawbar.proto.kubelet.dra.v1 import api_pb2

FAILED = "FailedPrepareDynamicResources"


def refusal(text):
    return lambda claims: {claim.uid: api_pb2.NodePrepareResourceResponse(error=text) for claim in claims}


async def test_the_node_is_ready_with_its_labels_and_ids(world):
    async with world.kubelet():
        node = await world.api.read(kinds.NODE, "node-a", into=dict)
    assert node["metadata"]["labels"] == {"kubernetes.io/hostname": "node-a", "rack": "1"}
    assert [(condition["type"], condition["status"]) for condition in node["status"]["conditions"]] == [
        ("Ready", "True")
    ]
    assert node["status"]["nodeInfo"]["bootID"] == "3f0f8e1e-0000-4000-8000-000000000001"
    assert node["status"]["nodeInfo"]["systemUUID"]


async def test_a_pod_runs_with_the_cdi_edits_of_its_devices(world):
    async with world.kubelet(), world.plugin() as plugin:
        await plugin.wait_for_registration()
        await world.pod("p1", "c1")
        pod = await world.runs()
        spec = world.runtime_spec(pod)
    assert spec["process"]["env"] == ["DRAWBAR=1", "DEVICE=slot-1"]
    assert spec["linux"]["devices"] == [{"path": "/dev/nvme9n1", "type": "b", "major": 259, "minor": 3}]
    (mount,) = spec["mounts"]
    assert (mount["source"], mount["destination"]) == ("/srv/a", "/a")
    assert spec["hooks"] == {"createContainer": [{"path": "/bin/true"}]}
    annotation = json.loads(pod["metadata"]["annotations"]["mocks.drawbar.dev/prepared"])
    assert annotation == [
        {"claim": "c1", "device": "drawbar.dev/chassis-1/slot-1", "cdi": ["drawbar.dev/claim=slot-1"]}
    ]
    assert pod["status"]["containerStatuses"][0]["state"]["running"]


async def test_a_container_gets_only_the_claims_and_requests_that_it_names(world):
    def prepare_both(claims):
        devices = [world.device("slot-1", "one"), world.device("slot-2", "two")]
        return {claim.uid: api_pb2.NodePrepareResourceResponse(devices=devices) for claim in claims}

    def container(name, *uses):
        return {"name": name, "image": "none", "resources": {"claims": list(uses)}}

    containers = [
        container("all", {"name": "c1"}),
        container("second", {"name": "c1", "request": "two"}),
        container("none"),
    ]
    setup = [container("setup", {"name": "c1", "request": "one"})]
    async with world.kubelet() as node, world.plugin(prepare_both) as plugin:
        await plugin.wait_for_registration()
        await world.pod("p1", "c1", containers=containers, initContainers=setup)
        pod = await world.runs()
        own = {
            name: set(world.runtime_spec(pod, file)["process"]["env"]) - {"DRAWBAR=1"}
            for name, file in {
                "all": "config.json",
                "second": "config-second.json",
                "none": "config-none.json",
                "setup": "config-setup.json",
            }.items()
        }
        assert node.sandboxes.uids() == [pod["metadata"]["uid"]]
    assert own == {
        "all": {"DEVICE=slot-1", "SECOND=slot-2"},
        "second": {"SECOND=slot-2"},
        "none": set(),
        "setup": {"DEVICE=slot-1"},
    }


async def test_one_call_carries_all_claims_of_the_pod(world):
    async with world.kubelet(), world.plugin() as plugin:
        await plugin.wait_for_registration()
        await world.pod("p1", "c1", "c2")
        await world.runs()
    assert plugin.prepares == [["c1", "c2"]]


async def test_a_claim_that_no_container_uses_is_prepared_all_the_same(world):
    async with world.kubelet(), world.plugin() as plugin:
        await plugin.wait_for_registration()
        pod = await world.pod("p1", "c1", containers=[{"name": "main", "image": "none"}])
        await world.runs()
    assert plugin.prepares == [["c1"]]
    assert world.runtime_spec(pod)["process"]["env"] == []


async def test_two_pods_of_one_claim_prepare_once_and_the_last_one_unprepares(world):
    async with world.kubelet(), world.plugin() as plugin:
        await plugin.wait_for_registration()
        await world.pod("p1", "c1")
        await world.runs("p1")
        await world.pod("p2", "c1")
        await world.runs("p2")
        await world.delete(kinds.POD, "p1")
        await world.wait_until_pod_gone("p1")
        assert plugin.calls == [("prepare", ["c1"])]
        await world.delete(kinds.POD, "p2")
        await world.wait_until_pod_gone("p2")
    assert plugin.calls == [("prepare", ["c1"]), ("unprepare", ["c1"])]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        pytest.param(
            refusal("not visible yet"),
            "prepare dynamic resources: NodePrepareResources failed for ResourceClaim c1: not visible yet",
            id="claim-error",
        ),
        pytest.param(lambda claims: {}, "NodePrepareResources skipped 1 ResourceClaims", id="missing-uid"),
        pytest.param(
            lambda claims: {"x": api_pb2.NodePrepareResourceResponse()},
            "NodePrepareResources returned result for unknown claim UID x",
            id="unknown-uid",
        ),
        pytest.param(
            RuntimeError("disk full"),
            "NodePrepareResources: rpc error: code = Internal desc = disk full",
            id="rpc-error",
        ),
    ],
)
async def test_a_failed_prepare_is_an_event_and_is_tried_again(world, answer, words):
    async with world.kubelet(), world.plugin(answer, world.all_prepared) as plugin:
        await plugin.wait_for_registration()
        await world.pod("p1", "c1")
        await world.event(FAILED, words)
        await world.runs()
    assert plugin.prepares == [["c1"], ["c1"]]


async def test_a_call_that_takes_too_long_is_cancelled_and_retried(world):
    async with world.kubelet(call_timeout_seconds=0.1), world.plugin() as plugin:
        await plugin.wait_for_registration()
        plugin.blocked.clear()
        await world.pod("p1", "c1")
        await world.event(FAILED, "NodePrepareResources: rpc error: code = DeadlineExceeded")
        plugin.blocked.set()
        await world.runs()


async def test_a_plugin_that_is_deregistered_during_a_call_fails_it(world):
    async with world.kubelet() as node:
        async with world.plugin() as plugin:
            await plugin.wait_for_registration()
            plugin.blocked.clear()
            await world.pod("p1", "c1")
            await plugin.wait_for_call()
            plugin.registration.unlink()
            await world.event(FAILED, "NodePrepareResources: rpc error: code = Canceled")
            plugin.blocked.set()
        await world.drivers(node)
        async with world.plugin(name="2"):
            await world.runs()


async def test_a_pod_of_an_unregistered_driver_waits_until_the_plugin_comes(world):
    async with world.kubelet():
        await world.pod("p1", "c1")
        await world.event(FAILED, f"DRA driver {world.DRIVER} is not registered")
        async with world.plugin():
            await world.runs()


async def test_a_pod_whose_driver_never_was_there_can_be_deleted(world):
    async with world.kubelet():
        await world.pod("p1", "c1")
        await world.event(FAILED, "is not registered")
        await world.delete(kinds.POD, "p1")
        await world.wait_until_pod_gone()


async def test_a_pod_for_which_the_claim_is_not_reserved_is_refused(world):
    async with world.kubelet(), world.plugin() as plugin:
        await plugin.wait_for_registration()
        await world.pod("p1", "c1", reserve=False)
        await world.event(FAILED, "is not allowed to use ResourceClaim c1")
    assert plugin.calls == []


async def test_a_pod_whose_claim_does_not_exist_is_refused(world):
    entry = {"name": "c1", "resourceClaimName": "c1"}
    async with world.kubelet():
        await world.pod("p1", resourceClaims=[entry])
        await world.event(FAILED, "fetch ResourceClaim c1: ")


async def test_a_claim_of_a_template_that_was_not_made_yet_is_waited_for(world):
    entry = {"name": "c1", "resourceClaimTemplateName": "t"}
    async with world.kubelet():
        await world.pod("p1", resourceClaims=[entry])
        await world.event(FAILED, "ResourceClaim not created yet")


async def test_a_cdi_id_that_no_spec_defines_is_an_event_and_prepare_is_not_called_again(world):
    (world.directory / "cdi" / "claim.json").unlink()
    async with world.kubelet(), world.plugin() as plugin:
        await plugin.wait_for_registration()
        await world.pod("p1", "c1")
        await world.event("Failed", "unresolvable CDI devices drawbar.dev/claim=slot-1")
        world.write_cdi()
        await world.runs()
    assert plugin.prepares == [["c1"]]


async def test_an_error_of_a_cdi_file_is_in_the_event(world):
    world.write_cdi({"cdiVersion": "0.5.0", "kind": "drawbar.dev/claim", "devices": [{"name": "slot-1"}]})
    async with world.kubelet(), world.plugin() as plugin:
        await plugin.wait_for_registration()
        await world.pod("p1", "c1")
        await world.event("Failed", "claim.json is ignored: invalid device 'slot-1', empty device edits")
