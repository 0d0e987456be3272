"""The controller beside others: other fabrics, other drivers, other writers, and claims that want the same device."""

import pytest

from drawbar.driver.controller.attachments import executor
from drawbar.driver.kube import kinds
from drawbar.fabric.contract import DeviceClass
from drawbar.fabric.grpc import server as fabric_server
from drawbar.mocks.fabric import configuration
from drawbar.mocks.fabric.simulation import SimulatedFabric

DRIVER = "drawbar.dev"


async def test_a_fabric_that_never_answers_delays_no_other(controller_world, until, tmp_path):
    many = [f"gpu-{number}" for number in range(6)]
    described = configuration.Configuration(
        hosts=(configuration.HostSpec(id="host-node-2", name="node-2", ports=6),),
        enclosures=(
            configuration.EnclosureSpec(
                id="enc-1",
                devices=tuple(
                    configuration.DeviceSpec(id=name, device_class=DeviceClass.GPU) for name in many
                ),
            ),
        ),
    )
    async with (
        controller_world() as cluster,
        SimulatedFabric.running(described) as other,
        fabric_server.serving(other, f"unix:{tmp_path / 'o.sock'}", name="sim", version="1"),
    ):
        cluster.start()
        await cluster.make_fabric()
        await cluster.make_fabric("other", endpoint=f"unix:{tmp_path / 'o.sock'}")
        await until(cluster.slices, lambda value: len(value) == 2)
        other.console.pause()
        # Each of these calls hangs, and they are more than one fabric has workers.
        for name in many:
            await cluster.allocate(name, name=f"c-{name}", pod=name, pool="other/enc-1", node="node-2")
        await until(cluster.attachments, lambda value: len(value) >= executor.WORKERS)
        await cluster.allocate("gpu-0")
        await cluster.wait_until_attached("gpu-0")
        assert [await cluster.device_conditions(f"c-{name}") for name in many] == [{}] * len(many)
        other.console.resume()
        for name in many:
            await cluster.wait_until_attached(name, f"c-{name}")
        await cluster.stop()


async def test_slices_of_other_owners_are_left_alone(controller_world, until):
    async with controller_world() as cluster:

        def body(name, driver, pool, **where):
            spec = {"driver": driver, "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1}}
            return {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceSlice",
                "metadata": {"name": name},
                "spec": {**spec, **where, "devices": [{"name": "one"}]},
            }

        foreign = [
            body("another-driver", "gpu.example.com", "fab/enc-1", allNodes=True),
            body("of-our-node-daemon", DRIVER, "node-1", nodeName="node-1"),
            body("made-by-hand", DRIVER, "fab-2/enc-1", allNodes=True),
        ]
        for slice_ in foreign:
            await cluster.api.create(kinds.SLICE, slice_, into=dict)

        async def versions():
            listing = await cluster.api.list_all(kinds.SLICE, into=dict)
            names = {slice_["metadata"]["name"] for slice_ in foreign}
            return {
                slice_["metadata"]["name"]: slice_["metadata"]["resourceVersion"]
                for slice_ in listing.items
                if slice_["metadata"]["name"] in names
            }

        before = await versions()
        cluster.start()
        await cluster.make_fabric()
        await until(cluster.slices, lambda value: len(value) == 4)
        await cluster.api.delete(kinds.FABRIC, "fab")
        await until(cluster.slices, lambda value: len(value) == 3)
        assert await versions() == before


async def test_a_slice_that_was_changed_is_put_right_in_place(controller_world, until):
    async with controller_world() as cluster:
        cluster.start()
        await cluster.make_fabric()
        (wanted,) = await cluster.wait_for_slices()
        (slice_,) = (await cluster.api.list_all(kinds.SLICE, into=dict)).items
        patch = {"spec": {"devices": wanted["devices"][:1]}}
        name = slice_["metadata"]["name"]
        await cluster.patch(kinds.SLICE, name, patch)
        await until(cluster.slices, lambda value: value == [wanted])


async def test_entries_of_other_drivers_on_a_claim_stay(served_world):
    ready = {
        "type": "Ready",
        "status": "False",
        "reason": "NotYet",
        "message": "",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }
    other = {"driver": "gpu.example.com", "pool": "p", "device": "gpu-0"}
    async with served_world(attachFails=[{"device": "gpu-0"}]) as cluster:
        await cluster.stop()
        claim = await cluster.allocate("gpu-0")
        results = claim["status"]["allocation"]["devices"]["results"]
        # Named as if it were ours.
        names = {"bindingConditions": [f"{DRIVER}/attached"], "bindingFailureConditions": ["Bad"]}
        results.insert(0, {"request": "r0", **other, **names})
        claim["status"]["devices"] = [{**other, "conditions": [ready]}]
        # An allocation can only be written whole.
        await cluster.deallocate()
        fresh = await cluster.api.read(kinds.CLAIM, "c1", namespace="default", into=dict)
        claim["metadata"] = fresh["metadata"]
        await cluster.api.replace(
            kinds.CLAIM, "c1", claim, namespace="default", subresource="status", into=dict
        )
        cluster.start()
        await cluster.wait_until_failed("gpu-0")
        stored = await cluster.api.read(kinds.CLAIM, "c1", namespace="default", into=dict)
        by_driver = {entry["driver"]: entry for entry in stored["status"]["devices"]}
        assert by_driver["gpu.example.com"] == {**other, "conditions": [ready]}
        assert list(await cluster.attachments()) == ["fab.gpu-0"]
        assert cluster.calls("attach") == ["gpu-0"]


@pytest.mark.parametrize("node", ["node-1", "node-2"])
async def test_a_device_allocated_to_two_claims_stays_with_the_first(served_world, until, node):
    async with served_world() as cluster:
        first = await cluster.allocate("gpu-0", name="c1")
        await until(lambda: cluster.device_conditions("c1"), bool)
        await cluster.allocate("gpu-0", name="c2", pod="pod-2", node=node)
        # After 5 s, for which two claims may overlap while one lets go.
        device_conditions = await until(lambda: cluster.device_conditions("c2"), bool)
        assert device_conditions == {"gpu-0": {"attach-failed": "DeviceInUse"}}
        (kept,) = (await cluster.attachments()).values()
        assert kept["spec"]["claim"]["uid"] == first["metadata"]["uid"]
        assert cluster.calls("attach") == ["gpu-0"]
        assert cluster.calls("detach") == []


async def test_a_claim_that_failed_and_keeps_its_allocation_holds_up_no_other(served_world):
    async with served_world() as cluster:
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "elsewhere"}}
        await cluster.api.create(kinds.NODE, body, into=dict)
        await cluster.allocate("gpu-0", name="c1", node="elsewhere")
        await cluster.wait_until_failed("gpu-0", "c1")
        await cluster.allocate("gpu-0", name="c2", pod="pod-2")
        await cluster.wait_until_attached("gpu-0", "c2")


async def test_a_device_that_its_node_does_not_let_go_of_is_marked_and_the_next_claim_gets_the_reason(
    served_world, until
):
    async with served_world(spec={"policy": {"attachTimeoutSeconds": 5}}) as cluster:
        await cluster.allocate("gpu-0", name="c1")
        await until(lambda: cluster.device_conditions("c1"), bool)
        await cluster.deallocate("c1")
        await cluster.wait_until_deleting("fab.gpu-0")
        await cluster.node_says("fab.gpu-0", "Released", status="False", reason="InUse")

        await until(
            lambda: cluster.marks("gpu-0"), lambda taints: taints == [("in-use", "releasing", "NoSchedule")]
        )
        await cluster.allocate("gpu-0", name="c2", pod="pod-2")
        device_conditions = await until(lambda: cluster.device_conditions("c2"), bool)
        assert device_conditions == {"gpu-0": {"attach-failed": "AttachDeadlineExceeded"}}
        claim = await cluster.api.read(kinds.CLAIM, "c2", namespace="default", into=dict)
        (condition,) = claim["status"]["devices"][0]["conditions"]
        assert "still being released from node node-1" in condition["message"]
        await cluster.deallocate("c2")
        await cluster.release_attachments("fab.gpu-0")
        await until(lambda: cluster.marks("gpu-0"), lambda taints: taints == [])
        assert cluster.calls("attach") == cluster.calls("detach") == ["gpu-0"]
