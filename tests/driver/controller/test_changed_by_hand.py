"""What people change of Drawbar's objects by hand: it is put right, refused by the API server, or reported with a remedy."""

import pytest
from tests.scenes import attachments as scenes
from tests.scenes import maintenances

from drawbar.driver.api import attachments, fabrics
from drawbar.driver.catalogue import reasons
from drawbar.driver.controller.pools import fabric_state
from drawbar.driver.kube import client, errors, kinds

NAME = "fab.disk-0"
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "c"}
LABEL = "fabric.drawbar.dev/fab"


async def edit(cluster, kind, name, change, **options):
    """Do what `kubectl patch` does."""
    merge = {"content": client.Patch.MERGE, "manager": "kubectl-edit", "into": dict}
    return await cluster.api.patch(kind, name, change, **merge, **options)


async def read(cluster, kind, name):
    """Return the object, or None."""
    listing = await cluster.api.list_all(kind, into=dict)
    return next((item for item in listing.items if item["metadata"]["name"] == name), None)


def intact(before):
    """Return what of an attachment has to be as it was."""
    metadata = before["metadata"]
    parts = {part: metadata.get(part) for part in ("labels", "finalizers", "ownerReferences", "uid")}
    return parts | {"spec": before["spec"], "error": before["status"].get("error")}


ATTACHMENT_EDITS = {
    "label removed": {"metadata": {"labels": {attachments.NODE_LABEL: None}}},
    "label of another node": {"metadata": {"labels": {attachments.NODE_LABEL: "node-2"}}},
    "finalizer removed": {"metadata": {"finalizers": None}},
    "owner added": {"metadata": {"ownerReferences": [OWNER]}},
    "allocation timestamp changed": {"spec": {"allocationTimestamp": "2020-01-01T00:00:00Z"}},
    "another claim": {"spec": {"claim": {"uid": "another"}}},
}


@pytest.mark.parametrize("change", ATTACHMENT_EDITS.values(), ids=ATTACHMENT_EDITS)
async def test_a_manual_change_of_an_attachment_is_reverted(served_world, until, change):
    async with served_world() as cluster:
        await cluster.allocate("disk-0")
        await cluster.wait_until_attached("disk-0")
        before = await until(
            lambda: read(cluster, kinds.ATTACHMENT, NAME),
            lambda value: value.get("status", {}).get("phase") == "Attached",
        )
        # A claim's attachment changes hands only once its node has recorded whose it is.
        uid = before["spec"]["claim"]["uid"]
        await edit(
            cluster, kinds.ATTACHMENT, NAME, {"status": {"node": {"claimUID": uid}}}, subresource="status"
        )
        changed = await edit(cluster, kinds.ATTACHMENT, NAME, change)
        assert intact(changed) != intact(before)
        await until(
            lambda: read(cluster, kinds.ATTACHMENT, NAME),
            lambda value: value is not None and intact(value) == intact(before),
        )


FIXED = {
    "fabric": "other",
    "deviceID": "gpu-0",
    "driver": "other.example.com",
    "pool": "fab/other",
    "device": "gpu-0",
    "nodeName": "node-2",
    "hostID": "host-node-2",
    "model": "M2",
    "identity": {"serial": "other"},
    "share": {"device": "d", "deviceID": "d", "shareID": "s", "memoryBytes": 1},
    "composite": {"name": "duo", "devices": ["disk-0", "gpu-0"]},
}


@pytest.mark.parametrize("field", FIXED)
async def test_the_device_of_an_attachment_cannot_be_changed(served_world, field):
    async with served_world() as cluster:
        await cluster.allocate("disk-0")
        await cluster.wait_until_attached("disk-0")
        with pytest.raises(errors.Invalid, match="only the claim"):
            await edit(cluster, kinds.ATTACHMENT, NAME, {"spec": {field: FIXED[field]}})


@pytest.mark.parametrize("name", ["disk-0", "fab.gpu-0", "other.disk-0", "fab.disk-0.more"])
async def test_an_attachment_of_another_name_than_its_devices_is_refused(served_world, name):
    async with served_world() as cluster:
        body = scenes.document(NAME, "node-1")
        body["metadata"]["name"] = name
        with pytest.raises(errors.Invalid, match=r"has the name FABRIC\.DEVICE"):
            await cluster.api.create(kinds.ATTACHMENT, body, into=dict)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"deviceID": "gpu-0"}, "spec.deviceID is gpu-0, and device disk-0 of the Fabric is disk-0"),
        ({"hostID": "host-node-2"}, "spec.hostID is host-node-2, and node node-1 is host host-node-1"),
    ],
)
async def test_an_attachment_made_by_hand_for_another_device_or_machine_attaches_nothing_and_says_so(
    served_world, until, changes, words
):
    async with served_world() as cluster:
        await until(lambda: cluster.labels("node-1"), lambda value: LABEL in value)
        spec = {"hostID": "host-node-1", "pool": "fab/enc-1"} | changes
        await cluster.api.create(kinds.ATTACHMENT, scenes.document(NAME, "node-1", **spec), into=dict)
        made = await until(
            lambda: read(cluster, kinds.ATTACHMENT, NAME), lambda value: "error" in value.get("status", {})
        )
        assert made["status"]["error"]["reason"] == reasons.ATTACHMENT_MISMATCH
        assert words in made["status"]["error"]["message"]
        assert f"kubectl delete deviceattachment {NAME}" in made["status"]["error"]["message"]
        assert cluster.calls("attach") == []


async def test_an_attachment_without_its_fabric_says_so(served_world, until):
    async with served_world() as cluster:
        body = scenes.document("lost.disk-0", "node-1", fabric="lost")
        await cluster.api.create(kinds.ATTACHMENT, body, into=dict)
        ((kind, reason, note),) = await until(
            lambda: cluster.events("DeviceAttachment", "lost.disk-0"), lambda value: len(value) == 1
        )
        assert (kind, reason) == ("Warning", reasons.FABRIC_MISSING)
        assert "there is no Fabric lost of driver drawbar.dev" in note


async def test_an_attachment_that_a_foreign_finalizer_keeps_says_so_and_its_device_is_free(
    served_world, until
):
    async with served_world() as cluster:
        await cluster.allocate("disk-0")
        await cluster.wait_until_attached("disk-0")
        finalizers = [attachments.FINALIZER, "example.com/mine"]
        await edit(cluster, kinds.ATTACHMENT, NAME, {"metadata": {"finalizers": finalizers}})
        await cluster.deallocate()
        await cluster.wait_until_deleting(NAME)
        await cluster.node_says(NAME, attachments.RELEASED)
        await cluster.wait_until_called("detach")
        await until(
            lambda: cluster.events("DeviceAttachment", NAME),
            lambda value: reasons.FOREIGN_FINALIZER in [reason for _, reason, _ in value],
        )
        shown = await cluster.condition("Degraded", status="True")
        assert "example.com/mine" in shown["message"]
        await edit(cluster, kinds.ATTACHMENT, NAME, {"metadata": {"finalizers": None}})
        await cluster.condition("Degraded", status="False")


async def test_the_finalizer_taken_off_while_it_is_released_leaves_no_device_attached(served_world, until):
    async with served_world() as cluster:
        await cluster.allocate("disk-0")
        await cluster.wait_until_attached("disk-0")
        finalizers = [attachments.FINALIZER, "example.com/mine"]
        await edit(cluster, kinds.ATTACHMENT, NAME, {"metadata": {"finalizers": finalizers}})
        await cluster.deallocate()
        await cluster.wait_until_deleting(NAME)
        await edit(cluster, kinds.ATTACHMENT, NAME, {"metadata": {"finalizers": ["example.com/mine"]}})
        assert cluster.calls("detach") == []
        await cluster.node_says(NAME, attachments.RELEASED)
        await cluster.wait_until_called("detach")


SLICE_EDITS = {
    "label removed": lambda it: it["metadata"].update(labels={}),
    "label of another Fabric": lambda it: it["metadata"].update(labels={fabric_state.FABRIC_LABEL: "other"}),
    "devices removed": lambda it: it["spec"].update(devices=[]),
    "binding conditions removed": lambda it: [
        device.pop(field, None)
        for device in it["spec"]["devices"]
        for field in ("bindingConditions", "bindingFailureConditions", "bindsToNode")
    ],
    "nodes widened": lambda it: (it["spec"].pop("nodeSelector"), it["spec"].update(allNodes=True)),
    "generation raised": lambda it: it["spec"]["pool"].update(generation=9, resourceSliceCount=2),
}


@pytest.mark.parametrize("change", SLICE_EDITS.values(), ids=SLICE_EDITS)
async def test_a_manual_change_of_a_slice_is_reverted(served_world, until, change):
    async with served_world() as cluster:
        (before,) = await cluster.list(kinds.SLICE)
        name = before["metadata"]["name"]
        changed = await read(cluster, kinds.SLICE, name)
        change(changed)
        await cluster.api.replace(kinds.SLICE, name, changed, into=dict)

        def is_right(it):
            if it is None or it["metadata"].get("labels") != before["metadata"]["labels"]:
                return False
            spec, wanted = it["spec"], before["spec"]
            same = all(spec.get(part) == wanted.get(part) for part in ("devices", "nodeSelector", "allNodes"))
            return same and spec["pool"]["resourceSliceCount"] == 1

        await until(lambda: read(cluster, kinds.SLICE, name), is_right)


async def test_a_slice_that_is_deleted_comes_back_and_one_that_is_added_to_a_pool_goes(served_world, until):
    async with served_world() as cluster:
        (before,) = await cluster.list(kinds.SLICE)
        name = before["metadata"]["name"]
        await cluster.api.delete(kinds.SLICE, name)
        await until(lambda: read(cluster, kinds.SLICE, name), bool)
        added = {
            "apiVersion": kinds.SLICE.api_version,
            "kind": kinds.SLICE.kind,
            "metadata": {"name": "by-hand"},
            "spec": before["spec"] | {"devices": [{"name": "fake"}]},
        }
        await cluster.api.create(kinds.SLICE, added, into=dict)
        await until(lambda: read(cluster, kinds.SLICE, "by-hand"), lambda value: value is None)


async def test_a_slice_whose_name_another_one_has_is_reported_with_the_remedy(controller_world, until):
    async with controller_world() as cluster:

        async def names():
            return [it["metadata"]["name"] for it in await cluster.list(kinds.SLICE)]

        cluster.start()
        await cluster.make_fabric()
        (name,) = await until(names, bool)
        await cluster.stop()
        await cluster.api.delete(kinds.SLICE, name)
        foreign = {
            "apiVersion": kinds.SLICE.api_version,
            "kind": kinds.SLICE.kind,
            "metadata": {"name": name},
            "spec": {
                "driver": "other.example.com",
                "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
                "allNodes": True,
                "devices": [],
            },
        }
        await cluster.api.create(kinds.SLICE, foreign, into=dict)
        cluster.start()
        shown = await cluster.condition("Published", status="False")
        assert f"run kubectl delete resourceslice {name}" in shown["message"]
        await cluster.api.delete(kinds.SLICE, name)
        await cluster.condition("Published", status="True")


@pytest.mark.parametrize("value", [None, "other"], ids=["removed", "changed"])
async def test_the_label_of_a_node_is_put_back_or_reported(served_world, until, value):
    async with served_world() as cluster:
        await until(lambda: cluster.labels("node-1"), lambda labels: labels.get(LABEL) == "true")
        await edit(cluster, kinds.NODE, "node-1", {"metadata": {"labels": {LABEL: value}}})
        if value is None:
            await until(lambda: cluster.labels("node-1"), lambda labels: labels.get(LABEL) == "true")
            return
        shown = await cluster.condition("Degraded", status="True")
        assert f"kubectl label node node-1 {LABEL}-" in shown["message"]


async def test_a_fabrics_finalizer_and_its_status_are_put_right(served_world, until):
    async with served_world() as cluster:

        async def fabric():
            return await read(cluster, kinds.FABRIC, "fab")

        before = await until(
            fabric, lambda value: fabrics.FINALIZER in value["metadata"].get("finalizers", ())
        )
        await cluster.condition("Published", status="True")
        await edit(cluster, kinds.FABRIC, "fab", {"metadata": {"finalizers": None}})
        await until(fabric, lambda value: value["metadata"].get("finalizers") == [fabrics.FINALIZER])
        await edit(
            cluster, kinds.FABRIC, "fab", {"status": {"devices": 99, "conditions": []}}, subresource="status"
        )
        again = await until(fabric, lambda value: value.get("status", {}).get("devices") == 3)
        types = {condition["type"] for condition in before["status"]["conditions"]}
        assert types <= {condition["type"] for condition in again["status"]["conditions"]}


async def test_a_slice_of_a_node_with_the_label_of_a_fabric_is_nothing_of_the_fabrics(served_world, until):
    """Node tokens may write the slices of their nodes, with whatever label and device they like."""
    async with served_world() as cluster:
        hostile = {
            "apiVersion": kinds.SLICE.api_version,
            "kind": kinds.SLICE.kind,
            "metadata": {"name": "a-hostile", "labels": {fabric_state.FABRIC_LABEL: "fab"}},
            "spec": {
                "driver": "drawbar.dev",
                "pool": {"name": "node-1", "generation": 1, "resourceSliceCount": 1},
                "nodeName": "node-1",
                "devices": [
                    {
                        "name": "gpu-0",
                        "taints": [
                            {"key": "drawbar.dev/attach-failed", "value": "X", "effect": "NoSchedule"}
                        ],
                    }
                ],
            },
        }
        await cluster.api.create(kinds.SLICE, hostile, into=dict)
        await maintenances.begin(cluster.api, devices=["disk-0"])

        async def taints():
            own = [it for it in await cluster.list(kinds.SLICE) if "nodeName" not in it["spec"]]
            return {
                device["name"]: [taint["key"] for taint in device.get("taints", ())]
                for it in own
                for device in it["spec"]["devices"]
            }

        shown = await until(taints, lambda value: value["disk-0"] == ["drawbar.dev/maintenance"])
        assert shown["gpu-0"] == []
        assert await read(cluster, kinds.SLICE, "a-hostile")
        await cluster.condition("Published", status="True")
