"""The port between Drawbar and every fabric manager.

An adapter translates; it takes no decisions, keeps no state that the fabric does not have, and raises only
`drawbar.fabric.errors`. Guarantees that hold for every method:

* It may be called from many tasks of one event loop at the same time.
* It never blocks the loop, and never takes longer than `AdapterConfig.timeout_seconds`: what waits for
  hardware returns an unfinished `Operation` instead.
* It may be cancelled at any await; a cancelled attach or detach may still happen.
* It retries nothing that could have had an effect; back-off is the caller's.
* It holds no more of a manager's answers in memory than `AdapterConfig.limits` allows, and counts while it reads: beyond a
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
    """How to reach one fabric manager.

    Attributes:
        name: the Fabric's name, for messages.
        endpoint: where it is, in the adapter's own form.
        parameters: the adapter's own settings.
        timeout_seconds: the longest that any one call may take.
        credentials: as whom; never shown by repr, never in a message.
        tls: how the manager's certificate is judged.
        limits: the most that the manager may list and stream.
        networks: the addresses that may be connected to; None for any.
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

    The order that misses nothing: `devices`, then `hosts`, then `watch` from the inventory's version.
    """

    @classmethod
    @abc.abstractmethod
    def validate(cls, config: AdapterConfig) -> None:
        """Checks a configuration without any I/O.

        Raises:
            InvalidConfiguration: with all problems, not the first.
        """

    @classmethod
    def parameters_schema(cls) -> Mapping[str, object] | None:
        """Return the JSON Schema of `AdapterConfig.parameters`, or None where the adapter has none to give; no I/O."""
        return None

    @classmethod
    @abc.abstractmethod
    async def connect(cls, config: AdapterConfig) -> Self:
        """Connects to the fabric manager and returns the adapter, ready.

        Raises:
            InvalidConfiguration: as `validate`.
            Unavailable, DeadlineExceeded: the manager cannot be reached now; nothing is left open.
            Unauthenticated, PermissionDenied: the credentials do not do.
        """

    @abc.abstractmethod
    async def capabilities(self) -> Capabilities:
        """What the fabric can do; may change when the fabric manager is upgraded."""

    @abc.abstractmethod
    async def hosts(self) -> tuple[inventory.Host, ...]:
        """All hosts that the fabric reaches, with their ports."""

    @abc.abstractmethod
    async def devices(self) -> inventory.Inventory:
        """All devices at one moment, attached by whomever; what the fabric says now, not what was asked of it."""

    @abc.abstractmethod
    async def attach(self, request: AttachRequest) -> Operation:
        """Begins to connect a device to a host; idempotent by request id.

        The same request again returns the operation that the first one began. A device that the host already
        has is a success, finished at once. A refusal raises and leaves nothing behind; a failure after the
        operation began is its `error`.

        Raises:
            InvalidArgument: the request can never succeed.
            NotFound: no such device or host.
            AlreadyExists: the request id was used with other arguments.
            FailedPrecondition: IN_USE (another host has it; `host_id` names it), INCOMPATIBLE, CARVED.
            ResourceExhausted: NO_FREE_PORT (`host_id`), NO_DEVICE.
            Aborted: OPERATION_PENDING (another request for this device is in flight), STALE_ETAG.
            Unavailable: not reached; `side_effects_unknown` is set where that is not certain.
            DeadlineExceeded: effects unknown; ask `operation` by request id, or `devices`, before any retry.
            Unimplemented: this selector is not in the capabilities.
        """

    @abc.abstractmethod
    async def detach(self, request: DetachRequest) -> Operation:
        """Begins to disconnect a device from a host; idempotent by request id and by effect.

        A device that this host does not have is a success, finished at once, and whichever host has it keeps
        it. Errors as `attach`, and:

        Raises:
            FailedPrecondition: NOT_PREPARED (neither host_prepared nor force).
            Unimplemented: force, where the capabilities do not have it.
        """

    async def create_slice(self, request: CreateSliceRequest) -> Operation:
        """Begins to make a slice of a device; idempotent by request id.

        The same request again returns the operation that the first one began, and after a lost reply or a restart a slice that
        shows the request's id is the one that it made. The slice is a device: it is attached and detached as any other.

        Raises:
            InvalidArgument: the request can never succeed: no multiple of `Carving.step_bytes`, or a device that cannot be carved.
            NotFound: no such device.
            AlreadyExists: the request id was used with other arguments.
            FailedPrecondition: IN_USE (the device is attached as a whole; `host_id` names the host).
            ResourceExhausted: NO_CAPACITY.
            Aborted, Unavailable, DeadlineExceeded: as `attach`.
            Unimplemented: not in the capabilities.
        """
        del request
        raise errors.Unimplemented("the fabric makes no slices of devices")

    async def delete_slice(self, request: DeleteSliceRequest) -> Operation:
        """Begins to give the memory of a slice back; idempotent by request id and by effect.

        A slice that is not there is a success, finished at once. Errors as `create_slice`, and:

        Raises:
            InvalidArgument: the device is no slice.
            FailedPrecondition: IN_USE (the slice is attached; `host_id` names the host).
        """
        del request
        raise errors.Unimplemented("the fabric makes no slices of devices")

    @abc.abstractmethod
    async def operation(self, *, operation_id: str | None = None, request_id: str | None = None) -> Operation:
        """The operation of that id, or the one that the request of that id began. Exactly one is given.

        Raises:
            NotFound: never begun, or already forgotten: read `devices` to know which.
            InvalidArgument: none or both ids are given.
        """

    @abc.abstractmethod
    async def operations(self) -> tuple[Operation, ...]:
        """All operations in flight, and those of the recent past that the fabric remembers."""

    @abc.abstractmethod
    async def cancel(self, operation_id: str) -> Operation:
        """Asks for an operation to be given up; idempotent.

        Returns it as it is then: it may run on, or be finished already. A cancelled one is done with the error
        Aborted, CANCELLED.

        Raises:
            NotFound: no such operation.
            Unimplemented: not in the capabilities.
        """

    @abc.abstractmethod
    def watch(self, from_version: str) -> AbstractAsyncContextManager[AsyncIterator[changes.WatchEvent]]:
        """What changes after a version: ``async with adapter.watch(version) as events: async for ...``.

        Yields at least every `changes.BOOKMARK_SECONDS`. Ends after a `Resync`, which also answers a version
        that is too old or unknown. Events that the caller does not take are not collected without bound: a
        caller that is too slow gets a `Resync`.

        Raises:
            Unavailable: the connection was lost, also while iterating; watch again from the last version.
            Unimplemented: not in the capabilities.
        """

    @abc.abstractmethod
    async def close(self) -> None:
        """Lets go of the fabric manager; idempotent. Calls in flight end with Unavailable."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
