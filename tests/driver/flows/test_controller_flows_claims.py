"""From claims to attachments with both of our daemons: what it costs, which pods share, and what is reported."""

from drawbar.driver.kube import kinds
from drawbar.fabric import contract
from drawbar.mocks.fabric import faults

CONTROLLER = "system:serviceaccount:drawbar:drawbar-controller"
NODE = "system:serviceaccount:drawbar:drawbar-node"
ATTACH = contract.OperationKind.ATTACH


def writes(cluster):
    """Return our daemons' writes as (verb, resource), without Events, leases and Fabrics.

    Writes that the API server refused as stale are left out: our two daemons may write in the same moment.
    """
    rest = {"events", "leases", "fabrics"}
    return sorted(
        (write.verb, "/".join(filter(None, (write.resource, write.subresource))))
        for write in cluster.server.writes
        if write.user in (CONTROLLER, NODE) and write.resource not in rest and write.code < 300
    )


async def expect_writes(cluster, *expected):
    """Wait for as many writes, and expect these: the last ones come when the pod runs, or the device is free."""

    async def read():
        return writes(cluster)

    assert await cluster.until(read, lambda lines: len(lines) >= len(expected)) == sorted(expected)
    cluster.server.writes.clear()


async def test_an_attach_takes_five_writes_and_a_detach_three(flow_lab):
    on_claim, on_attachment = ("patch", "resourceclaims/status"), ("patch", "deviceattachments/status")
    attach = (("create", "deviceattachments"), on_claim, on_claim, on_attachment, on_attachment)
    async with flow_lab("1.36") as cluster:
        await cluster.pod("first")
        await cluster.wait_until_running("first")
        await cluster.until(cluster.attachments, lambda attachments: are_reported(attachments.values()))
        for name in ("one", "two"):
            # From a steady state: pools and labels are written, and connections are open.
            cluster.server.writes.clear()
            await cluster.pod(name)
            await cluster.wait_until_running(name)
            await expect_writes(cluster, *attach)
            (device,) = await cluster.devices_of(name)
            await cluster.api.delete(kinds.POD, name, namespace="default")
            await cluster.is_free(device)
            await expect_writes(
                cluster, ("delete", "deviceattachments"), on_attachment, ("patch", "deviceattachments")
            )


def are_reported(attachments):
    """Return whether the device of each attachment is Attached and Visible."""
    return all(
        {
            condition["type"]
            for condition in attachment.get("status", {}).get("conditions", ())
            if condition["status"] == "True"
        }
        >= {"Attached", "Visible"}
        for attachment in attachments
    )


async def test_a_shared_claim_is_attached_once_and_for_as_long_as_one_pod_uses_it(flow_lab):
    async with flow_lab("1.36") as cluster:
        request = {"name": "disk", "exactly": {"deviceClassName": "nvme.drawbar.dev"}}
        await cluster.create(kinds.CLAIM, "shared", "default", spec={"devices": {"requests": [request]}})
        for name in ("a", "b"):
            await cluster.pod_using(name, {"name": "disk", "resourceClaimName": "shared"})
        nodes = {(await cluster.wait_until_running(name))[0] for name in ("a", "b")}
        assert len(nodes) == 1
        (uid,) = [attachment["metadata"]["uid"] for attachment in (await cluster.attachments()).values()]
        await cluster.api.delete(kinds.POD, "a", namespace="default")
        await cluster.wait_until_gone("a")
        await cluster.until(
            cluster.claims,
            lambda claims: [len(claim.get("status", {}).get("reservedFor", ())) for claim in claims] == [1],
        )
        (kept,) = (await cluster.attachments()).values()
        assert (kept["metadata"]["uid"], kept["metadata"].get("deletionTimestamp")) == (uid, None)
        await cluster.api.delete(kinds.POD, "b", namespace="default")
        await cluster.is_free("disk-0")


async def test_a_device_that_fails_does_not_fail_a_shared_claim_that_other_pods_run_with(flow_lab):
    request = {"name": "disk", "exactly": {"deviceClassName": "nvme.drawbar.dev"}}
    shared = {"name": "shared", "resourceClaimName": "shared"}
    async with flow_lab("1.36", devices=3, policy={"probationSeconds": 3600}) as cluster:
        for name in ("shared", "own"):
            await cluster.create(kinds.CLAIM, name, "default", spec={"devices": {"requests": [request]}})
        await cluster.pod_using("a", shared)
        await cluster.wait_until_running("a")
        (used,) = await cluster.list_connections()
        failing = min({"disk-0", "disk-1", "disk-2"} - {used})
        cluster.fabric.console.add_fault(
            faults.Fail(method=ATTACH, device=failing, retryable=False, message="no light")
        )
        await cluster.pod_using("b", {"name": "own", "resourceClaimName": "own"}, shared)
        await cluster.wait_for_event("FailedScheduling", "no light")
        await cluster.wait_until_running("b")
        await cluster.pod_using("c", shared)
        await cluster.wait_until_running("c")
        assert set(await cluster.list_connections()) == {"disk-0", "disk-1", "disk-2"} - {failing}


async def test_a_device_that_fails_fails_all_claims_of_the_pod_and_the_pod_gets_others(flow_lab):
    async with flow_lab("1.36", devices=3, policy={"probationSeconds": 3600}) as cluster:
        cluster.fabric.console.add_fault(
            faults.Fail(method=ATTACH, device="disk-1", retryable=False, message="no light")
        )
        cluster.fabric.console.add_fault(faults.Stick(method=ATTACH, device="disk-0"))
        await cluster.pod("a", claims=2)
        # The first claim's device would keep the scheduler waiting forever.
        _, devices = await cluster.wait_until_running("a")
        assert len(devices) == 2
        assert "disk-1" not in devices
        await cluster.wait_for_event("FailedScheduling", "no light")
        await cluster.is_free("disk-1")
        assert sorted(await cluster.list_connections()) == devices
