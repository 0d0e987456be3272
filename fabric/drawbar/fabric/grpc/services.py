"""The two services of fabric.proto for an adapter: convert, call, convert back.

An adapter's error becomes the status of the call; nothing else is decided here. A listing longer than a page is kept
for its further pages, so that all pages show one moment. Only a few listings are kept. A request for a dropped
listing is refused, and the caller begins again.
"""

import itertools
import re
from collections import OrderedDict

# ruff: noqa: N802, ARG002 -- gRPC fixes the names and the signatures of these methods
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import grpc

from drawbar.fabric import contract, errors
from drawbar.fabric import tls as fabric_tls
from drawbar.fabric.grpc import conversion, statuses
from drawbar.proto.fabric.v1alpha1 import fabric_pb2 as pb
from drawbar.proto.fabric.v1alpha1 import fabric_pb2_grpc as pb_grpc

_NUMBER = re.compile("[0-9]{1,18}")

PAGE_ITEMS = 250
"""A host or device has at most about 8 KiB, so a page stays below gRPC's default limit of 4 MiB."""
KEPT_LISTINGS = 8

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[Item]):
    """A part of a listing; an empty token marks the last."""

    items: Sequence[Item]
    token: str
    version: str


class Listings(Generic[Item]):
    """The listings that are being read."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._kept: OrderedDict[int, tuple[Sequence[Item], str]] = OrderedDict()

    def first(self, items: Sequence[Item], *, version: str = "", size: int = 0) -> Page[Item]:
        """Begin a listing and return its first page; with `size` 0 the server chooses."""
        number = next(self._numbers)
        self._kept[number] = (items, version)
        while len(self._kept) > KEPT_LISTINGS:
            self._kept.popitem(last=False)
        return self._page(number, 0, size)

    def further(self, token: str, *, size: int = 0) -> Page[Item]:
        """Return the next page of a listing.

        Raises:
            InvalidArgument: the token was not made here.
            Aborted: the listing is no longer kept.
        """
        number, _, offset = token.partition(":")
        if _NUMBER.fullmatch(number) is None or _NUMBER.fullmatch(offset) is None:
            raise errors.InvalidArgument(f'the page token "{errors.cut(token, 40)}" was not given out here')
        if int(number) not in self._kept:
            raise errors.Aborted("the listing is too old to be continued; begin again at the first page")
        return self._page(int(number), int(offset), size)

    def _page(self, number: int, offset: int, size: int) -> Page[Item]:
        items, version = self._kept[number]
        end = offset + min(size or PAGE_ITEMS, PAGE_ITEMS)
        if end >= len(items):
            # The last page may be asked for again after a lost answer, so only single-page listings go at once.
            if offset == 0:
                del self._kept[number]
            return Page(items=items[offset:], token="", version=version)
        return Page(items=items[offset:end], token=f"{number}:{end}", version=version)


# Any: the types of requests and answers differ by method and do not matter here.
Context = grpc.aio.ServicerContext[Any, Any]

Configure = Callable[[contract.Credentials, contract.Tls], Awaitable[None]]
"""Takes over credentials and settings of TLS; raises an error of the contract if they are refused."""


@asynccontextmanager
async def _answering(context: Context) -> AsyncIterator[None]:
    """Turn an error of the contract into the status of the call."""
    try:
        yield
    except errors.FabricError as error:
        await statuses.refuse(context, error)


class Identity(pb_grpc.IdentityServicer):
    """The plugin's identity, capabilities and readiness."""

    def __init__(
        self, adapter: contract.FabricAdapter, *, name: str, version: str, configure: Configure | None = None
    ) -> None:
        self._adapter = adapter
        self._take_over = configure
        self._info = pb.GetPluginInfoResponse(name=name, version=version)

    async def GetPluginInfo(
        self, request: pb.GetPluginInfoRequest, context: Context
    ) -> pb.GetPluginInfoResponse:
        """Return name and version."""
        return self._info

    async def GetCapabilities(self, request: pb.GetCapabilitiesRequest, context: Context) -> pb.Capabilities:
        """Return the adapter's capabilities."""
        async with _answering(context):
            return conversion.capabilities_message(await self._adapter.capabilities())

    async def Probe(self, request: pb.ProbeRequest, context: Context) -> pb.ProbeResponse:
        """Return whether the adapter reaches its fabric manager."""
        try:
            await self._adapter.capabilities()
        except errors.FabricError as error:
            return pb.ProbeResponse(ready=False, message=error.message)
        return pb.ProbeResponse(ready=True)

    async def Configure(self, request: pb.ConfigureRequest, context: Context) -> pb.ConfigureResponse:
        """Take over credentials if they are plausible."""
        async with _answering(context):
            if self._take_over is None:
                raise errors.Unimplemented("this plugin takes no credentials")
            credentials = conversion.credentials(request.credentials)
            if problems := fabric_tls.problems(credentials):
                raise errors.InvalidArgument("; ".join(problems))
            await self._take_over(credentials, conversion.tls(request.tls))
            return pb.ConfigureResponse()


class FabricManager(pb_grpc.FabricManagerServicer):
    """The adapter's methods as calls."""

    def __init__(self, adapter: contract.FabricAdapter) -> None:
        self._adapter = adapter
        self._hosts: Listings[contract.Host] = Listings()
        self._devices: Listings[contract.Device] = Listings()
        self._operations: Listings[contract.Operation] = Listings()

    async def ListHosts(self, request: pb.ListHostsRequest, context: Context) -> pb.ListHostsResponse:
        """Return a page of the hosts."""
        async with _answering(context):
            if request.page_token:
                page = self._hosts.further(request.page_token, size=request.page_size)
            else:
                page = self._hosts.first(await self._adapter.hosts(), size=request.page_size)
            hosts = [conversion.host_message(host) for host in page.items]
            return pb.ListHostsResponse(hosts=hosts, next_page_token=page.token)

    async def ListDevices(self, request: pb.ListDevicesRequest, context: Context) -> pb.ListDevicesResponse:
        """Return a page of the devices at one moment."""
        async with _answering(context):
            unread: tuple[str, ...] = ()
            oddities: tuple[str, ...] = ()
            if request.page_token:
                page = self._devices.further(request.page_token, size=request.page_size)
            else:
                inventory = await self._adapter.devices()
                unread = contract.bound_sentences(inventory.unread)
                oddities = contract.bound_sentences(inventory.oddities)
                page = self._devices.first(
                    inventory.devices, version=inventory.version, size=request.page_size
                )
            return pb.ListDevicesResponse(
                devices=[conversion.device_message(device) for device in page.items],
                next_page_token=page.token,
                snapshot_version=page.version,
                unread=unread,
                oddities=oddities,
            )

    async def GetDevice(self, request: pb.GetDeviceRequest, context: Context) -> pb.Device:
        """Return one device."""
        async with _answering(context):
            device = (await self._adapter.devices()).device(request.device_id)
            if device is None:
                raise errors.NotFound(f'the fabric has no device "{errors.cut(request.device_id, 128)}"')
            return conversion.device_message(device)

    async def AttachDevice(self, request: pb.AttachDeviceRequest, context: Context) -> pb.Operation:
        """Begin an attach and return its operation."""
        async with _answering(context):
            attach = conversion.attach_request(request)
            if problems := attach.problems():
                raise errors.InvalidArgument("; ".join(problems))
            return conversion.operation_message(await self._adapter.attach(attach))

    async def DetachDevice(self, request: pb.DetachDeviceRequest, context: Context) -> pb.Operation:
        """Begin a detach and return its operation."""
        async with _answering(context):
            detach = conversion.detach_request(request)
            if problems := detach.problems():
                raise errors.InvalidArgument("; ".join(problems))
            return conversion.operation_message(await self._adapter.detach(detach))

    async def CreateSlice(self, request: pb.CreateSliceRequest, context: Context) -> pb.Operation:
        """Begin to make a slice and return the operation."""
        async with _answering(context):
            create = conversion.create_slice_request(request)
            if problems := create.problems():
                raise errors.InvalidArgument("; ".join(problems))
            return conversion.operation_message(await self._adapter.create_slice(create))

    async def DeleteSlice(self, request: pb.DeleteSliceRequest, context: Context) -> pb.Operation:
        """Begin to delete a slice and return the operation."""
        async with _answering(context):
            delete = conversion.delete_slice_request(request)
            if problems := delete.problems():
                raise errors.InvalidArgument("; ".join(problems))
            return conversion.operation_message(await self._adapter.delete_slice(delete))

    async def GetOperation(self, request: pb.GetOperationRequest, context: Context) -> pb.Operation:
        """Return one operation."""
        async with _answering(context):
            operation = await self._adapter.operation(
                operation_id=request.id if request.HasField("id") else None,
                request_id=request.request_id if request.HasField("request_id") else None,
            )
            return conversion.operation_message(operation)

    async def ListOperations(
        self, request: pb.ListOperationsRequest, context: Context
    ) -> pb.ListOperationsResponse:
        """Return a page of the remembered operations."""
        async with _answering(context):
            if request.page_token:
                page = self._operations.further(request.page_token, size=request.page_size)
            else:
                page = self._operations.first(await self._adapter.operations(), size=request.page_size)
            operations = [conversion.operation_message(operation) for operation in page.items]
            return pb.ListOperationsResponse(operations=operations, next_page_token=page.token)

    async def CancelOperation(self, request: pb.CancelOperationRequest, context: Context) -> pb.Operation:
        """Ask for an operation to be cancelled and return it."""
        async with _answering(context):
            return conversion.operation_message(await self._adapter.cancel(request.id))

    async def Watch(self, request: pb.WatchRequest, context: Context) -> AsyncIterator[pb.WatchEvent]:
        """Yield the events after a version."""
        async with _answering(context), self._adapter.watch(request.from_version) as events:
            async for event in events:
                yield conversion.event_message(event)
