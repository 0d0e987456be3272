"""Claims that are allocated at once: both daemons, the scheduler, the claim controller and the kubelet."""

import contextlib
from pathlib import Path

import pytest
import yaml

from drawbar.driver.kube import errors, kinds
from drawbar.fabric import contract
from drawbar.mocks.apiserver import faults as faults_of_server
from drawbar.mocks.cluster import deployment
from drawbar.mocks.fabric import faults

PAGE = Path(__file__).parents[3] / "docs" / "immediate.md"
IMMEDIATE = {"drawbar.dev/allocation-mode": "Immediate"}
ON = {"immediate_allocation": True}
# As an administrator of 1.34 may have set them.
GATES = {"DRADeviceBindingConditions": True, "DRADeviceTaints": True}
ATTACH = contract.OperationKind.ATTACH


def make_immediate_policy(*devices, **policy):
    return {"probationSeconds": 0, "immediate": {"devices": list(devices)}} | policy


async def allow(cluster):
    """Apply the documents of the page, as an administrator does."""
    text = PAGE.read_text().split("```yaml\n")[1].split("```")[0]
    for document in yaml.safe_load_all(text):
        # Real components are kept from test to test.
        with contextlib.suppress(errors.AlreadyExists):
            await cluster.api.create(deployment.KINDS[document["kind"]], document, into=dict)
    await cluster.site.allow_immediate(cluster.api)


@contextlib.asynccontextmanager
async def lab(flow_lab, profile="1.36", **changes):
    async with flow_lab(profile, controller=ON, **changes) as cluster:
        await allow(cluster)
        yield cluster


async def claim(cluster, name="early", *, node=None, **request):
    annotations = IMMEDIATE | ({"drawbar.dev/node": node} if node else {})
    asked = {"name": "disk", "exactly": {"deviceClassName": "nvme.drawbar.dev"} | request}
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"devices": {"requests": [asked]}},
    }
    await cluster.api.create(kinds.CLAIM, body, namespace="default", into=dict)


def parse_allocation(claim):
    """Return the node and the devices of a claim; None while it is not allocated."""
    allocation = claim.get("status", {}).get("allocation")
    if allocation is None:
        return None
    (term,) = allocation["nodeSelector"]["nodeSelectorTerms"]
    return term["matchFields"][0]["values"][0], sorted(
        result["device"] for result in allocation["devices"]["results"]
    )


async def read(cluster, name="early"):
    return await cluster.api.read(kinds.CLAIM, name, namespace="default", into=dict)


async def wait_for_allocation(cluster, name="early", holds=bool):
    claim = await cluster.until(
        lambda: read(cluster, name), lambda claim: parse_allocation(claim) and holds(parse_allocation(claim))
    )
    return parse_allocation(claim)


async def ready(cluster, name="early"):
    """Wait until both binding conditions hold."""

    def both(claim):
        devices = claim.get("status", {}).get("devices", ())
        true = [
            c["type"] for device in devices for c in device.get("conditions", ()) if c["status"] == "True"
        ]
        return {"drawbar.dev/attached", "drawbar.dev/visible"} <= set(true)

    await cluster.until(lambda: read(cluster, name), both)


async def pod_with(cluster, name, claim_name="early"):
    await cluster.pod_using(name, {"name": "disk", "resourceClaimName": claim_name})


async def phase(cluster, name):
    return (await cluster.pods())[name].get("status", {}).get("phase")


async def is_running(cluster, name):
    await cluster.until(lambda: phase(cluster, name), lambda value: value == "Running")
    return (await cluster.pods())[name]["spec"]["nodeName"]


async def list_offered_devices(cluster):
    return {device["name"] for spec in await cluster.slices() for device in spec.get("devices", ())}


@pytest.mark.parametrize(("profile", "gates"), [("1.34", GATES), ("1.37", None)])
async def test_a_claim_has_its_device_before_any_pod_and_until_it_is_deleted(flow_lab, profile, gates):
    async with lab(flow_lab, profile, gates=gates, policy=make_immediate_policy("disk-1")) as cluster:
        await claim(cluster, node="node-2")
        assert await wait_for_allocation(cluster) == ("node-2", ["disk-1"])
        await ready(cluster)
        assert await cluster.list_connections() == {"disk-1": "host-node-2"}
        (attachment,) = (await cluster.attachments()).values()
        for name in ("a", "b"):
            await pod_with(cluster, name)
            assert await is_running(cluster, name) == "node-2"
            await cluster.api.delete(kinds.POD, name, namespace="default")
            await cluster.wait_until_gone(name)
            # No pod uses it, and it stays as it is.
            kept = await cluster.until(
                lambda: read(cluster), lambda claim: not claim.get("status", {}).get("reservedFor")
            )
            assert parse_allocation(kept) == ("node-2", ["disk-1"])
        assert (await cluster.attachments())["disk-1"]["metadata"]["uid"] == attachment["metadata"]["uid"]
        await cluster.api.delete(kinds.CLAIM, "early", namespace="default")
        await cluster.is_free("disk-1")


async def test_a_reserved_device_is_never_the_schedulers_to_give(flow_lab):
    async with lab(flow_lab, devices=3, policy=make_immediate_policy("disk-1")) as cluster:
        await cluster.until(
            lambda: list_offered_devices(cluster), lambda names: names == {"disk-0", "disk-2"}
        )
        since = await cluster.version()
        names = ["a", "b", "c", "d"]
        for name in names:
            await cluster.pod(name)
        await claim(cluster)
        await wait_for_allocation(cluster)
        # More want a disk than there are: each pod gets one in its turn, and none gets the reserved one.
        for _ in names:
            busy = await cluster.until(lambda: some_running(cluster), bool)
            await cluster.api.delete(kinds.POD, busy, namespace="default")
            await cluster.wait_until_gone(busy)
        await ready(cluster)
        await cluster.until(cluster.attachments, lambda attachments: list(attachments) == ["disk-1"])
        # Its history goes as far as what is left was changed last.
        await cluster.change(kinds.CLAIM, "early", "default", metadata={"annotations": {"x": "y"}})
        for _, state in await cluster.history(kinds.CLAIM, since):
            if parse_allocation(state) is not None:
                assert (parse_allocation(state)[1] == ["disk-1"]) == (state["metadata"]["name"] == "early")


async def some_running(cluster):
    pods = await cluster.pods()
    return next((name for name, pod in pods.items() if pod.get("status", {}).get("phase") == "Running"), "")


async def test_a_failed_device_is_detached_and_another_is_allocated(flow_lab):
    async with lab(
        flow_lab, policy=make_immediate_policy("disk-0", "disk-1", probationSeconds=3600)
    ) as cluster:
        cluster.fabric.console.add_fault(
            faults.Fail(method=ATTACH, device="disk-0", retryable=False, message="no light")
        )
        await claim(cluster)
        await wait_for_allocation(cluster, holds=lambda allocation: allocation[1] == ["disk-1"])
        await ready(cluster)
        await cluster.wait_for_event("ImmediateAllocationFailed", "no light")
        await cluster.is_free("disk-0")
        await pod_with(cluster, "a")
        await is_running(cluster, "a")


async def test_a_controller_that_dies_between_the_writes_is_taken_up_and_who_comes_later_waits(flow_lab):
    async with lab(flow_lab, policy=make_immediate_policy("disk-0")) as cluster:
        refused = faults_of_server.Fault(
            select=faults_of_server.Selection(verb="create", resource="deviceattachments"),
            effect=faults_of_server.Refusal(code=503),
        )
        lost = cluster.server.faults.add(refused)
        await claim(cluster)
        await wait_for_allocation(cluster)
        await cluster.stop("controller")
        # Allocated, and no more than that.
        assert await cluster.attachments() == {}
        lost.lift()
        cluster.start_controller(**ON)
        await ready(cluster)
        assert parse_allocation(await read(cluster))[1] == ["disk-0"]
        assert list(await cluster.attachments()) == ["disk-0"]
        # The next claim waits, and gets it when the first is deleted.
        await claim(cluster, "second")
        await cluster.wait_for_event("NoReservedDevice", "no free device is reserved")
        await cluster.api.delete(kinds.CLAIM, "early", namespace="default")
        assert (await wait_for_allocation(cluster, "second"))[1] == ["disk-0"]
        await ready(cluster, "second")


async def test_a_claim_gets_an_event_where_it_is_off_and_a_device_that_a_pod_has_is_reserved_after_it(
    flow_lab,
):
    async with flow_lab("1.36") as cluster:
        await allow(cluster)
        await cluster.pod("a")
        _, (device,) = await cluster.wait_until_running("a")
        await claim(cluster)
        await cluster.wait_for_event("ImmediateAllocationOff", "immediateAllocation of the controller")
        await cluster.change(kinds.FABRIC, "fab", spec={"policy": {"immediate": {"devices": [device]}}})
        await cluster.wait_for_taints(device, "reserved=:NoSchedule")
        assert await phase(cluster, "a") == "Running"
        await cluster.api.delete(kinds.POD, "a", namespace="default")
        await cluster.until(
            lambda: list_offered_devices(cluster), lambda names: names and device not in names
        )
        await cluster.stop("controller")
        cluster.start_controller(**ON)
        assert (await wait_for_allocation(cluster))[1] == [device]
        await ready(cluster)
        await claim(cluster, "all", allocationMode="All")
        await cluster.wait_for_event("NoReservedDevice")
        await cluster.api.delete(kinds.CLAIM, "early", namespace="default")
        await cluster.wait_for_event(
            "ImmediateAllocationUnsupported", "request disk has the allocationMode All"
        )
        assert parse_allocation(await read(cluster, "all")) is None
        await cluster.is_free(device)
