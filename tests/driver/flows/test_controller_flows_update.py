"""A rolling update of the node daemon: two instances on a node for a while, of which one acts."""

import asyncio

from tests.driver.flows.sites import NODES
from tests.scenes import maintenances

from drawbar.driver.kube import kinds
from drawbar.driver.node.local import nulls
from drawbar.driver.operation import address
from drawbar.mocks.fabric import faults

LATE = faults.Appear(arrival="late", late_seconds=2, device="disk-2")


async def start_newer(cluster, name):
    """Start a second instance on a node, with its own instance name, and wait until it is ready."""
    cluster.start_node(name, daemon=f"{name}-newer", instance="newer")
    endpoint = address.parse(f"unix:{cluster.path / name / 'k/plugins/drawbar.dev/http-newer.sock'}")

    async def is_ready():
        try:
            return (await asyncio.to_thread(address.ask, endpoint, "/readyz")).good
        except address.AddressError:
            return False

    await cluster.until(is_ready, bool)


async def nodes_slices(cluster):
    """Return the uid and the version of each node's own slice, by node."""
    listing = await cluster.api.list_all(kinds.SLICE, into=dict)
    return {
        resource_slice["spec"]["nodeName"]: (
            resource_slice["metadata"]["uid"],
            resource_slice["metadata"]["resourceVersion"],
        )
        for resource_slice in listing.items
        if resource_slice["spec"].get("nodeName")
    }


async def test_an_update_with_other_settings_while_pods_start_end_and_wait_for_a_device(flow_lab):
    # The older instance publishes a slice for its node, and the newer would withdraw it.
    settings = {"null_device": nulls.NullDevice(enabled=True)}
    async with flow_lab("1.36", devices=3, node=settings) as cluster:
        before = await cluster.until(lambda: nodes_slices(cluster), lambda slices: len(slices) == len(NODES))
        cluster.fabric.console.add_fault(LATE)
        await cluster.pod("ending")
        _, (first,) = await cluster.wait_until_running("ending")
        for name in NODES:
            await start_newer(cluster, name)

        # The kubelet calls the newer instance, and the older one acts.
        await cluster.pod("starting")
        await cluster.wait_until_running("starting")
        await cluster.api.delete(kinds.POD, "ending", namespace="default")
        await cluster.wait_until_gone("ending")
        await cluster.is_free(first)
        await maintenances.begin(cluster.api, devices=[first])
        await cluster.wait_for_taints(first, "maintenance=:NoSchedule")
        await cluster.pod("waiting")
        await cluster.until(cluster.attachments, lambda attachments: len(attachments) == 2)
        assert await nodes_slices(cluster) == before, "the newer instance waits with its settings"

        for name in NODES:
            await cluster.stop(name)
        await cluster.until(lambda: nodes_slices(cluster), lambda slices: not slices)
        await cluster.wait_until_running("waiting")
        for pod in ("starting", "waiting"):
            assert "FailedPrepareDynamicResources" not in await cluster.reasons(pod)
        assert await nodes_slices(cluster) == {}


async def test_the_older_instance_releases_a_device_the_newer_one_unprepared(flow_lab):
    async with flow_lab("1.36", devices=1) as cluster:
        await cluster.pod("a")
        node, (device,) = await cluster.wait_until_running("a")
        await start_newer(cluster, node)
        await cluster.api.begin_delete(kinds.ATTACHMENT, f"fab.{device}", into=dict)

        async def list_release_reasons():
            conditions = (await cluster.attachments())[device]["status"]["conditions"]
            return {condition["reason"] for condition in conditions if condition["type"] == "Released"}

        await cluster.until(list_release_reasons, lambda reasons: reasons == {"Prepared"})
        await cluster.api.delete(kinds.POD, "a", namespace="default")
        await cluster.wait_until_gone("a")
        await cluster.is_free(device)
