"""The node daemon reports an ill device to the kubelet, in the attachment and to the user."""

import asyncio

import grpc.aio
from tests.scenes import nodes

from drawbar.driver.catalogue import reasons
from drawbar.driver.kube import kinds
from drawbar.driver.node.health.policy import Policy
from drawbar.proto.kubelet.drahealth.v1 import api_pb2, api_pb2_grpc


async def test_a_device_that_ails_or_is_pulled_is_reported_to_kubelet_attachment_and_user_until_it_is_well(
    tmp_path, until
):
    async with nodes.serving(tmp_path, health=Policy(interval_seconds=1.0, recovery_seconds=0.0)) as node:
        await node.attach(await node.allocate_claim())
        await node.plug()
        tree = node.tree

        async def health():
            """Return the first list that the kubelet gets, by device; nothing while the daemon does not listen."""
            if not await node.is_listening():
                return {}
            async with grpc.aio.insecure_channel(f"unix:{node.socket}") as channel:
                stream = api_pb2_grpc.DRAResourceHealthStub(channel).NodeWatchResources(
                    api_pb2.NodeWatchResourcesRequest(), wait_for_ready=True
                )
                answer = await stream.read()
                stream.cancel()
            return {entry.device.device_name: (entry.health, entry.message) for entry in answer.devices}

        async def read():
            return (await node.attachment())["status"]["node"]

        async def events():
            listed = await node.list(kinds.EVENT)
            return {(event["reason"], event["regarding"]["kind"]): event for event in listed}

        healthy = {"nvme-0": (api_pb2.HEALTHY, "")}
        await until(health, lambda value: value == healthy)

        state = tree.root / "bus/pci/devices" / tree.address(1) / "nvme/nvme0/state"
        state.write_text("dead\n")
        seen = await until(read, lambda value: value.get("health") == "Unhealthy")
        assert seen["healthMessage"] == f"NVMe controller nvme0 ({tree.address(1)}) is dead"
        state.write_text("live\n")
        await until(read, lambda value: value.get("health") == "Healthy")

        await asyncio.to_thread(tree.surprise_remove, 1)
        reported = await until(health, lambda value: value.get("nvme-0", (0,))[0] == api_pb2.UNHEALTHY)
        assert "disappeared" in reported["nvme-0"][1]
        about = (reasons.DEVICE_UNHEALTHY, "ResourceClaim"), (reasons.DEVICE_UNHEALTHY, "DeviceAttachment")
        told = await until(events, lambda value: value.keys() >= set(about))
        assert {told[key]["type"] for key in about} == {"Warning"}
        assert told[about[0]]["regarding"]["name"] == "c1"

        await node.plug()
        await until(health, lambda value: value == healthy)
        await until(events, lambda value: (reasons.DEVICE_HEALTHY, "DeviceAttachment") in value)

        await node.detach()
        await until(health, lambda value: value == {})
