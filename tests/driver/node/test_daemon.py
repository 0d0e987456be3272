"""The node daemon against the API server double and a mocked sysfs tree."""

import asyncio
import contextlib

import grpc
import pytest
from tests.scenes import attachments as scenes

from drawbar.driver.kube import client, config, kinds
from drawbar.driver.node import daemon, settings
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks import apiserver, sysfs
from drawbar.mocks.cluster import deployment
from drawbar.proto.kubelet.dra.v1 import api_pb2, api_pb2_grpc

NODE = "node-1"
DRIVER = "drawbar.dev"
DISK = sysfs.MockDevice(device_class=DeviceClass.NVME, vendor=0x1B36, device=0x0010, serial="SN0001")
RESULT = {
    "request": "disk",
    "driver": DRIVER,
    "pool": "fab/enc",
    "device": "nvme-0",
    "bindingConditions": [f"{DRIVER}/attached", f"{DRIVER}/visible"],
    "bindingFailureConditions": [f"{DRIVER}/attach-failed", f"{DRIVER}/node-failed"],
}


@contextlib.asynccontextmanager
async def world(tmp_path, **changes):
    """An API server with the deployed files, a node with an empty slot, and its running daemon."""
    tree = sysfs.SysfsTree.create(tmp_path / "sys", uevent_socket=tmp_path / "uevents")
    async with apiserver.serving() as server, tree.reacting():
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
                **changes,
            )
            task = asyncio.Task(daemon.run(options))
            try:
                yield api, tree, tmp_path / "k" / "plugins" / DRIVER / "dra.sock"
            finally:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task


async def allocated_claim(api):
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
    field = {"key": "metadata.name", "operator": "In", "values": [NODE]}
    claim["status"] = {
        "allocation": {
            "devices": {"results": [RESULT]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
            "allocationTimestamp": "2026-01-02T03:04:05Z",
        },
        "reservedFor": [{"resource": "pods", "name": "pod-1", "uid": "pod-1"}],
    }
    return await api.replace(kinds.CLAIM, "c1", claim, namespace="default", subresource="status", into=dict)


async def attachment_for(api, claim):
    body = scenes.document(
        "fab.nvme-0",
        NODE,
        held=True,
        identity={"deviceClass": "nvme", "serial": "SN0001"},
        claim={"namespace": "default", "name": "c1", "uid": claim["metadata"]["uid"]},
        allocationTimestamp="2026-01-02T03:04:05Z",
    )
    return await api.create(kinds.ATTACHMENT, body, into=dict)


def conditions(thing):
    return {one["type"]: one["status"] for one in thing.get("status", {}).get("conditions", ())}


async def call(socket, method, claim):
    request = {
        "NodePrepareResources": api_pb2.NodePrepareResourcesRequest,
        "NodeUnprepareResources": api_pb2.NodeUnprepareResourcesRequest,
    }[method]
    name = api_pb2.Claim(namespace="default", name="c1", uid=claim["metadata"]["uid"])
    async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
        answer = await getattr(api_pb2_grpc.DRAPluginStub(channel), method)(
            request(claims=[name]), wait_for_ready=True
        )
    return answer.claims[claim["metadata"]["uid"]]


@pytest.mark.timeout(60)
async def test_a_device_that_arrives_is_reported_prepared_and_released(tmp_path, until):
    async with world(tmp_path) as (api, tree, socket):
        claim = await allocated_claim(api)
        await attachment_for(api, claim)

        async def attachment():
            return await api.read(kinds.ATTACHMENT, "fab.nvme-0", into=dict)

        async def listens():
            return socket.exists()

        await until(listens, bool)
        # A call that comes before the device waits for it.
        early = asyncio.Task(call(socket, "NodePrepareResources", claim))

        address = await asyncio.to_thread(tree.attach, 1, DISK)
        assert not (await early).error
        seen = await until(attachment, lambda value: conditions(value).get("Visible") == "True")
        assert seen["status"]["node"]["pciAddress"] == address
        assert seen["status"]["phase"] == "Ready"
        current = await api.read(kinds.CLAIM, "c1", namespace="default", into=dict)
        assert current["status"]["devices"][0]["conditions"][0]["type"] == f"{DRIVER}/visible"
        assert current["status"]["devices"][0]["conditions"][0]["status"] == "True"

        async def told():
            found = (await api.list_all(kinds.EVENT, into=dict, namespace="default")).items
            return sorted((one["regarding"]["kind"], one["type"], one["reason"]) for one in found)

        ready = ("Normal", "DeviceReady")
        await until(told, lambda value: value == [("Pod", *ready), ("ResourceClaim", *ready)])

        for _ in range(2):
            prepared = await call(socket, "NodePrepareResources", claim)
            assert not prepared.error
            assert list(prepared.devices[0].request_names) == ["disk"]
            assert len(list((tmp_path / "cdi").glob("*.json"))) == 1

        await api.delete(kinds.ATTACHMENT, "fab.nvme-0")
        assert "Released" not in conditions(await attachment())
        for _ in range(2):
            assert not (await call(socket, "NodeUnprepareResources", claim)).error
        await until(attachment, lambda value: conditions(value).get("Released") == "True")
        assert list((tmp_path / "cdi").glob("*.json")) == []


async def controller_says(api, **status):
    """What the controller would apply to the attachment's status."""
    told = {"conditions": [scenes.condition("Attached")]} | status
    await scenes.apply_status(api, "fab.nvme-0", "drawbar-controller", **told)


@pytest.mark.timeout(60)
async def test_a_device_that_never_comes_fails_the_claim_once_the_controller_has_tainted_it(tmp_path, until):
    async with world(tmp_path, visible_timeout_seconds=1.0) as (api, _tree, _socket):
        claim = await allocated_claim(api)
        await attachment_for(api, claim)
        await controller_says(api)

        async def attachment():
            return await api.read(kinds.ATTACHMENT, "fab.nvme-0", into=dict)

        async def said():
            current = await api.read(kinds.CLAIM, "c1", namespace="default", into=dict)
            return current["status"].get("devices", [])

        await until(attachment, lambda value: conditions(value).get("Visible") == "False")
        assert await said() == [], "the device is not tainted yet"
        await controller_says(api, error={"reason": "DeviceNotFound", "message": "tainted now"})
        (device,) = await until(said, bool)
        (condition,) = device["conditions"]
        assert condition["type"] == f"{DRIVER}/node-failed"
        assert condition["reason"] == "DeviceNotFound"
        assert "SN0001" in condition["message"]
