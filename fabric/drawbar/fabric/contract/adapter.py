"""The port between Drawbar and every fabric manager.

An adapter translates. It takes no decisions, keeps no state apart from the fabric's, and raises only
`drawbar.fabric.errors`. Every method has these guarantees:

* It may be called from many tasks of one event loop at the same time.
* It never blocks the loop, and never takes longer than `AdapterConfig.timeout_seconds`. If the hardware needs
  longer, it returns an unfinished `Operation`.
* It may be cancelled at any await; a cancelled attach or detach may still happen.
* It retries only calls without effects; back-off is the caller's task.
* It holds no more of a manager's answers in memory than `AdapterConfig.limits` allows, and counts while it reads. Beyond a
  limit a listing or watch ends with Unavailable, LIMIT_EXCEEDED (`budget.Listing` and `budget.Flow` raise it).
"""

import abc
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from drawbar.fabric import budget, errors
from drawbar.fabric.contract import changes, inventory
from drawbar.fabric.contract.credentials import Credentials, Tls
from drawbar.fabric.contract.networks import Networks
from drawbar.fabric.contract.operations import (
    AttachRequest,
    Capabilities,
    CreateSliceRequest,
    DeleteSliceRequest,
    DetachRequest,
    Operation,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterConfig:
    """The connection settings of one fabric manager.

    Attributes:
        name: the Fabric's name, for messages.
        endpoint: the manager's address, in the adapter's own form.
        parameters: the adapter's own settings.
        timeout_seconds: the longest time of any one call.
        credentials: the login; never shown by repr, never in a message.
        tls: the check of the manager's certificate.
        limits: the limits for the manager's listings and streams.
        networks: the allowed addresses; None for any.
    """

    name: str
    endpoint: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    timeout_seconds: float = 30.0
    credentials: Credentials = field(default_factory=Credentials, repr=False)
    tls: Tls = field(default_factory=Tls)
    limits: budget.Limits = field(default_factory=budget.Limits)
    networks: Networks | None = None


class FabricAdapter(abc.ABC):
    """One connection to one fabric manager; use it with `async with`, or call `close`.

    To miss no event, call `devices`, then `hosts`, then `watch` from the inventory's version.
    """

    @classmethod
    @abc.abstractmethod
    def validate(cls, config: AdapterConfig) -> None:
        """Check a configuration without any I/O.

        Raises:
            InvalidConfiguration: with all problems, not only the first.
        """

    @classmethod
    def parameters_schema(cls) -> Mapping[str, object] | None:
        """Return the JSON Schema of `AdapterConfig.parameters`, or None if the adapter has no schema; no I/O."""
        return None

    @classmethod
    @abc.abstractmethod
    async def connect(cls, config: AdapterConfig) -> Self:
        """Connect to the fabric manager and return the adapter, ready.

        Raises:
            InvalidConfiguration: as in `validate`.
            Unavailable, DeadlineExceeded: the manager cannot be reached now; nothing is left open.
            Unauthenticated, PermissionDenied: the credentials are refused.
        """

    @abc.abstractmethod
    async def capabilities(self) -> Capabilities:
        """Return the fabric's capabilities, which may change when the fabric manager is upgraded."""

    @abc.abstractmethod
    async def hosts(self) -> tuple[inventory.Host, ...]:
        """Return all hosts that the fabric reaches, with their ports."""

    @abc.abstractmethod
    async def devices(self) -> inventory.Inventory:
        """Return all devices at one moment, in their real state, including the connections of other clients."""

    @abc.abstractmethod
    async def attach(self, request: AttachRequest) -> Operation:
        """Begin to connect a device to a host; idempotent by request id.

        The same request again returns the operation of the first one. A device that is already at the host is a
        success, finished at once. A refusal raises and has no effects. A failure after the operation began is its
        `error`.

        Raises:
            InvalidArgument: the request can never succeed.
            NotFound: no such device or host.
            AlreadyExists: the request id was used with other arguments.
            FailedPrecondition: IN_USE (another host has it; `host_id` names it), INCOMPATIBLE, CARVED.
            ResourceExhausted: NO_FREE_PORT (`host_id`), NO_DEVICE.
            Aborted: OPERATION_PENDING (another request for this device is in flight), STALE_ETAG.
            Unavailable: the manager was not reached; `side_effects_unknown` is set if that is not certain.
            DeadlineExceeded: effects unknown; ask `operation` by request id, or `devices`, before any retry.
            Unimplemented: this selector is not in the capabilities.
        """

    @abc.abstractmethod
    async def detach(self, request: DetachRequest) -> Operation:
        """Begin to disconnect a device from a host; idempotent by request id and by effect.

        If this host does not have the device, the detach is a success, finished at once; another host keeps it.
        Errors as in `attach`, and:

        Raises:
            FailedPrecondition: NOT_PREPARED (neither host_prepared nor force).
            Unimplemented: force is not in the capabilities.
        """

    async def create_slice(self, request: CreateSliceRequest) -> Operation:
        """Begin to make a slice of a device; idempotent by request id.

        The same request again returns the operation of the first one. After a lost reply or a restart, the slice with
        the request's id is its result. The slice is a device: it is attached and detached like any other.

        Raises:
            InvalidArgument: the request can never succeed: no multiple of `Carving.step_bytes`, or a device that
                cannot be carved.
            NotFound: no such device.
            AlreadyExists: the request id was used with other arguments.
            FailedPrecondition: IN_USE (the device is attached as a whole; `host_id` names the host).
            ResourceExhausted: NO_CAPACITY.
            Aborted, Unavailable, DeadlineExceeded: as in `attach`.
            Unimplemented: not in the capabilities.
        """
        del request
        raise errors.Unimplemented("the fabric makes no slices of devices")

    async def delete_slice(self, request: DeleteSliceRequest) -> Operation:
        """Begin to return the memory of a slice to its device; idempotent by request id and by effect.

        The deletion of an absent slice is a success, finished at once. Errors as in `create_slice`, and:

        Raises:
            InvalidArgument: the device is no slice.
            FailedPrecondition: IN_USE (the slice is attached; `host_id` names the host).
        """
        del request
        raise errors.Unimplemented("the fabric makes no slices of devices")

    @abc.abstractmethod
    async def operation(self, *, operation_id: str | None = None, request_id: str | None = None) -> Operation:
        """Return the operation with that id, or the operation of the request with that id. Give exactly one id.

        Raises:
            NotFound: never begun, or already forgotten: read `devices` to find out.
            InvalidArgument: none or both ids are given.
        """

    @abc.abstractmethod
    async def operations(self) -> tuple[Operation, ...]:
        """Return all operations in flight, and the recent ones that the fabric remembers."""

    @abc.abstractmethod
    async def cancel(self, operation_id: str) -> Operation:
        """Ask the fabric to cancel an operation and return the operation; idempotent.

        It may run on, or be finished already. A cancelled one is done with the error Aborted, CANCELLED.

        Raises:
            NotFound: no such operation.
            Unimplemented: not in the capabilities.
        """

    @abc.abstractmethod
    def watch(self, from_version: str) -> AbstractAsyncContextManager[AsyncIterator[changes.WatchEvent]]:
        """Yield the events after a version: ``async with adapter.watch(version) as events: async for ...``.

        It yields at least every `changes.BOOKMARK_SECONDS`. It ends after a `Resync`, which also answers a version
        that is too old or unknown. The queue of events is bounded: a caller that is too slow gets a `Resync`.

        Raises:
            Unavailable: the connection was lost, also while iterating; watch again from the last version.
            Unimplemented: not in the capabilities.
        """

    @abc.abstractmethod
    async def close(self) -> None:
        """Close the connection; idempotent. Calls in flight end with Unavailable."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
