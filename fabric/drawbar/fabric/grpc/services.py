"""The two services of fabric.proto around an adapter: convert, call, convert back.

What the adapter raises becomes the status of the call; nothing else is decided here.
"""
# ruff: noqa: N802, ARG002 -- gRPC fixes the names and the signatures of these methods

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc

from drawbar.fabric import contract, errors
from drawbar.fabric import tls as fabric_tls
from drawbar.fabric.grpc import changes, conversion, pages, statuses
from drawbar.proto.fabric.v1alpha1 import fabric_pb2 as pb
from drawbar.proto.fabric.v1alpha1 import fabric_pb2_grpc as pb_grpc

# Any: the request and answer types differ per method and nothing here depends on them.
Context = grpc.aio.ServicerContext[Any, Any]

Configure = Callable[[contract.Credentials, contract.Tls], Awaitable[None]]
"""Takes over credentials and settings of TLS; raises an error of the contract where they do not do."""


@asynccontextmanager
async def _answering(context: Context) -> AsyncIterator[None]:
    """Turns an error of the contract into the status of the call."""
    try:
        yield
    except errors.FabricError as error:
        await statuses.refuse(context, error)


class Identity(pb_grpc.IdentityServicer):
    """Who serves, what it can do, and whether it is ready."""

    def __init__(
        self, adapter: contract.FabricAdapter, *, name: str, version: str, configure: Configure | None = None
    ) -> None:
        self._adapter = adapter
        self._take_over = configure
        self._info = pb.GetPluginInfoResponse(name=name, version=version)

    async def GetPluginInfo(
        self, request: pb.GetPluginInfoRequest, context: Context
    ) -> pb.GetPluginInfoResponse:
        """Name and version."""
        return self._info

    async def GetCapabilities(self, request: pb.GetCapabilitiesRequest, context: Context) -> pb.Capabilities:
        """What the adapter can do."""
        async with _answering(context):
            return conversion.capabilities_message(await self._adapter.capabilities())

    async def Probe(self, request: pb.ProbeRequest, context: Context) -> pb.ProbeResponse:
        """Ready when the adapter reaches its fabric manager."""
        try:
            await self._adapter.capabilities()
        except errors.FabricError as error:
            return pb.ProbeResponse(ready=False, message=error.message)
        return pb.ProbeResponse(ready=True)

    async def Configure(self, request: pb.ConfigureRequest, context: Context) -> pb.ConfigureResponse:
        """Takes over credentials, if they can be right."""
        async with _answering(context):
            if self._take_over is None:
                raise errors.Unimplemented("this plugin takes no credentials")
            given = conversion.credentials(request.credentials)
            if problems := fabric_tls.problems(given):
                raise errors.InvalidArgument("; ".join(problems))
            await self._take_over(given, conversion.tls(request.tls))
            return pb.ConfigureResponse()


class FabricManager(pb_grpc.FabricManagerServicer):
    """The adapter's methods as calls."""

    def __init__(self, adapter: contract.FabricAdapter) -> None:
        self._adapter = adapter
        self._hosts: pages.Listings[contract.Host] = pages.Listings()
        self._devices: pages.Listings[contract.Device] = pages.Listings()
        self._operations: pages.Listings[contract.Operation] = pages.Listings()

    async def ListHosts(self, request: pb.ListHostsRequest, context: Context) -> pb.ListHostsResponse:
        """The hosts, in pages."""
        async with _answering(context):
            if request.page_token:
                page = self._hosts.further(request.page_token, size=request.page_size)
            else:
                page = self._hosts.first(await self._adapter.hosts(), size=request.page_size)
            hosts = [conversion.host_message(host) for host in page.items]
            return pb.ListHostsResponse(hosts=hosts, next_page_token=page.token)

    async def ListDevices(self, request: pb.ListDevicesRequest, context: Context) -> pb.ListDevicesResponse:
        """The devices of one moment, in pages."""
        async with _answering(context):
            if request.page_token:
                page = self._devices.further(request.page_token, size=request.page_size)
            else:
                found = await self._adapter.devices()
                page = self._devices.first(found.devices, version=found.version, size=request.page_size)
            return pb.ListDevicesResponse(
                devices=[conversion.device_message(device) for device in page.items],
                next_page_token=page.token,
                snapshot_version=page.version,
            )

    async def GetDevice(self, request: pb.GetDeviceRequest, context: Context) -> pb.Device:
        """One device."""
        async with _answering(context):
            device = (await self._adapter.devices()).device(request.device_id)
            if device is None:
                raise errors.NotFound(f'the fabric has no device "{errors.cut(request.device_id, 128)}"')
            return conversion.device_message(device)

    async def AttachDevice(self, request: pb.AttachDeviceRequest, context: Context) -> pb.Operation:
        """Begins an attach."""
        async with _answering(context):
            attach = conversion.attach_request(request)
            if problems := attach.problems():
                raise errors.InvalidArgument("; ".join(problems))
            return conversion.operation_message(await self._adapter.attach(attach))

    async def DetachDevice(self, request: pb.DetachDeviceRequest, context: Context) -> pb.Operation:
        """Begins a detach."""
        async with _answering(context):
            detach = conversion.detach_request(request)
            if problems := detach.problems():
                raise errors.InvalidArgument("; ".join(problems))
            return conversion.operation_message(await self._adapter.detach(detach))

    async def GetOperation(self, request: pb.GetOperationRequest, context: Context) -> pb.Operation:
        """One operation."""
        async with _answering(context):
            operation = await self._adapter.operation(
                operation_id=request.id if request.HasField("id") else None,
                request_id=request.request_id if request.HasField("request_id") else None,
            )
            return conversion.operation_message(operation)

    async def ListOperations(
        self, request: pb.ListOperationsRequest, context: Context
    ) -> pb.ListOperationsResponse:
        """The operations that the adapter remembers, in pages."""
        async with _answering(context):
            if request.page_token:
                page = self._operations.further(request.page_token, size=request.page_size)
            else:
                page = self._operations.first(await self._adapter.operations(), size=request.page_size)
            operations = [conversion.operation_message(operation) for operation in page.items]
            return pb.ListOperationsResponse(operations=operations, next_page_token=page.token)

    async def CancelOperation(self, request: pb.CancelOperationRequest, context: Context) -> pb.Operation:
        """Asks for an operation to be given up."""
        async with _answering(context):
            return conversion.operation_message(await self._adapter.cancel(request.id))

    async def Watch(self, request: pb.WatchRequest, context: Context) -> AsyncIterator[pb.WatchEvent]:
        """What changes after a version."""
        async with _answering(context), self._adapter.watch(request.from_version) as events:
            async for event in events:
                yield changes.event_message(event)
