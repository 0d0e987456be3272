"""The adapter for fabric plugins that speak fabric.proto: a sidecar on a UNIX socket, or a server with mutual TLS.

Every call has a deadline. gRPC reconnects by itself, so a restarted sidecar is found again without a new adapter. The
adapter does not retry a call that may have reached the sidecar.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any, Protocol, Self, TypeVar

import grpc

from drawbar.fabric import backoff, budget, contract, errors, tls
from drawbar.fabric.grpc import certificates, conversion, endpoints, statuses
from drawbar.proto.fabric.v1alpha1 import fabric_pb2 as pb
from drawbar.proto.fabric.v1alpha1 import fabric_pb2_grpc as pb_grpc

_logger = logging.getLogger(__name__)

SILENCE_SECONDS = 3 * contract.BOOKMARK_SECONDS
"""Keepalive pings would find a silent plugin sooner, but by default a server allows one in 5 minutes and closes the connection.

Source: doc/keepalive.md of gRPC, GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS.
"""
LISTING_ATTEMPTS = 3
PAGE_BYTES_MIN = 4096
"""The counted size of an empty page, so that a plugin with endless tokens exceeds its limit."""
MESSAGE_BYTES = 16 * 1024 * 1024
LATE_SECONDS = 1.0
"""How much later than the deadline gRPC may end a call. Under a flood of frames it is late by minutes, so it is not waited for."""

# The default would be the percent-encoded socket path, which some servers refuse.
_SOCKET_OPTIONS = (("grpc.default_authority", "localhost"),)
_CHANNEL_OPTIONS = (
    # A restarted sidecar is to be found within seconds; the default goes up to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    # In spite of its name, this is the longest time of a connection: a busy sidecar accepts long before it
    # answers.
    ("grpc.min_reconnect_backoff_ms", 5000),
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.use_local_subchannel_pool", 1),
    # Room for the error detail beside a long message in many bytes per character.
    ("grpc.max_metadata_size", 32768),
    # gRPC would send a call that a GOAWAY turned away once more, again and again and without a pause: 300 MB/s of memory until the
    # call's deadline.
    ("grpc.enable_retries", 0),
    ("grpc.absolute_max_metadata_size", 65536),
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
)

Answer = TypeVar("Answer")
Value = TypeVar("Value")


class _Page(Protocol):
    """One answer of a listing."""

    next_page_token: str

    def ByteSize(self) -> int:  # noqa: N802 -- protobuf's name
        """Return the size on the wire."""
        ...


Page = TypeVar("Page", bound=_Page)


class GrpcAdapter(contract.FabricAdapter):
    """A fabric behind a plugin; fabric.proto lists the plugin's guarantees."""

    def __init__(
        self,
        config: contract.AdapterConfig,
        channel: grpc.aio.Channel,
        *,
        silence_seconds: float = SILENCE_SECONDS,
    ) -> None:
        self._config = config
        self._channel = channel
        self._silence_seconds = silence_seconds
        self._closed = False
        # For all watches of this adapter, so that a new watch gets no full balance. The watches' callers
        # count the events.
        self._flow = budget.Flow(config.limits, config.name, clock=asyncio.get_running_loop().time)
        self._peer = f'the fabric plugin of "{config.name}" at {config.endpoint}'
        self._identity = pb_grpc.IdentityStub(channel)
        self._fabric = pb_grpc.FabricManagerStub(channel)

    @classmethod
    def validate(cls, config: contract.AdapterConfig) -> None:
        """Check a configuration, as the contract says. `endpoints` describes the endpoints; there are no parameters."""
        problems = list(endpoints.problems(config.endpoint))
        if endpoints.is_network(config.endpoint):
            problems += certificates.problems(config.credentials, config.tls)
        if not config.timeout_seconds > 0:
            problems.append(f"the timeout of {config.timeout_seconds} s is not positive")
        problems += [
            f'the parameter "{name}" is unknown; the grpc adapter has none'
            for name in sorted(config.parameters)
        ]
        problems += tls.problems(config.credentials)
        if problems:
            raise errors.InvalidConfiguration(problems)

    @classmethod
    def parameters_schema(cls) -> Mapping[str, object]:
        """Return the schema of no parameters."""
        return {"type": "object", "properties": {}, "additionalProperties": False}

    @classmethod
    async def connect(cls, config: contract.AdapterConfig) -> Self:
        """Connect and return the adapter, as the contract says, after one answer of the plugin."""
        cls.validate(config)
        adapter = cls(config, _channel(config))
        try:
            plugin = await adapter._ask(adapter._identity.GetPluginInfo, pb.GetPluginInfoRequest())
            await adapter._configure()
        except BaseException:
            await adapter.close()
            raise
        _logger.info(
            "connected to a fabric plugin",
            extra={"fabric": config.name, "plugin": plugin.name, "plugin_version": plugin.version},
        )
        return adapter

    async def capabilities(self) -> contract.Capabilities:
        """Return the fabric's capabilities, as the contract says."""
        answer = await self._ask(self._identity.GetCapabilities, pb.GetCapabilitiesRequest())
        return conversion.capabilities(answer)

    async def hosts(self) -> tuple[contract.Host, ...]:
        """Return all hosts, as the contract says."""

        async def ask(token: str) -> pb.ListHostsResponse:
            return await self._ask(self._fabric.ListHosts, pb.ListHostsRequest(page_token=token))

        def read(page: pb.ListHostsResponse, listing: budget.Listing) -> Iterable[contract.Host]:
            listing.count(budget.Counted.HOSTS, len(page.hosts))
            listing.count(budget.Counted.PORTS, sum(len(host.ports) for host in page.hosts))
            return map(conversion.host, page.hosts)

        return await self._list_pages(ask, read)

    async def devices(self) -> contract.Inventory:
        """Return all devices, as the contract says."""
        version = ""
        unread: tuple[str, ...] = ()
        oddities: tuple[str, ...] = ()

        async def ask(token: str) -> pb.ListDevicesResponse:
            nonlocal version, unread, oddities
            page = await self._ask(self._fabric.ListDevices, pb.ListDevicesRequest(page_token=token))
            if not token:
                version = page.snapshot_version
                unread = contract.bound_sentences(page.unread)
                oddities = contract.bound_sentences(page.oddities)
            return page

        def read(page: pb.ListDevicesResponse, listing: budget.Listing) -> Iterable[contract.Device]:
            listing.count(budget.Counted.DEVICES, len(page.devices))
            return map(conversion.device, page.devices)

        devices = await self._list_pages(ask, read)
        return contract.Inventory(version=version, devices=devices, unread=unread, oddities=oddities)

    async def attach(self, request: contract.AttachRequest) -> contract.Operation:
        """Begin an attach, as the contract says."""
        _judge(request)
        message = conversion.attach_message(request)
        return conversion.operation(await self._ask(self._fabric.AttachDevice, message, changes_fabric=True))

    async def detach(self, request: contract.DetachRequest) -> contract.Operation:
        """Begin a detach, as the contract says."""
        _judge(request)
        message = conversion.detach_message(request)
        return conversion.operation(await self._ask(self._fabric.DetachDevice, message, changes_fabric=True))

    async def create_slice(self, request: contract.CreateSliceRequest) -> contract.Operation:
        """Begin to make a slice, as the contract says."""
        _judge(request)
        message = conversion.create_slice_message(request)
        return conversion.operation(await self._ask(self._fabric.CreateSlice, message, changes_fabric=True))

    async def delete_slice(self, request: contract.DeleteSliceRequest) -> contract.Operation:
        """Begin to delete a slice, as the contract says."""
        _judge(request)
        message = conversion.delete_slice_message(request)
        return conversion.operation(await self._ask(self._fabric.DeleteSlice, message, changes_fabric=True))

    async def operation(
        self, *, operation_id: str | None = None, request_id: str | None = None
    ) -> contract.Operation:
        """Return one operation, as the contract says."""
        if (operation_id is None) == (request_id is None):
            raise errors.InvalidArgument("ask for an operation by its own id or by its request id")
        message = pb.GetOperationRequest()
        if operation_id is not None:
            message.id = operation_id
        if request_id is not None:
            message.request_id = request_id
        return conversion.operation(await self._ask(self._fabric.GetOperation, message))

    async def operations(self) -> tuple[contract.Operation, ...]:
        """Return all remembered operations, as the contract says."""

        async def ask(token: str) -> pb.ListOperationsResponse:
            return await self._ask(self._fabric.ListOperations, pb.ListOperationsRequest(page_token=token))

        def read(page: pb.ListOperationsResponse, listing: budget.Listing) -> Iterable[contract.Operation]:
            listing.count(budget.Counted.OPERATIONS, len(page.operations))
            return map(conversion.operation, page.operations)

        return await self._list_pages(ask, read)

    async def cancel(self, operation_id: str) -> contract.Operation:
        """Cancel an operation, as the contract says."""
        message = pb.CancelOperationRequest(id=operation_id)
        return conversion.operation(await self._ask(self._fabric.CancelOperation, message))

    @asynccontextmanager
    async def watch(self, from_version: str) -> AsyncIterator[AsyncIterator[contract.WatchEvent]]:
        """Yield the events after a version, as the contract says."""
        try:
            call = self._fabric.Watch(pb.WatchRequest(from_version=from_version))
        except grpc.aio.UsageError as error:
            raise self._is_closed() from error
        try:
            async with aclosing(self._events(call)) as events:
                yield events
        finally:
            call.cancel()

    async def close(self) -> None:
        """Close the connection, as the contract says."""
        self._closed = True
        await self._channel.close()

    async def _events(
        self, call: "grpc.aio.UnaryStreamCall[pb.WatchRequest, pb.WatchEvent]"
    ) -> AsyncGenerator[contract.WatchEvent, None]:
        """Yield the events of one watch until it ends or falls silent."""
        while True:
            message = await self._next(call)
            event = conversion.event(message)
            yield event
            if isinstance(event, contract.Resync):
                return

    async def _next(self, call: "grpc.aio.UnaryStreamCall[pb.WatchRequest, pb.WatchEvent]") -> pb.WatchEvent:
        try:
            async with asyncio.timeout(self._silence_seconds):
                message = await self._wait_for_answer(call.read(), changes_fabric=False)
        except TimeoutError as error:
            raise errors.Unavailable(
                f"{self._peer} has been silent for {self._silence_seconds:g} s; the watch is given up"
            ) from error
        if not isinstance(message, pb.WatchEvent):
            raise errors.Unavailable(f"{self._peer} ended the watch")
        self._flow.take(message.ByteSize(), events=0)
        return message

    async def _configure(self) -> None:
        """Send the plugin its credentials, if there are any.

        Raises:
            InvalidConfiguration: the plugin takes no credentials.
        """
        credentials, tls_settings = self._config.credentials, self._config.tls
        if endpoints.is_network(self._config.endpoint):
            # These secure this connection; only this adapter may have the key.
            credentials = replace(credentials, authority="", certificate="", key="")
            tls_settings = contract.Tls()
        message = conversion.configure_message(credentials, tls_settings)
        if message == pb.ConfigureRequest():
            return
        try:
            await self._once(self._identity.Configure, message)
        except errors.Unimplemented as error:
            raise errors.InvalidConfiguration(
                [
                    f"{self._peer} takes no credentials and no settings of TLS; leave them out, or update the plugin"
                ]
            ) from error

    async def _ask(
        self,
        # Any: as below.
        method: Callable[..., Awaitable[Answer]],
        message: Any,
        *,
        changes_fabric: bool = False,
    ) -> Answer:
        """Call once and return the answer. If a restarted plugin has lost its credentials, send them and call again."""
        try:
            return await self._once(method, message, changes_fabric=changes_fabric)
        except errors.Unauthenticated as error:
            if error.reason != errors.Reason.NOT_CONFIGURED or not self._config.credentials.present_parts:
                raise
        await self._configure()
        return await self._once(method, message, changes_fabric=changes_fabric)

    async def _once(
        self,
        # Any: the stubs type the callable's many options, of which only the deadline is used here.
        method: Callable[..., Awaitable[Answer]],
        message: Any,
        *,
        changes_fabric: bool = False,
    ) -> Answer:
        """Call once with a deadline, and return the answer or raise an error of the contract."""
        seconds = self._config.timeout_seconds
        try:
            call = method(message, timeout=seconds)
        except grpc.aio.UsageError as error:
            raise self._is_closed() from error
        try:
            async with asyncio.timeout(seconds + LATE_SECONDS):
                return await self._wait_for_answer(call, changes_fabric=changes_fabric)
        except TimeoutError as error:
            raise errors.DeadlineExceeded(
                f"{self._peer} has not answered within {seconds:g} s", side_effects_unknown=changes_fabric
            ) from error

    async def _wait_for_answer(self, call: Awaitable[Answer], *, changes_fabric: bool) -> Answer:
        try:
            return await call
        except grpc.aio.AioRpcError as failure:
            is_tls = endpoints.is_network(self._config.endpoint)
            raise statuses.from_rpc(
                failure, peer=self._peer, changes_fabric=changes_fabric, is_tls=is_tls
            ) from failure
        except (grpc.aio.UsageError, asyncio.CancelledError) as error:
            # Closing the channel cancels its calls; that must not look like the cancellation of the caller.
            task = asyncio.current_task()
            if self._closed and not (task is not None and task.cancelling()):
                raise self._is_closed(side_effects_unknown=changes_fabric) from error
            raise

    async def _list_pages(
        self,
        ask: Callable[[str], Awaitable[Page]],
        read: Callable[[Page, budget.Listing], Iterable[Value]],
    ) -> tuple[Value, ...]:
        """Return the values of all pages of one listing. If it changes meanwhile, begin again.

        Args:
            ask: returns the page of a token.
            read: counts a page and returns its values.
        """
        loop = backoff.build_retrying(
            lambda error: isinstance(error, errors.Aborted),
            None,
            tries=LISTING_ATTEMPTS,
            noted=lambda error: _logger.debug(
                "a listing changed while it was read", extra={"error": str(error)}
            ),
        )
        return await loop(self._list_all, ask, read)

    async def _list_all(
        self,
        ask: Callable[[str], Awaitable[Page]],
        read: Callable[[Page, budget.Listing], Iterable[Value]],
    ) -> tuple[Value, ...]:
        listing = budget.Listing(self._config.limits, self._config.name)
        values: list[Value] = []
        token, is_last = "", False
        while not is_last:
            page = await ask(token)
            listing.count(budget.Counted.BYTES, max(page.ByteSize(), PAGE_BYTES_MIN))
            values += read(page, listing)
            token, is_last = page.next_page_token, not page.next_page_token
        return tuple(values)

    def _is_closed(self, *, side_effects_unknown: bool = False) -> errors.Unavailable:
        return errors.Unavailable(
            f"the connection to {self._peer} is closed", side_effects_unknown=side_effects_unknown
        )


def _judge(
    request: contract.AttachRequest
    | contract.DetachRequest
    | contract.CreateSliceRequest
    | contract.DeleteSliceRequest,
) -> None:
    if problems := request.problems():
        raise errors.InvalidArgument("; ".join(problems))


def _channel(config: contract.AdapterConfig) -> grpc.aio.Channel:
    if not endpoints.is_network(config.endpoint):
        return grpc.aio.insecure_channel(config.endpoint, options=(*_CHANNEL_OPTIONS, *_SOCKET_OPTIONS))
    name = config.tls.server_name
    named = (("grpc.ssl_target_name_override", name),) if name else ()
    return grpc.aio.secure_channel(
        endpoints.host_and_port(config.endpoint),
        certificates.channel(config.credentials),
        options=(*_CHANNEL_OPTIONS, *named),
    )
