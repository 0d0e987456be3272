"""A fabric manager that forgets the connection of a device, and one that refuses an attach for a while."""

import asyncio
import sys

from drawbar.driver.kube import kinds
from drawbar.fabric import contract, errors
from drawbar.mocks.fabric import faults

FORGOTTEN = "the fabric manager no longer shows this connection"
LOCKED = "the zone of the device is locked"


def condition(holder, name):
    """Return status, reason and message of a condition, or None."""
    listed = holder.get("status", {}).get("conditions", ())
    found = next((entry for entry in listed if entry["type"] == name), None)
    return (found["status"], found["reason"], found["message"]) if found is not None else None


async def read_attached_condition(cluster, device):
    """Return status, reason and message of the condition `Attached`, or None."""
    return condition((await cluster.attachments()).get(device, {}), "Attached")


async def read_degraded_condition(cluster):
    return condition(await cluster.api.read(kinds.FABRIC, "fab", into=dict), "Degraded")


def has(status, reason, words=""):
    return lambda reported: reported is not None and reported[:2] == (status, reason) and words in reported[2]


async def test_a_pod_gets_a_forgotten_device_by_a_second_attach(flow_lab):
    async with flow_lab("1.36", devices=1) as cluster:
        await cluster.until(cluster.slices, bool)
        for node in ("node-1", "node-2"):
            await cluster.stop(node)
        await cluster.pod("user")
        await cluster.until(lambda: read_attached_condition(cluster, "disk-0"), has("True", "Attached"))
        before = await operations(cluster)
        cluster.fabric.console.forget_connection("disk-0")
        assert await cluster.list_connections() == {}
        # A pod would wait forever, and its node look for a device that the manager may give to others.
        await cluster.until(cluster.list_connections, bool)
        assert len(await operations(cluster) - before) == 1
        await cluster.wait_for_event(
            "ConnectionNotShown", f"{FORGOTTEN}: it lists disk-0 as free, not at host host-"
        )
        await cluster.until(lambda: read_attached_condition(cluster, "disk-0"), has("True", "Attached"))
        for node in ("node-1", "node-2"):
            cluster.start_node(node)
        placed, devices = await cluster.wait_until_running("user")
        assert devices == ["disk-0"]
        assert await cluster.list_connections() == {"disk-0": f"host-{placed}"}
        assert not await has_failed(cluster)


async def test_a_forgotten_device_that_its_node_has_seen_is_reported_until_it_is_shown_again(flow_lab):
    async with flow_lab("1.36", devices=1) as cluster:
        await cluster.pod("user")
        node, _ = await cluster.wait_until_running("user")
        await cluster.until(
            cluster.attachments, lambda value: value["disk-0"]["status"].get("phase") == "Ready"
        )
        before = await operations(cluster)
        cluster.fabric.console.forget_connection("disk-0")
        _, _, message = await cluster.until(
            lambda: read_attached_condition(cluster, "disk-0"), has("True", "ConnectionNotShown")
        )
        assert message.startswith(f"{FORGOTTEN}: since 20")
        assert f"it lists disk-0 as free, not at host host-{node}; node {node} has seen the device" in message
        _, _, words = await cluster.until(
            lambda: read_degraded_condition(cluster), has("True", "ConnectionsNotShown")
        )
        assert "no longer shows the connection of 1 attached device (disk-0)" in words
        await cluster.wait_for_event("ConnectionNotShown", FORGOTTEN)
        for verb in ("explain", "status"):
            assert "no longer shows this connection: since 20" in await describe_pod(cluster, verb)

        cluster.fabric.console.recall_connection("disk-0")
        await cluster.until(lambda: read_attached_condition(cluster, "disk-0"), has("True", "Attached"))
        await cluster.until(lambda: read_degraded_condition(cluster), has("False", "Healthy"))
        assert await operations(cluster) == before, "nothing is attached or detached under a pod"
        assert (await cluster.wait_until_running("user")) == (node, ["disk-0"])


async def test_a_forgotten_device_is_released_with_its_pod(flow_lab):
    async with flow_lab("1.36", devices=1) as cluster:
        await cluster.pod("user")
        await cluster.wait_until_running("user")
        cluster.fabric.console.forget_connection("disk-0")
        await cluster.until(
            lambda: read_attached_condition(cluster, "disk-0"), has("True", "ConnectionNotShown")
        )
        await cluster.api.delete(kinds.POD, "user", namespace="default")
        await cluster.wait_until_gone("user")
        await cluster.is_free("disk-0")
        await cluster.until(lambda: read_degraded_condition(cluster), has("False", "Healthy"))
        await cluster.pod("next")
        assert (await cluster.wait_until_running("next"))[1] == ["disk-0"]


async def test_a_refusal_that_is_retried_is_told_from_the_first_on_and_in_the_claims_failure(flow_lab):
    async with flow_lab("1.36", devices=1, timeout=600, patience=12) as cluster:
        refusal = faults.Refuse(
            method="attach", code=errors.Code.UNAVAILABLE, message=LOCKED, times=None, retryable=True
        )
        cluster.fabric.console.add_fault(refusal)
        since = await cluster.version()
        await cluster.pod("user")
        _, _, message = await cluster.until(
            lambda: read_attached_condition(cluster, "disk-0"), has("False", "FabricBusy")
        )
        assert f"{LOCKED}; tried again in " in message
        assert not await has_failed(cluster)
        for verb in ("explain", "status"):
            assert LOCKED in await describe_pod(cluster, verb)
        # The scheduler takes the failed allocation back at once, so that the condition stands in the past only.
        await cluster.wait_for_event("FabricUnreachable", f"it refused last: {LOCKED}")
        failures = [
            entry
            for _, claim in await cluster.history(cluster.claim_kind, since)
            for device in claim.get("status", {}).get("devices", ())
            for entry in device["conditions"]
            if (entry["type"], entry["status"]) == ("drawbar.dev/attach-failed", "True")
        ]
        assert failures[0]["reason"] == "FabricUnreachable", "the manager never took the request"
        assert f"it refused last: {LOCKED}" in failures[0]["message"]
        cluster.fabric.console.clear_faults()
        assert (await cluster.wait_until_running("user"))[1] == ["disk-0"]


async def describe_pod(cluster, verb):
    """Return the output of `drawbar explain` or `drawbar status` about the pod, with single spaces."""
    process = await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-m",
            "drawbar.driver.main",
            verb,
            "pod/user",
            "--kubeconfig",
            str(cluster.site.admin),
        ),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    return " ".join(out.decode().replace("│", " ").split())


async def operations(cluster):
    """Return the request ids of all attaches and detaches that the fabric manager was asked for."""
    return {
        operation.request_id
        for operation in await cluster.fabric.operations()
        if operation.kind in (contract.OperationKind.ATTACH, contract.OperationKind.DETACH)
    }


async def has_failed(cluster):
    return any("attach-failed" in conditions for conditions in (await cluster.conditions_of("user")).values())
