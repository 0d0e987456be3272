"""Who is blamed when the fabric manager refuses a device at one host: neither of them, whatever a tenant pins there.

A refusal counts once: were the manager asked again, it would attach the device. So a claim that still fails shows that it is
not asked.
"""

import pytest

from drawbar.driver.kube import kinds
from drawbar.fabric import contract, errors
from drawbar.mocks.fabric import faults

pytestmark = pytest.mark.attack

LABEL = "fabric.drawbar.dev/fab"
REASON = "DeviceIncompatible"


def refusal(device, **changes):
    return faults.Refuse(
        method="attach",
        device=device,
        host="host-node-2",
        code=errors.Code.FAILED_PRECONDITION,
        reason=errors.Reason.INCOMPATIBLE,
        message="the host is not in the fabric of the device",
        **changes,
    )


async def pin(cluster, name, device, node):
    """Create a claim for this device, whatever its taints, and a pod on this node that uses it."""
    selector = {"cel": {"expression": f'device.attributes["drawbar.dev"].deviceID == "{device}"'}}
    exactly = {
        "deviceClassName": "nvme.drawbar.dev",
        "tolerations": [{"operator": "Exists"}],
        "selectors": [selector],
    }
    spec = {"devices": {"requests": [{"name": "d", "exactly": exactly}]}}
    await cluster.create(cluster.claim_kind, name, "default", spec=spec)
    container = {"name": "main", "image": "none", "resources": {"claims": [{"name": "d"}]}}
    await cluster.create(
        kinds.POD,
        name,
        "default",
        spec={
            "nodeSelector": {"kubernetes.io/hostname": node},
            "containers": [container],
            "resourceClaims": [{"name": "d", "resourceClaimName": name}],
        },
    )


async def runs(cluster, name, node, device):
    """Wait until the pod runs; it does on that node, with that device."""
    assert (await cluster.wait_until_running(name))[0] == node
    claim = await cluster.api.read(cluster.claim_kind, name, into=dict, namespace="default")
    assert [result["device"] for result in claim["status"]["allocation"]["devices"]["results"]] == [device]
    assert (await cluster.list_connections())[device] == f"host-{node}"


async def failures(cluster, since):
    """Count the allocations that have failed since that version."""
    return len(
        {
            claim["status"]["allocation"]["allocationTimestamp"]
            for _, claim in await cluster.history(cluster.claim_kind, since)
            for device in claim.get("status", {}).get("devices", ())
            for condition in device.get("conditions", ())
            if condition["type"] == "drawbar.dev/attach-failed" and condition["status"] == "True"
        }
    )


async def unpin(cluster, name, device):
    await cluster.api.delete(kinds.POD, name, namespace="default")
    await cluster.wait_until_gone(name)
    await cluster.api.delete(cluster.claim_kind, name, namespace="default")
    await cluster.is_free(device)


async def refused_pairs(cluster):
    fabric = await cluster.api.read(kinds.FABRIC, "fab", into=dict)
    return [(pair["device"], pair["host"]) for pair in fabric["status"].get("incompatible", ())]


async def left_out(cluster, device):
    """Return the nodes that the device's pool leaves out although the fabric reaches them; None while it changes its slice."""
    specs = [
        spec
        for spec in await cluster.slices()
        if any(entry["name"] == device for entry in spec.get("devices", ()))
    ]
    if len(specs) != 1:
        return None
    (spec,) = specs
    (term,) = spec["nodeSelector"]["nodeSelectorTerms"]
    closed = {entry["key"] for entry in term["matchExpressions"] if entry["operator"] == "DoesNotExist"}
    nodes = (await cluster.api.list_all(kinds.NODE, into=dict)).items
    return {node["metadata"]["name"] for node in nodes if closed & node["metadata"]["labels"].keys()}


async def unschedulable(cluster, pod):
    conditions = (await cluster.pods())[pod].get("status", {}).get("conditions", ())
    return any(entry.get("reason") == "Unschedulable" for entry in conditions)


async def events_on_claim(cluster, name):
    """Return the Events about the claim's failure, and how often they report it."""
    listing = await cluster.api.list_all(kinds.EVENT, into=dict, namespace="default")
    mine = [
        event
        for event in listing.items
        if (event["reason"], event["regarding"]["kind"], event["regarding"]["name"])
        == (REASON, "ResourceClaim", name)
    ]
    return mine, sum(event.get("series", {}).get("count", 1) for event in mine)


async def tainted_since(cluster, since, device):
    """Return whether the device had the taint of a failed attach at any time since that version."""
    listing = await cluster.api.list_all(kinds.SLICE, into=dict)
    if all(int(published["metadata"]["resourceVersion"]) <= int(since) for published in listing.items):
        return False
    return any(
        taint.startswith("attach-failed")
        for _, published in await cluster.history(kinds.SLICE, since)
        for taint in cluster.taints_in([published["spec"]], device)
    )


async def test_a_pair_that_the_manager_refuses_costs_the_device_no_taint_and_is_not_tried_again(flow_lab):
    async with flow_lab("1.36", policy={"probationSeconds": 3600}) as cluster:
        cluster.fabric.console.add_fault(refusal("disk-0", times=1))
        await cluster.until(cluster.slices, bool)
        since = await cluster.version()
        await pin(cluster, "tenant", "disk-0", "node-2")
        assert await cluster.until(lambda: refused_pairs(cluster), bool) == [("disk-0", "host-node-2")]
        # Once the claim lets go of it, the device is offered to the other node alone.
        await cluster.until(lambda: left_out(cluster, "disk-0"), lambda nodes: nodes == {"node-2"})
        await cluster.until(cluster.attachments, lambda attachments: attachments == {})
        assert await left_out(cluster, "disk-1") == set()
        # The scheduler may give the claim the pair again before it sees that; the fabric manager is not asked again.
        times = await failures(cluster, since)
        assert times >= 1
        assert len(await cluster.fabric.operations()) == 1
        stored, _ = await cluster.until(
            lambda: events_on_claim(cluster, "tenant"), lambda events: events[1] >= times
        )
        assert len(stored) <= 2, "the manager's own words, and that it is not asked again"
        assert not (await cluster.pods())["tenant"]["spec"].get("nodeName")

        # The next controller remembers the pair. A second claim for it is given nothing.
        await cluster.stop("controller")
        cluster.start_controller()
        await unpin(cluster, "tenant", "disk-0")
        await cluster.until(lambda: left_out(cluster, "disk-0"), lambda nodes: nodes == {"node-2"})
        asked = len(await cluster.fabric.operations())
        await pin(cluster, "second", "disk-0", "node-2")
        await cluster.until(lambda: unschedulable(cluster, "second"), bool)
        assert (await cluster.attachments()) == {}
        assert len(await cluster.fabric.operations()) == asked
        await unpin(cluster, "second", "disk-0")

        # The device is everybody's on the other node, and the pair is tried again once its time is over.
        await pin(cluster, "neighbour", "disk-0", "node-1")
        await runs(cluster, "neighbour", "node-1", "disk-0")
        await unpin(cluster, "neighbour", "disk-0")
        assert not await tainted_since(cluster, since, "disk-0")
        await cluster.change(kinds.FABRIC, "fab", spec={"policy": {"probationSeconds": 1}})
        await pin(cluster, "third", "disk-0", "node-2")
        await runs(cluster, "third", "node-2", "disk-0")
        await cluster.until(lambda: refused_pairs(cluster), lambda pairs: pairs == [])


async def test_two_refused_devices_cost_the_host_nothing_and_one_that_fits_is_attached_there(flow_lab):
    async with flow_lab("1.36", devices=3, policy={"probationSeconds": 3600}) as cluster:
        for device in ("disk-0", "disk-1"):
            cluster.fabric.console.add_fault(refusal(device, times=None))
        await cluster.until(cluster.slices, bool)
        await pin(cluster, "m0", "disk-0", "node-2")
        await pin(cluster, "m1", "disk-1", "node-2")
        await cluster.until(lambda: refused_pairs(cluster), lambda pairs: len(pairs) == 2)
        await pin(cluster, "victim", "disk-2", "node-2")
        await runs(cluster, "victim", "node-2", "disk-2")
        node = await cluster.api.read(kinds.NODE, "node-2", into=dict)
        assert LABEL in node["metadata"]["labels"]
        fabric = await cluster.api.read(kinds.FABRIC, "fab", into=dict)
        (degraded,) = [entry for entry in fabric["status"]["conditions"] if entry["type"] == "Degraded"]
        assert degraded["status"] == "False", degraded
        assert [await cluster.taints(device) for device in ("disk-0", "disk-1", "disk-2")] == [set()] * 3


async def test_one_claim_that_fails_again_and_again_waits_longer_each_time_and_doubles_no_probation(flow_lab):
    async with flow_lab("1.36", devices=1, policy={"probationSeconds": 3600}) as cluster:
        dark = faults.Fail(method=contract.OperationKind.ATTACH, times=None, retryable=False)
        cluster.fabric.console.add_fault(dark)
        await cluster.until(cluster.slices, bool)
        since = await cluster.version()
        await pin(cluster, "tenant", "disk-0", "node-2")
        await cluster.wait_for_taints("disk-0", "attach-failed=FabricError:NoSchedule")
        await cluster.wait_for_event("DeviceWaiting", "next attach begins after a pause")
        assert 1 < await failures(cluster, since) <= 4
        # A real fault of the device is still found, and lasts for the first probation from the first failure.
        await cluster.change(kinds.FABRIC, "fab", spec={"policy": {"probationSeconds": 1}})
        cluster.fabric.console.clear_faults()
        await runs(cluster, "tenant", "node-2", "disk-0")
        await cluster.wait_for_taints("disk-0")
