"""The node daemon tells the kubelet, the attachment and the user when a device falls ill."""

import asyncio
import contextlib

import grpc
import pytest
from tests.scenes import attachments as scenes

from drawbar.driver.kube import client, config, kinds
from drawbar.driver.node import daemon, settings
from drawbar.driver.node.health import attached
from drawbar.driver.node.health.policy import Policy
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks import apiserver, sysfs
from drawbar.mocks.cluster import deployment
from drawbar.proto.kubelet.drahealth.v1 import api_pb2, api_pb2_grpc

NODE, DRIVER = "node-1", "drawbar.dev"
DISK = sysfs.MockDevice(device_class=DeviceClass.NVME, vendor=0x1B36, device=0x0010, serial="SN0001")


@contextlib.asynccontextmanager
async def world(tmp_path):
    """An API server, a node with an empty slot, and its daemon with a health policy of short intervals."""
    tree = sysfs.SysfsTree.create(tmp_path / "sys", uevent_socket=tmp_path / "uevents")
    async with apiserver.serving() as server:
        server.kubeconfig(tmp_path / "admin", "admin")
        server.kubeconfig(tmp_path / "node", "drawbar:drawbar-node", node=NODE)
        async with client.connecting(config.from_kubeconfig(tmp_path / "admin")) as api:
            await deployment.apply(api)
            options = settings.Settings(
                node_name=NODE,
                kubeconfig=str(tmp_path / "node"),
                kubelet_dir=tmp_path / "k",
                cdi_dir=tmp_path / "cdi",
                sysfs=tmp_path / "sys",
                uevents=f"unix:{tmp_path / 'uevents'}",
                health=Policy(interval_seconds=1.0, recovery_seconds=0.0),
            )
            task = asyncio.Task(daemon.run(options))
            try:
                yield api, tree, tmp_path / "k" / "plugins" / DRIVER / "dra.sock"
            finally:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task


async def attachment_with_claim(api):
    claim = await api.create(
        kinds.CLAIM,
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": "c1"},
            "spec": {"devices": {"requests": [{"name": "disk", "exactly": {"deviceClassName": "nvme"}}]}},
        },
        namespace="default",
        into=dict,
    )
    body = scenes.document(
        "fab.nvme-0",
        NODE,
        metadata={"labels": {"drawbar.dev/node": NODE}},
        identity={"deviceClass": "nvme", "serial": "SN0001"},
        claim={"namespace": "default", "name": "c1", "uid": claim["metadata"]["uid"]},
    )
    await api.create(kinds.ATTACHMENT, body, into=dict)


@pytest.mark.timeout(120)
async def test_a_device_that_ails_or_is_pulled_is_told_to_kubelet_attachment_and_user_until_it_is_well(
    tmp_path, until
):
    async with world(tmp_path) as (api, tree, socket):
        await attachment_with_claim(api)
        await asyncio.to_thread(tree.attach, 1, DISK)

        async def health():
            """What the kubelet is told at first, once it is told anything of the device."""
            if not socket.exists():
                return {}
            async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
                stream = api_pb2_grpc.DRAResourceHealthStub(channel).NodeWatchResources(
                    api_pb2.NodeWatchResourcesRequest(), wait_for_ready=True
                )
                answer = await stream.read()
                stream.cancel()
            return {one.device.device_name: (one.health, one.message) for one in answer.devices}

        async def attachment():
            return await api.read(kinds.ATTACHMENT, "fab.nvme-0", into=dict)

        async def events():
            found = (await api.list_all(kinds.EVENT, into=dict)).items
            return {one["reason"]: one for one in found}

        healthy = {"nvme-0": (api_pb2.HEALTHY, "")}
        await until(health, lambda value: value == healthy)

        state = tree.root / "bus/pci/devices" / tree.address(1) / "nvme/nvme0/state"
        state.write_text("dead\n")
        seen = await until(attachment, lambda value: value["status"]["node"].get("health") == "Unhealthy")
        assert seen["status"]["node"]["healthMessage"] == f"NVMe controller nvme0 ({tree.address(1)}) is dead"
        state.write_text("live\n")
        await until(attachment, lambda value: value["status"]["node"].get("health") == "Healthy")

        await asyncio.to_thread(tree.surprise_remove, 1)
        told = await until(health, lambda value: value.get("nvme-0", (0,))[0] == api_pb2.UNHEALTHY)
        assert "disappeared" in told["nvme-0"][1]
        event = (await until(events, lambda value: attached.UNHEALTHY in value))[attached.UNHEALTHY]
        assert (event["type"], event["regarding"]["name"]) == ("Warning", "c1")

        await asyncio.to_thread(tree.attach, 1, DISK)
        await until(health, lambda value: value == healthy)
        await until(events, lambda value: attached.HEALTHY in value)

        await api.delete(kinds.ATTACHMENT, "fab.nvme-0")
        await until(health, lambda value: value == {})
