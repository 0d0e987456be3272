"""An adapter whose errors do not show its credentials, and whose defects do not end the controller.

Managers and adapters quote what they were given in what they refuse it with. Their words go into conditions, Events
and logs, so they pass through here first.

Adapters are foreign code. Their callers know the closed set of `drawbar.fabric.errors` and no other; so
an exception that is none of these becomes one of them here, the only place that catches everything.
"""

import logging
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import replace
from typing import NoReturn, Protocol

from drawbar.fabric import contract, errors

log = logging.getLogger(__name__)

DEFECT = "ADAPTER_DEFECT"
"""The reason of an error that the adapter did not mean to raise: its vendor must act."""


class AdapterClass(Protocol):
    """An adapter's class, or something that stands in for one."""

    def validate(self, config: contract.AdapterConfig) -> None:
        """See `contract.FabricAdapter.validate`."""
        ...

    async def connect(self, config: contract.AdapterConfig) -> contract.FabricAdapter:
        """See `contract.FabricAdapter.connect`."""
        ...


AdapterOf = Callable[[str], AdapterClass]
"""The class of the adapter of that name; raises `fabric.errors.InvalidConfiguration` where there is none."""


class RedactingAdapter(contract.FabricAdapter):
    """Another adapter, with the secret parts of the credentials taken out of its errors, and only errors of the set.

    Its calls raise `errors.Unavailable` with the reason `DEFECT` where the adapter raised something else.
    """

    def __init__(
        self, adapter: contract.FabricAdapter, credentials: contract.Credentials, *, fabric: str, name: str
    ) -> None:
        """Stand before an adapter.

        Args:
            adapter: the adapter within.
            credentials: as whom it was connected.
            fabric: the Fabric's name, for the log.
            name: the adapter's name, for messages.
        """
        self._adapter = adapter
        self._credentials = credentials
        self._fabric = fabric
        self._name = name

    @classmethod
    def validate(cls, config: contract.AdapterConfig) -> NoReturn:
        """Never called: the adapter within was made already."""
        raise NotImplementedError

    @classmethod
    async def connect(cls, config: contract.AdapterConfig) -> NoReturn:
        """Never called: the adapter within was connected already."""
        raise NotImplementedError

    async def capabilities(self) -> contract.Capabilities:
        """As the contract says."""
        with self._listening():
            return await self._adapter.capabilities()

    async def hosts(self) -> tuple[contract.Host, ...]:
        """As the contract says."""
        with self._listening():
            return await self._adapter.hosts()

    async def devices(self) -> contract.Inventory:
        """As the contract says."""
        with self._listening():
            return await self._adapter.devices()

    async def attach(self, request: contract.AttachRequest) -> contract.Operation:
        """As the contract says."""
        with self._listening():
            return self._clean(await self._adapter.attach(request))

    async def detach(self, request: contract.DetachRequest) -> contract.Operation:
        """As the contract says."""
        with self._listening():
            return self._clean(await self._adapter.detach(request))

    async def create_slice(self, request: contract.CreateSliceRequest) -> contract.Operation:
        """As the contract says."""
        with self._listening():
            return self._clean(await self._adapter.create_slice(request))

    async def delete_slice(self, request: contract.DeleteSliceRequest) -> contract.Operation:
        """As the contract says."""
        with self._listening():
            return self._clean(await self._adapter.delete_slice(request))

    async def operation(
        self, *, operation_id: str | None = None, request_id: str | None = None
    ) -> contract.Operation:
        """As the contract says."""
        with self._listening():
            return self._clean(
                await self._adapter.operation(operation_id=operation_id, request_id=request_id)
            )

    async def operations(self) -> tuple[contract.Operation, ...]:
        """As the contract says."""
        with self._listening():
            return tuple(self._clean(operation) for operation in await self._adapter.operations())

    async def cancel(self, operation_id: str) -> contract.Operation:
        """As the contract says."""
        with self._listening():
            return self._clean(await self._adapter.cancel(operation_id))

    @asynccontextmanager
    async def watch(self, from_version: str) -> AsyncIterator[AsyncIterator[contract.WatchEvent]]:
        """As the contract says."""
        with self._listening():
            async with (
                self._adapter.watch(from_version) as events,
                aclosing(self._redacted(events)) as redacted,
            ):
                yield redacted

    async def close(self) -> None:
        """As the contract says."""
        with self._listening():
            await self._adapter.close()

    async def _redacted(
        self, events: AsyncIterator[contract.WatchEvent]
    ) -> AsyncGenerator[contract.WatchEvent, None]:
        async for event in events:
            if isinstance(event, contract.OperationChanged) and event.operation.error is not None:
                yield replace(event, operation=self._clean(event.operation))
            else:
                yield event

    @contextmanager
    def _listening(self) -> Iterator[None]:
        try:
            yield
        except errors.FabricError as error:
            clean(error, self._credentials)
            raise
        except Exception as error:  # noqa: BLE001 -- foreign code, and nothing of it is lost
            # Without its cause, which may quote what it was given; the log has it, redacted.
            raise defect(error, self._credentials, fabric=self._fabric, name=self._name) from None

    def _clean(self, operation: contract.Operation) -> contract.Operation:
        if operation.error is None:
            return operation
        redacted = self._credentials.redacted
        cleaned = replace(
            operation.error,
            message=redacted(operation.error.message),
            vendor={key: redacted(value) for key, value in operation.error.vendor.items()},
        )
        return replace(operation, error=cleaned)


def clean(error: errors.FabricError, credentials: contract.Credentials) -> None:
    """Take the secret parts out of an error's words."""
    error.message = credentials.redacted(error.message)
    error.args = (error.message,)
    error.vendor = {key: credentials.redacted(value) for key, value in error.vendor.items()}


def defect(
    error: Exception, credentials: contract.Credentials, *, fabric: str, name: str
) -> errors.Unavailable:
    """Return what an exception becomes that no adapter may raise; its traceback is logged without the credentials.

    Whether the call did anything is unknown: it may have failed before it asked the manager, or over the answer.
    """
    text = credentials.redacted("".join(traceback.format_exception(error)))
    log.error("the fabric adapter failed", extra={"fabric": fabric, "traceback": text})
    message = f"the adapter {name} failed with {type(error).__name__}; tell its vendor"
    return errors.Unavailable(message, reason=DEFECT, side_effects_unknown=True)
