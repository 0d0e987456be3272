"""The controller against the API server double and the simulated fabric: what works, and goes on working."""

import asyncio
import dataclasses
import functools

import pytest
from tests.scenes import attachments as scenes
from tests.scenes import maintenances

from drawbar.driver.api import meta
from drawbar.driver.controller import fabric_reconciler, names
from drawbar.driver.kube import client, kinds, mirror, workers
from drawbar.fabric import contract
from drawbar.mocks.apiserver import faults

DRIVER = "drawbar.dev"
CONTROLLER = "system:serviceaccount:drawbar:drawbar-controller"
NODES = ("node-1", "node-2")
POOL = "fab/enc-1"
FAILURES = [f"{DRIVER}/attach-failed", f"{DRIVER}/node-failed"]


async def test_a_fabric_is_published_as_one_pool_per_enclosure(controller_world, until):
    async with controller_world() as cluster:
        cluster.start()
        await cluster.make_fabric()
        (published,) = await cluster.wait_for_slices()
        assert published["pool"] == {"name": POOL, "generation": 1, "resourceSliceCount": 1}
        devices = {device["name"]: device for device in published["devices"]}
        assert {"disk-0", "gpu-0"} < devices.keys()
        assert devices["disk-0"]["bindsToNode"]
        assert devices["disk-0"]["bindingConditions"] == [f"{DRIVER}/attached", f"{DRIVER}/visible"]
        assert devices["disk-0"]["bindingFailureConditions"] == FAILURES
        assert devices["disk-0"]["attributes"]["class"] == {"string": "nvme"}
        assert not any("taints" in device for device in devices.values())
        await until(
            lambda: cluster.labels(NODES[0]), lambda value: value.get("fabric.drawbar.dev/fab") == "true"
        )
        connected = await cluster.condition("Connected", status="True")
        assert connected["reason"] == "Connected"


async def test_a_node_that_claims_to_be_the_host_of_another_unmaps_no_node_and_is_shown_on_the_fabric(
    served_world,
):
    async with served_world(spec={"nodeAnnotation": "rack/host"}) as cluster:
        mine = {"metadata": {"annotations": {"rack/host": "host-node-1"}}}
        await cluster.patch(kinds.NODE, NODES[1], mine)
        mapped = await cluster.condition("HostsMapped", status="False")
        assert "host host-node-1 and node node-2 have the annotation in common" in mapped["message"]
        for name in NODES:
            assert (await cluster.labels(name))["fabric.drawbar.dev/fab"] == "true"


async def test_a_new_controller_keeps_the_mapping_of_its_predecessor(served_world, until):
    async with served_world(spec={"nodeAnnotation": "rack/host"}) as cluster:
        await cluster.condition("HostsMapped", status="True")
        mapped = (await cluster.api.read(kinds.FABRIC, "fab", into=dict))["status"]["mappedHosts"]
        assert mapped == [{"host": f"host-{name}", "node": name} for name in NODES]
        await cluster.stop()
        mine = {"metadata": {"annotations": {"rack/host": "host-node-1"}}}
        await cluster.patch(kinds.NODE, NODES[1], mine)
        for name in NODES:
            await cluster.patch(kinds.NODE, name, {"metadata": {"labels": {"fabric.drawbar.dev/fab": None}}})
        cluster.start()
        await cluster.condition("HostsMapped", status="False")
        for name in NODES:
            await until(
                functools.partial(cluster.labels, name), lambda labels: "fabric.drawbar.dev/fab" in labels
            )


async def test_a_fabric_with_the_name_of_a_node_and_a_host_with_a_foreign_label_are_shown_on_the_fabric(
    controller_world, until
):
    async with controller_world() as cluster:
        label = {"metadata": {"labels": {f"fabric.drawbar.dev/{NODES[0]}": "gpu.example.com"}}}
        await cluster.patch(kinds.NODE, NODES[1], label)
        cluster.start()
        await cluster.make_fabric(NODES[0])

        async def read_degraded():
            return (await cluster.fabric_condition("Degraded", NODES[0])).get("message", "")

        message = await until(
            read_degraded,
            lambda value: (
                "delete this Fabric and create it with another name" in value and "kubectl label" in value
            ),
        )
        assert f"the node {NODES[0]} has the name of this Fabric" in message
        assert f"node {NODES[1]} has the label fabric.drawbar.dev/{NODES[0]}=gpu.example.com" in message


async def test_an_allocated_device_is_attached_once_reported_and_detached_on_release(served_world, until):
    async with served_world() as cluster:
        claim = await cluster.allocate("disk-0")
        device_conditions = await cluster.wait_until_attached("disk-0")
        assert device_conditions == {"disk-0": {"attached": "Attached"}}
        (attachment,) = (
            await until(cluster.attachments, lambda value: "status" in value["fab.disk-0"])
        ).values()
        assert attachment["spec"]["nodeName"] == NODES[0]
        assert attachment["spec"]["hostID"] == "host-node-1"
        assert attachment["spec"]["claim"]["uid"] == claim["metadata"]["uid"]
        assert attachment["spec"]["identity"]["serial"] == "SN0"
        assert attachment["metadata"]["finalizers"] == ["drawbar.dev/detach"]
        operation, asked = attachment["status"]["operation"], cluster.journal[0]
        assert (operation["requestID"], operation["attempt"]) == (asked["requestID"], 1)
        assert abs(meta.moment(operation["startedAt"]).timestamp() - asked["time"]) < 60

        await cluster.deallocate()
        deleting = await cluster.wait_until_deleting("fab.disk-0")
        assert cluster.calls("detach") == [], "the node still has it"
        assert deleting
        await cluster.release_attachments("fab.disk-0")
        assert cluster.calls("attach") == ["disk-0"]
        assert cluster.calls("detach") == ["disk-0"]
        writes = cluster.server.writes
        assert writes.count(user=CONTROLLER, resource="resourceclaims") == 1
        assert writes.count(user=CONTROLLER, resource="deviceattachments") == 4


@pytest.mark.parametrize("when", ["attaching", "attached", "detaching"])
async def test_a_controller_that_died_goes_on_where_it_was_and_calls_nothing_twice(served_world, until, when):
    async with served_world(attachSeconds=0.3, detachSeconds=0.3) as cluster:
        await cluster.allocate("gpu-0")
        await cluster.wait_until_called("attach")
        if when == "attaching":
            await cluster.stop()
            cluster.start()
        await cluster.wait_until_attached("gpu-0")
        if when == "attached":
            await cluster.stop()
            cluster.start()
        await cluster.deallocate()
        await cluster.wait_until_deleting("fab.gpu-0")
        await cluster.node_says("fab.gpu-0", "Released")
        await cluster.wait_until_called("detach")
        if when == "detaching":
            await cluster.stop()
            cluster.start()
        await until(cluster.attachments, lambda value: not value)
        assert cluster.calls("attach") == ["gpu-0"]
        assert cluster.calls("detach") == ["gpu-0"]
        inventory = await cluster.fabric.devices()
        assert inventory.device("gpu-0").connection is None


async def test_a_claim_deleted_in_mid_attach_leaves_nothing_attached(served_world):
    async with served_world(attachSeconds=0.3) as cluster:
        await cluster.allocate("gpu-0")
        await cluster.wait_until_called("attach")
        await cluster.deallocate()
        await cluster.wait_until_deleting("fab.gpu-0")
        await cluster.release_attachments("fab.gpu-0")
        inventory = await cluster.fabric.devices()
        assert inventory.device("gpu-0").connection is None


async def test_a_slice_that_is_deleted_comes_back_and_pools_go_with_their_fabric(served_world, until):
    async with served_world() as cluster:
        (slice_,) = (await cluster.api.list_all(kinds.SLICE, into=dict)).items
        await cluster.api.delete(kinds.SLICE, slice_["metadata"]["name"])
        (again,) = (
            await until(lambda: cluster.api.list_all(kinds.SLICE, into=dict), lambda listing: listing.items)
        ).items
        assert again["metadata"]["uid"] != slice_["metadata"]["uid"]
        assert again["spec"]["devices"] == slice_["spec"]["devices"]
        await cluster.api.delete(kinds.FABRIC, "fab")
        await until(cluster.slices, lambda value: not value)


async def test_the_second_controller_waits_and_takes_over_in_mid_attach(controller_world, until):
    async with controller_world(attachSeconds=0.3) as cluster:
        cluster.start(identity="one")
        await cluster.make_fabric()
        await cluster.wait_for_slices()

        async def leader():
            lease = await cluster.api.read(kinds.LEASE, "drawbar-controller", namespace="drawbar", into=dict)
            return lease["spec"]["holderIdentity"]

        cluster.start(identity="two")
        await cluster.allocate("gpu-0")
        await cluster.wait_until_called("attach")
        assert await leader() == "one"
        await cluster.stop()
        await until(leader, lambda value: value == "two")
        await cluster.wait_until_attached("gpu-0")
        assert cluster.calls("attach") == ["gpu-0"]


async def hand_over(api, **spec):
    """Write into the lease as another controller would."""
    change = {"content": client.Patch.MERGE, "namespace": "drawbar", "into": dict}
    await api.patch(kinds.LEASE, "drawbar-controller", {"spec": spec}, **change)


async def test_one_that_takes_over_knows_of_claims_that_its_watch_did_not_tell_of(
    controller_world, until, monkeypatch, caplog
):
    monkeypatch.setattr(mirror, "FRESH_SECONDS", 0.0)
    caplog.set_level("INFO")

    async def count_ready():
        return caplog.messages.count("controller is ready")

    async with controller_world() as cluster:
        cluster.start(identity="one")
        await cluster.make_fabric()
        await cluster.wait_for_slices()
        await cluster.stop()
        await hand_over(cluster.api, holderIdentity="another-process", leaseDurationSeconds=3600)
        cluster.start(identity="two")
        await until(count_ready, lambda times: times == 2)
        watches = faults.Selection(verb="watch", resource="resourceclaims", user=CONTROLLER)
        silent = cluster.server.faults.add(faults.Fault(select=watches, effect=faults.Partition()))
        await cluster.allocate("gpu-0")
        assert cluster.calls("attach") == []
        await hand_over(cluster.api, holderIdentity="")
        await cluster.wait_until_attached("gpu-0")
        silent.lift()


async def test_a_controller_whose_lease_was_taken_writes_nothing_and_asks_the_fabric_nothing(
    controller_world, until
):
    async with controller_world() as cluster:
        cluster.start(identity="one")
        await cluster.make_fabric()
        await cluster.wait_for_slices()
        await cluster.allocate("disk-0")
        await until(cluster.device_conditions, bool)
        await hand_over(cluster.api, holderIdentity="another-process", leaseDurationSeconds=3600)
        # It finds out when it renews, and that attempt is the last thing that it writes.
        refused = [409]
        await until(
            lambda: attempts(cluster, CONTROLLER),
            lambda codes: codes[-1:] == refused or codes[-2:-1] == refused,
        )
        cluster.server.writes.clear()
        await cluster.allocate("gpu-0", name="c2")
        await cluster.deallocate("c1")
        await maintenances.begin(cluster.api, devices=["*"])
        seen = len(cluster.journal)
        # Long enough for everything that the controller does at once; it looks at the lease meanwhile.
        await asyncio.sleep(1)
        assert [write for write in cluster.server.writes if write.user == CONTROLLER] == []
        assert len(cluster.journal) == seen


async def test_while_the_workers_of_a_term_end_nothing_new_is_started_and_no_session_is_open(
    controller_world, until, monkeypatch
):
    queues, ended = [], []

    begin = workers.PartitionedQueue.start

    def start(queue, tasks, work):
        queues.append(queue)
        begin(queue, tasks, work)

    async def has_ended():
        return list(ended)

    class Reconciler(fabric_reconciler.FabricReconciler):
        async def work(self):
            try:
                await super().work()
            finally:
                # As an event of a watch that goes on: the first key of a Fabric would start workers in the ending group.
                queues[-1].add(names.DeviceKey(fabric=f"late-{len(ended)}", device="gpu-0"))
                ended.append(len(tuple(self._cluster.sessions)))

    monkeypatch.setattr(workers.PartitionedQueue, "start", start)
    monkeypatch.setattr(fabric_reconciler, "FabricReconciler", Reconciler)
    async with controller_world() as cluster:
        cluster.start(identity="one")
        await cluster.make_fabric()
        await cluster.wait_for_slices()
        await hand_over(cluster.api, holderIdentity="another-process", leaseDurationSeconds=3600)
        await until(has_ended, bool)
        await hand_over(cluster.api, holderIdentity="")
        await cluster.allocate("gpu-0")
        await cluster.wait_until_attached("gpu-0")
    assert ended
    assert not any(ended)


async def attempts(cluster, user):
    """Return the status codes of the controller's writes to its lease."""
    return [
        write.code for write in cluster.server.writes if write.user == user and write.resource == "leases"
    ]


async def test_a_deleted_fabric_offers_nothing_and_stays_until_its_last_device_is_back(served_world, until):
    async with served_world() as cluster:
        await cluster.allocate("gpu-0")
        await cluster.wait_until_attached("gpu-0")
        await cluster.api.delete(kinds.FABRIC, "fab")
        await until(cluster.slices, lambda value: not value)
        condition = await cluster.condition("Published", reason="Deleting")
        assert condition["status"] == "False"
        assert cluster.calls("detach") == []
        await cluster.deallocate()
        await cluster.wait_until_deleting("fab.gpu-0")
        await cluster.node_says("fab.gpu-0", "Released")

        async def fabrics():
            return (await cluster.api.list_all(kinds.FABRIC, into=dict)).items

        await until(fabrics, lambda value: not value)
        assert cluster.calls("detach") == ["gpu-0"]
        assert await cluster.attachments() == {}


async def do_one_thing_at_a_time(fabric):
    can = await fabric.capabilities()

    async def one_at_a_time():
        return dataclasses.replace(can, serialization_scope=contract.SerializationScope.FABRIC)

    fabric.capabilities = one_at_a_time


async def test_a_fabric_that_does_one_thing_at_a_time_does_not_wait_for_a_claim_that_cannot_be_told(
    controller_world,
):
    async with controller_world(attachSeconds=0.1) as cluster:
        await do_one_thing_at_a_time(cluster.fabric)
        cluster.start()
        await cluster.make_fabric()
        await cluster.wait_for_slices()
        refused = cluster.server.faults.add(
            faults.Fault(
                select=faults.Selection(
                    verb="patch", resource="resourceclaims", subresource="status", name="c0", user=CONTROLLER
                ),
                effect=faults.Refusal(code=503),
            )
        )
        for number, device in enumerate(("gpu-0", "disk-0")):
            await cluster.allocate(device, name=f"c{number}")
        for number, device in ((1, "disk-0"), (0, "gpu-0")):
            await cluster.wait_until_attached(device, f"c{number}")
            refused.lift()


async def test_a_fabric_that_can_do_one_thing_at_a_time_is_asked_for_one(controller_world):
    async with controller_world(attachSeconds=0.1, detachSeconds=0.1) as cluster:
        await do_one_thing_at_a_time(cluster.fabric)
        cluster.start()
        await cluster.make_fabric()
        (published,) = await cluster.wait_for_slices()
        devices = [device["name"] for device in published["devices"]]
        for number, device in enumerate(devices):
            await cluster.allocate(device, name=f"c{number}", node=NODES[number % 2])
        for number, device in enumerate(devices):
            await cluster.wait_until_attached(device, f"c{number}")
        for number in range(len(devices)):
            await cluster.deallocate(f"c{number}")
        for device in devices:
            await cluster.wait_until_deleting(f"fab.{device}")
        await cluster.release_attachments(*(f"fab.{device}" for device in devices))
        events = [line["event"] for line in cluster.journal]
        assert events == ["started", "finished"] * (2 * len(devices))


async def test_an_attachment_made_by_hand_holds_the_device_until_it_is_deleted(served_world, until):
    async with served_world() as cluster:
        body = scenes.document("fab.gpu-0", NODES[0], pool=POOL, hostID="host-node-1")
        await cluster.api.create(kinds.ATTACHMENT, body, into=dict)

        await until(
            lambda: cluster.marks("gpu-0"), lambda taints: taints == [("in-use", "manual", "NoSchedule")]
        )
        # Else there may be nothing to detach yet.
        attached = {"phase": "Attached"}.items()
        await until(
            cluster.attachments, lambda value: attached <= value["fab.gpu-0"].get("status", {}).items()
        )
        held = (await cluster.attachments())["fab.gpu-0"]
        assert held["metadata"]["finalizers"] == ["drawbar.dev/detach"]
        assert held["metadata"]["labels"] == {"drawbar.dev/node": NODES[0]}
        await cluster.api.delete(kinds.ATTACHMENT, "fab.gpu-0")
        await cluster.release_attachments("fab.gpu-0")
        await until(lambda: cluster.marks("gpu-0"), lambda taints: taints == [])
        assert cluster.calls("detach") == ["gpu-0"]


@pytest.mark.parametrize("how", ["deleted", "out of service"])
async def test_a_dead_node_needs_no_word_before_its_device_comes_back(served_world, until, how):
    async with served_world(spec={"policy": {"nodeGoneSeconds": 1}}) as cluster:
        await cluster.allocate("gpu-0")
        await cluster.wait_until_attached("gpu-0")
        await cluster.deallocate()
        await cluster.wait_until_deleting("fab.gpu-0")
        assert cluster.calls("detach") == []
        if how == "deleted":
            await cluster.api.delete(kinds.NODE, NODES[0])
        else:
            taint = {
                "key": "node.kubernetes.io/out-of-service",
                "value": "nodeshutdown",
                "effect": "NoExecute",
            }
            await cluster.patch(kinds.NODE, NODES[0], {"spec": {"taints": [taint]}})
        await until(cluster.attachments, lambda value: not value)
        assert cluster.calls("detach") == ["gpu-0"]
