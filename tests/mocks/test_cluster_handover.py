"""A device that stays on its node between two pods, through the whole cluster of doubles and both daemons."""

import json

from tests.scenes import waiting

from drawbar.driver.kube import client, kinds
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks import cluster, sysfs
from drawbar.mocks.cluster import cluster as running
from drawbar.mocks.fabric import pool

TEMPLATE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "disk"},
    "spec": {
        "spec": {
            "devices": {"requests": [{"name": "disk", "exactly": {"deviceClassName": "nvme.drawbar.dev"}}]}
        }
    },
}


def pod(name):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "containers": [{"name": "c", "image": "i", "resources": {"claims": [{"name": "disk"}]}}],
            "resourceClaims": [{"name": "disk", "resourceClaimTemplateName": "disk"}],
        },
    }


async def test_the_next_pod_gets_the_device_reset_and_the_fabric_is_not_asked():
    settings = cluster.Settings(enclosures=pool.make_enclosures({DeviceClass.NVME: 1}), poll_seconds=0.2)
    async with cluster.Cluster.running(settings) as world:
        api = world.api
        keep = {"spec": {"policy": {"keepAttachedSeconds": 600}}}
        await api.patch(
            kinds.FABRIC, running.FABRIC, keep, content=client.Patch.MERGE, into=dict, manager="admin"
        )
        await api.create(kinds.CLAIM_TEMPLATE, TEMPLATE, namespace="default", into=dict)

        async def phase(name):
            pod = await api.read(kinds.POD, name, namespace="default", into=dict)
            return pod.get("status", {}).get("phase")

        async def attachment():
            items = (await api.list_all(kinds.ATTACHMENT, into=dict)).items
            return items[0] if items else {}

        await api.create(kinds.POD, pod("first"), namespace="default", into=dict)
        await waiting.until(lambda: phase("first"), lambda value: value == "Running")
        used = await attachment()
        assert used["status"]["node"]["claimUID"] == used["spec"]["claim"]["uid"]
        tree = sysfs.SysfsTree.open(world.paths.node("node-1").sysfs)
        slot = int(used["status"]["node"]["slot"])
        assert tree.resets(slot) == 0

        await api.delete(kinds.POD, "first", namespace="default")
        idle = await waiting.until(
            attachment,
            lambda value: "idleSince" in value["spec"] and not value["status"]["node"].get("claimUID"),
        )

        async def resets():
            return tree.resets(slot)

        # The host counts it a moment after it was asked for.
        await waiting.until(resets, lambda value: value == 1)
        assert (await world.leaks()).cdi == 0

        await api.create(kinds.POD, pod("second"), namespace="default", into=dict)
        await waiting.until(lambda: phase("second"), lambda value: value == "Running")
        taken = await attachment()
        assert taken["metadata"]["uid"] == idle["metadata"]["uid"]
        assert taken["status"]["node"]["claimUID"] == taken["spec"]["claim"]["uid"]
        assert tree.resets(slot) == 1
        journal = [json.loads(line) for line in world.paths.journal.read_text().splitlines()]
        assert [line["kind"] for line in journal if line["event"] == "started"] == ["attach"]
