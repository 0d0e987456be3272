"""An adapter whose words cannot give its credentials away.

Managers and adapters quote what they were given in what they refuse it with. Their words go into conditions, Events
and logs, so they pass through here first.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import replace
from typing import NoReturn

from drawbar.fabric import contract, errors


class Discreet(contract.FabricAdapter):
    """Another adapter, with the secret parts of the credentials taken out of its errors."""

    def __init__(self, adapter: contract.FabricAdapter, credentials: contract.Credentials) -> None:
        self._adapter = adapter
        self._credentials = credentials

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
            return tuple(self._clean(one) for one in await self._adapter.operations())

    async def cancel(self, operation_id: str) -> contract.Operation:
        """As the contract says."""
        with self._listening():
            return self._clean(await self._adapter.cancel(operation_id))

    @asynccontextmanager
    async def watch(self, from_version: str) -> AsyncIterator[AsyncIterator[contract.WatchEvent]]:
        """As the contract says."""
        with self._listening():
            async with self._adapter.watch(from_version) as events, aclosing(self._told(events)) as told:
                yield told

    async def close(self) -> None:
        """As the contract says."""
        with self._listening():
            await self._adapter.close()

    async def _told(
        self, events: AsyncIterator[contract.WatchEvent]
    ) -> AsyncGenerator[contract.WatchEvent, None]:
        async for event in events:
            if isinstance(event, contract.OperationChanged):
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

    def _clean(self, operation: contract.Operation) -> contract.Operation:
        if operation.error is None:
            return operation
        redacted = self._credentials.redacted
        told = replace(
            operation.error,
            message=redacted(operation.error.message),
            vendor={key: redacted(value) for key, value in operation.error.vendor.items()},
        )
        return replace(operation, error=told)


def clean(error: errors.FabricError, credentials: contract.Credentials) -> None:
    """Takes the secret parts out of an error's words."""
    error.message = credentials.redacted(error.message)
    error.args = (error.message,)
    error.vendor = {key: credentials.redacted(value) for key, value in error.vendor.items()}
