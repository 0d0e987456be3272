"""Adapters around other adapters: each call is passed on, and a subclass overrides some of them."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import NoReturn

from drawbar.fabric import contract


class WrappingAdapter(contract.FabricAdapter):
    """An adapter that passes all calls on; a subclass usually overrides `_guard`, `_translate` or `_events`."""

    def __init__(self, adapter: contract.FabricAdapter) -> None:
        """Stand before an adapter, which is connected, and is closed with this one."""
        self._adapter = adapter

    @classmethod
    def validate(cls, config: contract.AdapterConfig) -> NoReturn:
        """Never called: the adapter within was made already."""
        raise NotImplementedError

    @classmethod
    async def connect(cls, config: contract.AdapterConfig) -> NoReturn:
        """Never called: the adapter within was connected already."""
        raise NotImplementedError

    def _guard(self, call: str) -> AbstractAsyncContextManager[None]:
        """Return the context in which a call of this name is made, or a watch lasts; `call` is a method of the contract."""
        del call
        return contextlib.nullcontext()

    def _translate(self, operation: contract.Operation) -> contract.Operation:
        """Return the operation as the caller sees it."""
        return operation

    async def _events(
        self, events: AsyncIterator[contract.WatchEvent]
    ) -> AsyncGenerator[contract.WatchEvent, None]:
        """Yield the events as the caller sees them."""
        async for event in events:
            if isinstance(event, contract.OperationChanged):
                operation = self._translate(event.operation)
                yield event if operation is event.operation else replace(event, operation=operation)
            else:
                yield event

    async def capabilities(self) -> contract.Capabilities:
        """Return the fabric's capabilities, as the contract says."""
        async with self._guard("capabilities"):
            return await self._adapter.capabilities()

    async def hosts(self) -> tuple[contract.Host, ...]:
        """Return all hosts, as the contract says."""
        async with self._guard("hosts"):
            return await self._adapter.hosts()

    async def devices(self) -> contract.Inventory:
        """Return all devices, as the contract says."""
        async with self._guard("devices"):
            return await self._adapter.devices()

    async def attach(self, request: contract.AttachRequest) -> contract.Operation:
        """Begin an attach, as the contract says."""
        async with self._guard("attach"):
            return self._translate(await self._adapter.attach(request))

    async def detach(self, request: contract.DetachRequest) -> contract.Operation:
        """Begin a detach, as the contract says."""
        async with self._guard("detach"):
            return self._translate(await self._adapter.detach(request))

    async def create_slice(self, request: contract.CreateSliceRequest) -> contract.Operation:
        """Begin to make a slice, as the contract says."""
        async with self._guard("create_slice"):
            return self._translate(await self._adapter.create_slice(request))

    async def delete_slice(self, request: contract.DeleteSliceRequest) -> contract.Operation:
        """Begin to delete a slice, as the contract says."""
        async with self._guard("delete_slice"):
            return self._translate(await self._adapter.delete_slice(request))

    async def operation(
        self, *, operation_id: str | None = None, request_id: str | None = None
    ) -> contract.Operation:
        """Return one operation, as the contract says."""
        async with self._guard("operation"):
            return self._translate(
                await self._adapter.operation(operation_id=operation_id, request_id=request_id)
            )

    async def operations(self) -> tuple[contract.Operation, ...]:
        """Return all remembered operations, as the contract says."""
        async with self._guard("operations"):
            return tuple(self._translate(operation) for operation in await self._adapter.operations())

    async def cancel(self, operation_id: str) -> contract.Operation:
        """Cancel an operation, as the contract says."""
        async with self._guard("cancel"):
            return self._translate(await self._adapter.cancel(operation_id))

    @contextlib.asynccontextmanager
    async def watch(self, from_version: str) -> AsyncIterator[AsyncIterator[contract.WatchEvent]]:
        """Yield the events after a version, as the contract says."""
        async with (
            self._guard("watch"),
            self._adapter.watch(from_version) as events,
            contextlib.aclosing(self._events(events)) as shown,
        ):
            yield shown

    async def close(self) -> None:
        """Close the connection, as the contract says."""
        async with self._guard("close"):
            await self._adapter.close()


# An arrangement looks at every device, so it waits for further changes: 0.4 s at 1,000 devices.
ARRANGE_SECONDS_PER_DEVICE = 0.0004


class KeepingAdapter(WrappingAdapter):
    """A wrapping adapter that keeps all devices as last listed or reported.

    `_read` lists them. A subclass calls `_put` for each device in an event or an answer. It computes the shown form of all
    devices in `arrange`, and calls `_arrange_soon` after an event.
    """

    def __init__(self, adapter: contract.FabricAdapter) -> None:
        """Wrap an adapter; see `WrappingAdapter`."""
        super().__init__(adapter)
        self._devices: dict[str, contract.Device] = {}
        # The reports since each listing under way began, by the listing's number.
        self._meanwhile: dict[int, dict[str, contract.Device | None]] = {}
        self._begun = 0
        # The number of the listing that the devices are from.
        self._newest = 0
        # On the loop's clock.
        self._arranged_at = 0.0
        self._arranging: asyncio.TimerHandle | None = None

    def arrange(self) -> None:
        """Compute the shown form of all devices again; without an override it is their own."""

    def _arrange_soon(self) -> None:
        """Arrange at once, or after a pause that grows with the number of devices, together with the changes meanwhile."""
        loop = asyncio.get_running_loop()
        if self._arranging is not None:
            return
        left = self._arranged_at + len(self._devices) * ARRANGE_SECONDS_PER_DEVICE - loop.time()
        if left > 0:
            self._arranging = loop.call_later(left, self._arrange_now)
        else:
            self._arrange_now()

    def _arrange_now(self) -> None:
        self._stop_arranging()
        self.arrange()
        self._arranged_at = asyncio.get_running_loop().time()

    def _stop_arranging(self) -> None:
        if self._arranging is not None:
            self._arranging.cancel()
            self._arranging = None

    async def close(self) -> None:
        """Close the connection, as the contract says."""
        self._stop_arranging()
        await super().close()

    async def _read(self) -> contract.Inventory:
        """List the devices and return the listing. Devices reported meanwhile stay as reported.

        Of overlapping listings, the one that began last stays, in any order of their ends.
        """
        self._begun += 1
        number = self._begun
        meanwhile = self._meanwhile[number] = {}
        try:
            inventory = await self._adapter.devices()
        finally:
            del self._meanwhile[number]
        if number < self._newest:
            return inventory
        self._newest = number
        # While a part cannot be read, missing devices are in doubt, and stay as they were.
        former = self._devices if inventory.unread else {}
        listed: dict[str, contract.Device | None] = {
            **former,
            **{device.id: device for device in inventory.devices},
        }
        self._devices = {
            device_id: device for device_id, device in (listed | meanwhile).items() if device is not None
        }
        return inventory

    def _put(self, device_id: str, device: contract.Device | None) -> None:
        """Store a device as reported; None if it is gone."""
        for meanwhile in self._meanwhile.values():
            meanwhile[device_id] = device
        if device is None:
            self._devices.pop(device_id, None)
        else:
            self._devices[device_id] = device
