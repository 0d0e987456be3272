"""The node daemon on clusters without `resource.k8s.io/v1`: it serves, says what it leaves out, and writes no claim."""

import asyncio
import contextlib
import logging

import grpc.aio
import pytest
from tests.scenes import attachments as scenes

from drawbar.driver.api import handles
from drawbar.driver.kube import client, config, kinds
from drawbar.driver.node import claim_versions, daemon, settings
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks import apiserver, sysfs
from drawbar.mocks.cluster import deployment
from drawbar.mocks.kubelet import protocols, versions

NODE = "node-1"
DRIVER = "drawbar.dev"
ACCOUNT = "drawbar:drawbar-node"
DISK = sysfs.MockDevice(device_class=DeviceClass.NVME, vendor=0x1B36, device=0x0010, serial="SN0001")
SPECS = {
    "v1alpha2": {"resourceClassName": "disks"},
    "v1alpha3": {
        "controller": DRIVER,
        "devices": {"requests": [{"name": "disk", "deviceClassName": "disks"}]},
    },
}


async def deploy(api):
    """What is deployed, but for the kinds that such a cluster does not know."""
    for document in deployment.documents(deployment.folder()):
        kind = deployment.KINDS[document["kind"]]
        if kind != kinds.DEVICE_CLASS:
            await api.create(kind, document, namespace=document["metadata"].get("namespace"), into=dict)


@contextlib.asynccontextmanager
async def world(tmp_path, profile):
    """An API server, a node with a disk in its slot, and its running daemon."""
    tree = sysfs.SysfsTree.create(tmp_path / "sys", uevent_socket=tmp_path / "uevents")
    async with apiserver.serving(profile=profile) as server, tree.reacting():
        server.kubeconfig(tmp_path / "admin", "admin")
        server.kubeconfig(tmp_path / "node", ACCOUNT, node=NODE)
        async with client.connecting(config.from_kubeconfig(tmp_path / "admin")) as api:
            await deploy(api)
            options = settings.Settings(
                node_name=NODE,
                kubeconfig=str(tmp_path / "node"),
                kubelet_dir=tmp_path / "k",
                cdi_dir=tmp_path / "cdi",
                sysfs=tmp_path / "sys",
                uevents=f"unix:{tmp_path / 'uevents'}",
            )
            task = asyncio.Task(daemon.run(options))
            try:
                yield server, api, tree, tmp_path / "k" / "plugins" / DRIVER / "dra.sock"
            finally:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task


async def attached(api, claim):
    """What the controller has made of the claim before it allocates it."""
    body = scenes.document(
        "fab.nvme-0",
        NODE,
        held=True,
        identity={"deviceClass": "nvme", "serial": "SN0001"},
        claim={"namespace": "default", "name": "c1", "uid": claim["metadata"]["uid"]},
        allocationTimestamp="2026-01-02T03:04:05Z",
    )
    await api.create(kinds.ATTACHMENT, body, into=dict)


def allocation(version):
    if version == "v1alpha3":
        result = {"request": "disk", "driver": DRIVER, "pool": "fab/enc", "device": "nvme-0"}
        return {"allocation": {"controller": DRIVER, "devices": {"results": [result]}}}
    return {
        "driverName": DRIVER,
        "allocation": {"resourceHandles": [{"driverName": DRIVER, "data": handle()}]},
    }


def handle():
    device = handles.HandleDevice(
        request="claim", fabric="fab", pool="fab/enc", device="nvme-0", attachment="fab.nvme-0"
    )
    return handles.encode(handles.Handle(node=NODE, devices=(device,)))


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("profile", "version", "service"),
    [
        ("1.30-classic", "v1alpha2", versions.V1ALPHA3),
        ("1.31-classic", "v1alpha3", versions.V1ALPHA4),
    ],
)
async def test_a_device_is_visible_prepared_and_released_without_a_word_on_the_claim(
    tmp_path, until, caplog, profile, version, service
):
    caplog.set_level(logging.WARNING)
    kind = kinds.CLASSIC_CLAIMS[version]
    async with world(tmp_path, profile) as (server, api, tree, socket):
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "c1"}}
        claim = await api.create(kind, body | {"spec": SPECS[version]}, namespace="default", into=dict)
        await attached(api, claim)
        await asyncio.to_thread(tree.attach, 1, DISK)

        async def conditions():
            found = await api.read(kinds.ATTACHMENT, "fab.nvme-0", into=dict)
            return {one["type"]: one["status"] for one in found.get("status", {}).get("conditions", ())}

        async def listens():
            return socket.exists()

        await until(conditions, lambda seen: seen.get("Visible") == "True")
        await until(listens, bool)
        status = allocation(version) | {"reservedFor": [{"resource": "pods", "name": "p1", "uid": "p1"}]}
        await api.patch(
            kind,
            "c1",
            {"status": status},
            content=client.Patch.MERGE,
            into=dict,
            namespace="default",
            subresource="status",
        )
        uid = claim["metadata"]["uid"]
        named = protocols.Claim(namespace="default", name="c1", uid=uid, handle=handle())
        async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
            answers = await protocols.prepare(channel, service, [named], 30)
            assert answers[uid].error == ""
            assert [device.cdi for device in answers[uid].devices] == [(f"{DRIVER}/device={uid}-nvme-0",)]
            await api.delete(kinds.ATTACHMENT, "fab.nvme-0")
            assert (await protocols.unprepare(channel, service, [named], 30))[uid].error == ""
        await until(conditions, lambda seen: seen.get("Released") == "True")

        mine = [write for write in server.writes if write.user.endswith(ACCOUNT)]
        assert {write.resource for write in mine} <= {"deviceattachments", "events"}
        assert any(write.resource == "deviceattachments" for write in mine)
    (said,) = [record for record in caplog.records if record.name == claim_versions.__name__]
    assert said.served == version
    assert not [record for record in caplog.records if "resourceslices" in record.getMessage()]
