"""A sidecar of a fabric that lists and streams far more than any fabric has, served over gRPC."""
# ruff: noqa: N802 -- gRPC fixes the names of a plugin's methods

import asyncio
import contextlib

import grpc

from drawbar.proto.fabric.v1alpha1 import fabric_pb2 as pb
from drawbar.proto.fabric.v1alpha1 import fabric_pb2_grpc as pb_grpc


def device(number, health=pb.HEALTH_OK, **changes):
    """Return a device of the sidecar."""
    kind = pb.DEVICE_CLASS_GPU
    return pb.Device(
        id=f"d-{number}", device_class=kind, model="M", serial=f"S{number}", health=health, **changes
    )


def host(number, **changes):
    """Return a host of the sidecar."""
    ports = [pb.Port(id=str(port), state=pb.PORT_STATE_FREE) for port in range(4)]
    return pb.Host(id=f"h{number}", name=f"evil-{number}", ports=ports, **changes)


def events(mode, number):
    """Return an event of a mode of misbehaviour."""
    version = str(number)
    match mode:
        case "flood":
            health = pb.HEALTH_CRITICAL if (number // 50) % 2 else pb.HEALTH_OK
            return pb.WatchEvent(version=version, device_changed=device(number % 50, health))
        case "hosts":
            return pb.WatchEvent(version=version, host_changed=host(number))
        case "ids":
            return pb.WatchEvent(version=version, device_changed=device(number))
        case "enclosures":
            return pb.WatchEvent(version=version, device_changed=device(number, enclosure=f"e{number}"))
        case "large":
            return pb.WatchEvent(version=version, device_changed=device(number % 50, vendor="v" * 3_000_000))
    return None


class Sidecar(pb_grpc.IdentityServicer, pb_grpc.FabricManagerServicer):
    """The plugin.

    Attributes:
        mode: what it does: a word of `events` in its watch, `pages` of very many devices, `empty` pages without end, or
            nothing of that.
        watches: how many were opened.
        sent: how many events all of them sent.
    """

    def __init__(self, mode=""):
        self.mode = mode
        self.watches = self.sent = self.listings = 0

    async def GetPluginInfo(self, request, context):
        return pb.GetPluginInfoResponse(name="evil", version="1")

    async def GetCapabilities(self, request, context):
        return pb.Capabilities(capabilities=[pb.CAPABILITY_EXACT_DEVICE, pb.CAPABILITY_WATCH])

    async def ListHosts(self, request, context):
        return pb.ListHostsResponse(hosts=[host(1), host(2)])

    async def ListDevices(self, request, context):
        number = int(request.page_token or 0)
        self.listings += number == 0
        following = str(number + 1)
        if self.mode == "pages":
            listed = [
                pb.Device(id=f"{number}-{index}", model="m" * 100, device_class=pb.DEVICE_CLASS_GPU)
                for index in range(100_000)
            ]
            return pb.ListDevicesResponse(snapshot_version="1", devices=listed, next_page_token=following)
        if self.mode == "empty":
            return pb.ListDevicesResponse(snapshot_version="1", next_page_token=following)
        return pb.ListDevicesResponse(snapshot_version="1", devices=[device(index) for index in range(50)])

    async def ListOperations(self, request, context):
        return pb.ListOperationsResponse()

    async def Watch(self, request, context):
        self.watches += 1
        yield pb.WatchEvent(version="1", bookmark=pb.Bookmark())
        number = 0
        while (event := events(self.mode, number)) is not None:
            yield event
            number += 1
            self.sent += 1
            if number % 200 == 0:
                await asyncio.sleep(0)
        await asyncio.Event().wait()


@contextlib.asynccontextmanager
async def serving(endpoint, mode=""):
    """Serve the sidecar at the endpoint."""
    plugin = Sidecar(mode)
    server = grpc.aio.server(options=(("grpc.max_send_message_length", -1),))
    pb_grpc.add_IdentityServicer_to_server(plugin, server)
    pb_grpc.add_FabricManagerServicer_to_server(plugin, server)
    server.add_insecure_port(endpoint)
    await server.start()
    try:
        yield plugin
    finally:
        await server.stop(None)
