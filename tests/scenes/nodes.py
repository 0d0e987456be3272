"""A whole node: the API server double with the deployed files, a mocked sysfs tree, and the node daemon in this process."""

import asyncio
import contextlib

import grpc.aio
from tests.scenes import attachments as scenes
from tests.scenes import clusters

from drawbar.driver.kube import client, config, kinds
from drawbar.driver.node import daemon, settings
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks import apiserver, sysfs
from drawbar.mocks.cluster import deployment
from drawbar.mocks.testing import worlds
from drawbar.proto.kubelet.dra.v1 import api_pb2, api_pb2_grpc

NODE, DRIVER, NAME = "node-1", "drawbar.dev", "fab.nvme-0"
ACCOUNT = "drawbar:drawbar-node"
ALLOCATED = "2026-01-02T03:04:05Z"
DISK = sysfs.MockDevice(device_class=DeviceClass.NVME, vendor=0x1B36, device=0x0010, serial="SN0001")
RESULT = worlds.result("fab/enc", "nvme-0", request="one")


class Node(clusters.Cluster):
    """The cluster as a user sees it, the node's slots, and its daemon, which can be stopped and started."""

    def __init__(self, folder, server, api, tree, options=None):
        super().__init__(api, server=server)
        self.folder, self.tree, self.options, self._task = folder, tree, options, None

    @property
    def socket(self):
        return self.options.data_dir / "dra.sock"

    def start(self):
        self._task = asyncio.Task(daemon.run(self.options))

    async def stop(self):
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def plug(self, slot=1, card=DISK, **how):
        """Put a card in; return its address."""
        return await asyncio.to_thread(self.tree.attach, slot, card, **how)

    async def allocate_claim(self, node=NODE, **result):
        """Create the claim `c1`, give it the disk, or the device of these fields, and return it."""
        await self.claim("c1", "nvme")
        allocation = worlds.allocation(node, RESULT | result, at=ALLOCATED)
        consumer = {"resource": "pods", "name": "pod-1", "uid": "pod-1"}
        return await self.set_status(kinds.CLAIM, "c1", {"allocation": allocation, "reservedFor": [consumer]})

    async def attach(self, claim=None, node=NODE, **identity):
        """Make the attachment of the disk, for the claim if there is one."""
        number = {"kind": "nvme-serial", "value": "sn0001"}
        usual = {"deviceClass": "nvme", "serial": "SN0001", "identifiers": [number], "pciID": "1b36:0010"}
        identity_fields = usual | identity
        spec = {}
        if claim is not None:
            uid = claim["metadata"]["uid"]
            spec = {
                "claim": {"namespace": "default", "name": "c1", "uid": uid},
                "allocationTimestamp": ALLOCATED,
            }
        body = scenes.document(NAME, node, held=True, identity=identity_fields, **spec)
        await self.api.create(kinds.ATTACHMENT, body, into=dict)

    async def controller_says(self, **status):
        """Apply the controller's fields for a device that the fabric has connected."""
        fields = {"conditions": [scenes.condition("Attached")]}
        await worlds.apply_status(self.api, NAME, "drawbar-controller", **fields | status)

    async def attachment(self):
        return await self.api.read(kinds.ATTACHMENT, NAME, into=dict)

    async def conditions(self):
        """Return the attachment's conditions by type."""
        return {
            condition["type"]: condition
            for condition in (await self.attachment()).get("status", {}).get("conditions", ())
        }

    async def detach(self):
        await self.api.delete(kinds.ATTACHMENT, NAME)

    async def is_listening(self):
        return self.socket.exists()

    async def prepare(self, claim):
        return await self._call("NodePrepareResources", api_pb2.NodePrepareResourcesRequest, claim)

    async def unprepare(self, claim):
        return await self._call("NodeUnprepareResources", api_pb2.NodeUnprepareResourcesRequest, claim)

    async def _call(self, method, request, claim):
        uid = claim["metadata"]["uid"]
        name = api_pb2.Claim(namespace="default", name="c1", uid=uid)
        async with grpc.aio.insecure_channel(f"unix:{self.socket}") as channel:
            stub = api_pb2_grpc.DRAPluginStub(channel)
            answer = await getattr(stub, method)(request(claims=[name]), wait_for_ready=True)
        return answer.claims[uid]


@contextlib.asynccontextmanager
async def cluster(folder, made=Node, version=deployment.MODERN, **options):
    """Yield a node without a daemon, with our files deployed; `options` are for the API server double."""
    tree = sysfs.SysfsTree.create(folder / "sys", uevent_socket=folder / "uevents")
    async with apiserver.serving(**options) as server, tree.reacting():
        server.kubeconfig(folder / "admin", "admin")
        server.kubeconfig(folder / "node", ACCOUNT, node=NODE)
        async with client.connecting(config.from_kubeconfig(folder / "admin")) as api:
            await deployment.apply(api, version=version)
            yield made(folder, server, api, tree)


@contextlib.asynccontextmanager
async def serving(folder, made=Node, *, profile="1.36", version=deployment.MODERN, **changes):
    """Yield a node with its running daemon; `changes` are settings of the daemon."""
    async with cluster(folder, made, version, profile=profile) as node:
        fields = {
            "node_name": NODE,
            "kubeconfig": str(folder / "node"),
            "kubelet_dir": folder / "k",
            "cdi_dir": folder / "cdi",
            "sysfs": folder / "sys",
            "uevents": f"unix:{folder / 'uevents'}",
        }
        node.options = settings.Settings(**fields | changes)
        node.start()
        try:
            yield node
        finally:
            await node.stop()
