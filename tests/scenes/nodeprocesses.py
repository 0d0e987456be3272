"""Node daemons as processes of their own, one or several on one mocked node."""

import asyncio
import contextlib
import json
import sys

import grpc.aio
from tests.scenes import nodes, waiting

from drawbar.driver.node.plugin import sockets
from drawbar.proto.kubelet.dra.v1 import api_pb2, api_pb2_grpc


class Instance:
    """One `drawbar node`, as a pod with this uid starts it."""

    def __init__(self, folder, uid):
        self.folder, self.uid, self.process = folder, uid, None
        self.log = folder / f"log-{uid}"
        self.sockets = sockets.paths(folder / "k", nodes.DRIVER, uid)

    async def start(self):
        options = {
            "node-name": nodes.NODE,
            "pod-uid": self.uid,
            "kubeconfig": self.folder / "node",
            "kubelet-dir": self.folder / "k",
            "cdi-dir": self.folder / "cdi",
            "sysfs": self.folder / "sys",
            "uevents": f"unix:{self.folder / 'uevents'}",
        }
        words = [f"--{name}={value}" for name, value in options.items()]
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "drawbar.driver.main", "node", "--log-format=json", *words),
                stderr=log,
            )

    async def wait_until_listening(self):
        """Wait until the kubelet can register the daemon; assert that the daemon still runs."""
        await waiting.eventually(
            lambda: self.sockets.registration.exists() or self.process.returncode is not None, 60
        )
        assert self.process.returncode is None, self.log.read_text()

    async def stop(self):
        if self.process is not None and self.process.returncode is None:
            self.process.terminate()
            await self.process.wait()

    def messages(self):
        """Return the messages in the log."""
        return [json.loads(line)["message"] for line in self.log.read_text().splitlines() if line[:1] == "{"]

    @contextlib.asynccontextmanager
    async def stub(self):
        options = (("grpc.use_local_subchannel_pool", 1),)
        async with grpc.aio.insecure_channel(f"unix:{self.sockets.service}", options=options) as channel:
            yield api_pb2_grpc.DRAPluginStub(channel)

    async def prepare(self, *claims):
        """Ask for claims, as pairs of name and uid; return the answers by uid."""
        named = [api_pb2.Claim(namespace="default", name=name, uid=uid) for name, uid in claims]
        async with self.stub() as stub:
            request = api_pb2.NodePrepareResourcesRequest(claims=named)
            return dict((await stub.NodePrepareResources(request, wait_for_ready=True, timeout=60)).claims)

    async def unprepare(self, *claims):
        named = [api_pb2.Claim(namespace="default", name=name, uid=uid) for name, uid in claims]
        async with self.stub() as stub:
            request = api_pb2.NodeUnprepareResourcesRequest(claims=named)
            return dict((await stub.NodeUnprepareResources(request, wait_for_ready=True, timeout=60)).claims)


@contextlib.asynccontextmanager
async def running(folder, *uids):
    """Run a node with a daemon for each of `uids`; yield them once all daemons listen."""
    async with nodes.cluster(folder) as node:
        instances = [Instance(folder, uid) for uid in uids]
        try:
            for instance in instances:
                await instance.start()
            for instance in instances:
                await instance.wait_until_listening()
            yield node, *instances
        finally:
            for instance in instances:
                await instance.stop()
