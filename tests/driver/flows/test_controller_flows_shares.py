"""A pool of memory that the fabric carves: each claim gets as much of it as it asks for, on its node, and gives it back."""

import pytest
from tests.driver.flows import sites

from drawbar.driver.kube import kinds
from drawbar.fabric import contract
from drawbar.mocks.fabric import faults

MIB = 1 << 20
STEP = 256 * MIB
POOL = {
    "id": "pool-0",
    "class": "cxl-memory",
    "serial": "0x1000",
    "memoryBytes": 4 * STEP,
    "sliceStepBytes": STEP,
    "isPool": True,
    "pciVendor": 0x1E98,
    "pciDevice": 0x0D93,
}
ENCLOSURES = [{"id": "enc", "devices": [POOL]}]
# A daemon is killed after as many changes of attachments and claims.
STEPS = range(2, 10, 2)


async def make_pod(cluster, name, memory):
    exactly = {"deviceClassName": "cxl-memory-pool.drawbar.dev", "capacity": {"requests": {"memory": memory}}}
    await cluster.pod_from_template(name, {"requests": [{"name": "memory", "exactly": exactly}]}, ["memory"])


async def list_published_devices(cluster):
    return [entry for spec in await cluster.slices() for entry in spec.get("devices", ())]


async def offers(cluster, value):
    """Wait until the pool is published with as much memory."""
    await cluster.until(
        lambda: list_published_devices(cluster),
        lambda devices: [entry["capacity"]["memory"]["value"] for entry in devices] == [value],
    )


async def list_fabric_slices(cluster):
    """Return the fabric's slices: how much memory each has, and where it is."""
    return sorted(
        (device.memory_bytes // MIB, device.connection.host_id if device.connection is not None else "")
        for device in (await cluster.fabric.devices()).devices
        if device.slice_of is not None
    )


async def wait_for_release(cluster):
    await cluster.until(cluster.attachments, lambda value: not value)
    await cluster.until(lambda: list_fabric_slices(cluster), lambda slices: slices == [])
    await offers(cluster, "1Gi")


def regions(cluster):
    return [
        path.name for tree in cluster.trees.values() for path in tree.root.glob("bus/cxl/devices/region*")
    ]


async def shares_of(cluster, pod):
    """Return the true conditions of the pod's claim by share."""
    return {
        entry["shareID"]: {
            condition["type"].removeprefix("drawbar.dev/")
            for condition in entry["conditions"]
            if condition["status"] == "True"
        }
        for claim in await cluster.claims(pod)
        for entry in claim.get("status", {}).get("devices", ())
    }


async def test_each_pod_gets_its_share_of_a_pool_and_gives_it_back(flow_lab):
    async with flow_lab("1.36", enclosures=ENCLOSURES) as cluster:
        await offers(cluster, "1Gi")
        (pool,) = await list_published_devices(cluster)
        assert pool["allowMultipleAllocations"] is True
        await make_pod(cluster, "a", "512Mi")
        await make_pod(cluster, "b", "256Mi")
        where = {pod: await cluster.wait_until_running(pod) for pod in ("a", "b")}
        assert {devices[0] for _, devices in where.values()} == {"pool-0"}
        assert await list_fabric_slices(cluster) == sorted(
            [(512, f"host-{where['a'][0]}"), (256, f"host-{where['b'][0]}")]
        )
        assert len(regions(cluster)) == 2
        for pod in ("a", "b"):
            ((share, conditions),) = (await shares_of(cluster, pod)).items()
            assert conditions == {"attached", "visible"}
            attachment = (await cluster.attachments())[f"share-{share}"]
            assert attachment["spec"]["share"]["device"] == "pool-0"
            assert attachment["metadata"]["name"] == f"fab.share-{share}"

        # What is left is too little for this one, and what a pod gives back is enough.
        await make_pod(cluster, "c", "512Mi")
        await cluster.api.delete(kinds.POD, "b", namespace="default")
        await cluster.wait_until_running("c")
        await cluster.until(
            lambda: list_fabric_slices(cluster), lambda slices: [size for size, _ in slices] == [512, 512]
        )
        for pod in ("a", "c"):
            await cluster.api.delete(kinds.POD, pod, namespace="default")
        await wait_for_release(cluster)
        assert regions(cluster) == []


async def test_a_claim_with_two_shares_of_a_pool_has_both(flow_lab):
    async with flow_lab("1.36", enclosures=ENCLOSURES) as cluster:
        await offers(cluster, "1Gi")
        requests = [
            {
                "name": name,
                "exactly": {
                    "deviceClassName": "cxl-memory-pool.drawbar.dev",
                    "capacity": {"requests": {"memory": size}},
                },
            }
            for name, size in (("small", "256Mi"), ("large", "512Mi"))
        ]
        await cluster.pod_from_template("a", {"requests": requests}, ["memory"])
        await cluster.wait_until_running("a")
        await cluster.until(
            lambda: shares_of(cluster, "a"),
            lambda shares: list(shares.values()) == [{"attached", "visible"}] * 2,
        )
        assert [size for size, _ in await list_fabric_slices(cluster)] == [256, 512]


async def test_an_orphaned_memory_chunk_is_deleted(flow_lab):
    async with flow_lab("1.36", enclosures=ENCLOSURES) as cluster:
        await offers(cluster, "1Gi")
        await make_pod(cluster, "a", "256Mi")
        await cluster.wait_until_running("a")
        await cluster.stop("controller")
        # As a restored etcd would have it: the record is gone, and the finalizer with it.
        ((_, attachment),) = (await cluster.attachments()).items()
        name = attachment["metadata"]["name"]
        await cluster.change(kinds.ATTACHMENT, name, metadata={"finalizers": None})
        await cluster.api.delete(kinds.ATTACHMENT, name)
        await cluster.api.delete(kinds.POD, "a", namespace="default")
        cluster.start_controller(binding_timeout_seconds=600)
        await wait_for_release(cluster)


async def test_where_the_slice_cannot_be_made_the_claim_is_told_and_the_pool_rests(flow_lab):
    async with flow_lab("1.36", enclosures=ENCLOSURES, policy={"probationSeconds": 3600}) as cluster:
        await offers(cluster, "1Gi")
        cluster.fabric.console.add_fault(
            faults.Fail(
                method=contract.OperationKind.CREATE_SLICE,
                retryable=False,
                message="the decoder is stuck",
                times=None,
            )
        )
        await make_pod(cluster, "a", "256Mi")
        await cluster.wait_for_event("FabricError", "the decoder is stuck")
        await cluster.wait_for_taints("pool-0", "attach-failed=FabricError:NoSchedule")
        assert await list_fabric_slices(cluster) == []


@pytest.mark.parametrize("killed", [("controller",), sites.NODES], ids=["controller", "nodes"])
async def test_a_daemon_that_is_killed_at_any_step_leaves_no_slice(flow_lab, killed):
    async with flow_lab("1.36", enclosures=ENCLOSURES, attachSeconds=0.05) as cluster:
        await offers(cluster, "1Gi")
        for step in STEPS:
            since = await cluster.version()
            await make_pod(cluster, f"pod-{step}", "512Mi")
            await cluster.until(
                lambda since=since: cluster.changes(since), lambda count, step=step: count >= step
            )
            for name in killed:
                await cluster.stop(name)
                if name == "controller":
                    cluster.start_controller(binding_timeout_seconds=600)
                else:
                    cluster.start_node(name)
            await cluster.wait_until_running(f"pod-{step}")
            assert [size for size, _ in await list_fabric_slices(cluster)] == [512], (
                "one slice after any crash"
            )
            await cluster.api.delete(kinds.POD, f"pod-{step}", namespace="default")
            await wait_for_release(cluster)
