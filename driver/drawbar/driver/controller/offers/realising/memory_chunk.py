"""Memory chunks at a fabric manager that carves memory (see `offers.memory_chunk`).

An attach of a chunk carves it first, under a request of its own, and then attaches it. A later attempt first reads the
fabric:
a chunk with a lost answer is found, and a second one is never carved. To the caller both are one operation. A detach
leaves the chunk, which is an orphan once its attachment is gone.
"""

import dataclasses
from collections.abc import AsyncGenerator, AsyncIterator, Collection

from drawbar.driver.controller import names
from drawbar.driver.controller.offers import holdings, memory_chunk
from drawbar.driver.controller.offers.realising import adapter
from drawbar.fabric import contract, errors

# The carving has ended, and the attach is called again.
_NEXT_STEP_SECONDS = 0.05


class MemoryChunks(adapter.RealisingAdapter):
    """An adapter with a part for each chunk, in addition to the devices that they are carved from."""

    _arranged = memory_chunk.NOTHING

    def update_holdings(self, held: holdings.Holdings, *, arranges: bool = True) -> None:
        """Take in the cluster's present holdings."""
        super().update_holdings(held, arranges=arranges and held.chunks != self.held.chunks)

    def withdrawn(self, expected: Collection[str]) -> frozenset[str]:
        """Return the expected names that are shown as a part now, and those of chunks without a DeviceAttachment."""
        hidden = set(map(names.label, self.hidden))
        return frozenset(
            name
            for name in expected
            if name in hidden or (names.is_share(name) and name not in self.held.chunks)
        )

    async def operation(
        self, *, operation_id: str | None = None, request_id: str | None = None
    ) -> contract.Operation:
        """Return the operation as in the contract; for an attach whose chunk is being carved, the carving's progress."""
        try:
            return await super().operation(operation_id=operation_id, request_id=request_id)
        except errors.NotFound:
            part = self._find(request_id or "")
            if part is None or request_id is None or not request_id.startswith(f"{part.uid}-a"):
                raise
            carving = memory_chunk.slice_request(part.name, request_id)
            making = await self._adapter.operation(request_id=carving)
            if making.succeeded:
                # The chunk is attached next.
                raise
            return self._as_attach(making, part)

    async def operations(self) -> tuple[contract.Operation, ...]:
        """Return the operations as in the contract; a finished carving is finished, even if its attach is not."""
        return tuple(
            operation
            if operation.kind is contract.OperationKind.CREATE_SLICE and operation.succeeded
            else self._translate(operation)
            for operation in await self._adapter.operations()
        )

    async def _events(
        self, events: AsyncIterator[contract.WatchEvent]
    ) -> AsyncGenerator[contract.WatchEvent, None]:
        async for event in events:
            match event:
                case contract.DeviceChanged(device=device) if names.is_share(device.id):
                    # The next listing reports it.
                    continue
                case contract.DeviceChanged(device=device):
                    self._put(device.id, device)
                    if device.slice_of is not None or device.carving is not None:
                        self._arrange_soon()
                    if device.id not in self.hidden:
                        yield event
                case contract.DeviceGone(device_id=device_id):
                    was_hidden, before = device_id in self.hidden, self._devices.get(device_id)
                    self._put(device_id, None)
                    if before is not None and before.slice_of is not None:
                        self._arrange_soon()
                    if not was_hidden:
                        yield event
                case contract.OperationChanged(operation=operation):
                    yield dataclasses.replace(event, operation=self._translate(operation))
                case _:
                    yield event

    async def _read(self) -> contract.Inventory:
        listed = await super()._read()
        self.reserved = tuple(filter(names.is_share, self._devices))
        for device_id in self.reserved:
            del self._devices[device_id]
        return listed

    def _choose(self) -> None:
        slices = [device for device in self.listed_devices if device.slice_of is not None]
        self._arranged = memory_chunk.arrange(
            self.held.chunks.values(), slices, self._devices, self._arranged.carved
        )
        self.parts, self.contents = self._arranged.shown, self._arranged.contents
        self.hidden = frozenset(made.id for made in self.contents.values())

    def _find(self, request_id: str) -> holdings.Holding | None:
        return self.held.chunks_by_uid.get(request_id.rpartition("-")[0])

    def _lock(self, part: holdings.Holding) -> str:
        """Return the attachment: the calls for one chunk run in turn."""
        return part.uid

    async def _attach(self, request: contract.AttachRequest, part: holdings.Holding) -> contract.Operation:
        """Attach a chunk after carving it, and return the operation.

        Raises:
            FabricError: as in the contract, also for `create_slice`.
        """
        # An earlier attempt, or an earlier process, may have carved it.
        made_id = await self._find_device(part, request.request_id)
        if made_id is None:
            assert part.share is not None
            operation = await self._adapter.create_slice(
                contract.CreateSliceRequest(
                    request_id=memory_chunk.slice_request(part.name, request.request_id),
                    device_id=part.share.device_id,
                    memory_bytes=part.share.memory_bytes,
                    mark=request.mark,
                )
            )
            if not operation.succeeded or operation.device is None:
                return self._as_attach(operation, part)
            made_id = operation.device.id
            self._put(made_id, operation.device)
            self.arrange()
        return self._translate(await self._adapter.attach(dataclasses.replace(request, device_id=made_id)))

    async def _find_device(self, part: holdings.Holding, request_id: str) -> str | None:
        del request_id
        if part.name not in self.contents:
            await self._read_and_arrange()
        made = self.contents.get(part.name)
        return made.id if made is not None else None

    def _translate(self, operation: contract.Operation) -> contract.Operation:
        """Return an operation on a chunk as one on its part, even if another owner began it."""
        carved_for = memory_chunk.parse_requested_share(operation.request_id) or ""
        part, device = self.held.chunks.get(carved_for) or self._find(operation.request_id), operation.device
        if part is not None and operation.kind is contract.OperationKind.CREATE_SLICE:
            return self._as_attach(operation, part)
        if device is None or device.slice_of is None:
            return operation
        shown = (name for name, made in self.contents.items() if made.id == device.id)
        name = part.name if part is not None else next(shown, None)
        return (
            dataclasses.replace(operation, device=memory_chunk.as_share(device, name))
            if name is not None
            else operation
        )

    def _as_attach(self, making: contract.Operation, part: holdings.Holding) -> contract.Operation:
        """Return the carving of a chunk as its attach, which is unfinished while the chunk is not attached."""
        return dataclasses.replace(
            making,
            request_id=f"{part.uid}-a{making.request_id.rpartition('-s')[2]}",
            kind=contract.OperationKind.ATTACH,
            done=making.error is not None,
            percent=None,
            retry_after_seconds=_NEXT_STEP_SECONDS if making.succeeded else making.retry_after_seconds,
            device=self.parts.get(part.name),
        )
