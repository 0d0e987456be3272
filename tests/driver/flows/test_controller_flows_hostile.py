"""What a node's token writes, and what people write by hand: it stays about that node, or the API server refuses it."""

import contextlib

import pytest
from tests.scenes import attachments as scenes
from tests.scenes import maintenances

from drawbar.driver.api import attachments
from drawbar.driver.controller.pools import fabric_state
from drawbar.driver.kube import client, config, errors, kinds
from drawbar.mocks.testing import worlds

pytestmark = pytest.mark.attack

ENCLOSURES = [
    {"id": f"enc-{letter}", "devices": [worlds.disk(number)]} for number, letter in enumerate("abc")
]
DISKS = ("disk-0", "disk-1", "disk-2")
TIME = "2026-01-01T00:00:00Z"
NO_LABEL_VALUE = "no label value: it has blanks and a colon"


def condition(reason, message="x"):
    return {
        "type": attachments.VISIBLE,
        "status": "False",
        "reason": reason,
        "message": message,
        "lastTransitionTime": TIME,
    }


def exactly(device):
    expression = f'device.attributes["drawbar.dev"].deviceID == "{device}"'
    return {"deviceClassName": "nvme.drawbar.dev", "selectors": [{"cel": {"expression": expression}}]}


@contextlib.asynccontextmanager
async def token_of(cluster, node):
    """Stop the node's daemon during the block; yield a client with its token."""
    await cluster.stop(node)
    async with client.connecting(config.from_kubeconfig(cluster.path / f"{node}.kubeconfig")) as api:
        yield api
    cluster.start_node(node)


async def test_nothing_that_a_nodes_token_writes_stops_the_taints_of_other_devices(flow_lab):
    policy = {"probationSeconds": 300}
    async with flow_lab("1.36", enclosures=ENCLOSURES, policy=policy) as cluster:
        await cluster.until(cluster.slices, lambda slices: len(slices) == len(ENCLOSURES))
        requests = {"requests": [{"name": "d", "exactly": exactly("disk-0")}]}
        await cluster.pod_from_template("p", requests, ["d"])
        node, (device,) = await cluster.wait_until_running("p")
        async with token_of(cluster, node) as mallory:

            async def say(**status):
                await worlds.apply_status(mallory, f"fab.{device}", "drawbar-node", **status)

            for refused in (
                {"conditions": [condition(NO_LABEL_VALUE)]},
                {"conditions": [condition("LinkDown", "x" * 2000)]},
                {"conditions": [condition("LinkDown") | {"type": "Mine"}]},
                {"node": {"bootID": "x" * 1000}},
                {"node": {"pciAddress": "x"}},
                {"node": {"kernelDriver": "x" * 1000}},
                {"node": {"claimUID": "x" * 1000}},
                {"phase": "x" * 1000},
            ):
                # Whatever its admission policies and the definition have against it.
                with pytest.raises((errors.Invalid, errors.Denied)):
                    await say(**refused)
            await say(phase="Failed", conditions=[condition("NeverHeardOf")])
            hostile = {
                "apiVersion": kinds.SLICE.api_version,
                "kind": kinds.SLICE.kind,
                "metadata": {"name": "a-hostile", "labels": {fabric_state.FABRIC_LABEL: "fab"}},
                "spec": {
                    "driver": "drawbar.dev",
                    "pool": {"name": f"{node}/hostile", "generation": 1, "resourceSliceCount": 1},
                    "nodeName": node,
                    "devices": [{"name": "disk-2"}],
                },
            }
            await mallory.create(kinds.SLICE, hostile, into=dict)
            await maintenances.begin(cluster.api, devices=["*"])

            async def taints():
                own = [spec for spec in await cluster.slices() if not spec.get("nodeName")]
                return {
                    entry["name"]: {taint["key"]: taint.get("value", "") for taint in entry.get("taints", ())}
                    for spec in own
                    for entry in spec["devices"]
                }

            shown = await cluster.until(
                taints,
                lambda value: (
                    all("drawbar.dev/maintenance" in value.get(disk, ()) for disk in DISKS)
                    and "drawbar.dev/attach-failed" in value[device]
                ),
            )
            assert shown[device]["drawbar.dev/attach-failed"] == "Other"
            await mallory.delete(kinds.SLICE, "a-hostile")
        await cluster.until(
            lambda: cluster.api.read(kinds.FABRIC, "fab", into=dict),
            lambda fabric: (
                {"Published": "True", "Writable": "True"}.items()
                <= {each["type"]: each["status"] for each in fabric["status"]["conditions"]}.items()
            ),
        )


async def test_an_attachment_under_another_name_than_its_devices_is_refused(flow_lab):
    async with flow_lab("1.36", enclosures=ENCLOSURES) as cluster:
        await cluster.until(cluster.slices, lambda slices: len(slices) == len(ENCLOSURES))
        for name in ("disk-0", "fab.disk-1", "other.disk-0"):
            body = scenes.document("fab.disk-0", "node-1")
            body["metadata"]["name"] = name
            with pytest.raises(errors.Invalid, match="its name is the lock of the device"):
                await cluster.api.create(kinds.ATTACHMENT, body, into=dict)


async def test_the_metadata_of_an_attachment_is_put_right(flow_lab):
    async with flow_lab("1.36", enclosures=ENCLOSURES) as cluster:
        requests = {"requests": [{"name": "d", "exactly": exactly("disk-0")}]}
        await cluster.pod_from_template("p", requests, ["d"])
        node, _ = await cluster.wait_until_running("p")
        owner = {"apiVersion": "v1", "kind": "Namespace", "name": "default"}
        namespace = await cluster.api.read(kinds.NAMESPACE, "default", into=dict)
        for change in (
            {"labels": {attachments.NODE_LABEL: None}},
            {"labels": {attachments.NODE_LABEL: "other"}},
            {"finalizers": None},
            {"ownerReferences": [owner | {"uid": namespace["metadata"]["uid"]}]},
        ):
            body = {"metadata": change}
            await cluster.api.patch(
                kinds.ATTACHMENT, "fab.disk-0", body, content=client.Patch.MERGE, into=dict, manager="hand"
            )
            await cluster.until(
                lambda: cluster.api.read(kinds.ATTACHMENT, "fab.disk-0", into=dict),
                lambda stored: (
                    stored["metadata"].get("labels") == {attachments.NODE_LABEL: node}
                    and stored["metadata"].get("finalizers") == [attachments.FINALIZER]
                    and not stored["metadata"].get("ownerReferences")
                ),
            )
        assert (await cluster.pods())["p"]["status"]["phase"] == "Running"
