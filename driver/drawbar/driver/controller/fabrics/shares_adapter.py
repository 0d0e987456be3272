"""The adapter of a fabric that carves memory, as an adapter whose shares are devices, too (see `offers.memory_chunk`).

An attach of a share makes its slice first, under a request of its own, and then attaches that; of a later attempt only after
the fabric was read anew, so that a slice whose answer was lost is found, and a second one is never made. To the caller both
are one operation. A detach leaves the slice, which is an orphan once its attachment is gone.
"""

import asyncio
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import replace

from drawbar.driver.controller import names
from drawbar.driver.controller.offers import memory_chunk
from drawbar.fabric import contract, errors, wrapping

# Of an attach whose slice is made: it is called again.
_NEXT_STEP_SECONDS = 0.05
_ATTACH = contract.OperationKind.ATTACH


class SharesAdapter(wrapping.KeepingAdapter):
    """Another adapter, with a device more for each share, in place of its slice.

    What a DeviceAttachment changes is reported by a call, not by the watch.
    """

    def __init__(
        self,
        adapter: contract.FabricAdapter,
        *,
        holds: Callable[[], tuple[memory_chunk.Hold, ...]],
        report: Callable[[contract.WatchEvent], None],
        withdraw: Callable[[str], None],
    ) -> None:
        """Stand before an adapter.

        Args:
            adapter: the adapter within.
            holds: returns the DeviceAttachments of shares of this fabric.
            report: called with each share, or slice, that is shown now, different or lost.
            withdraw: called with the name of each that is not shown any more, and not lost.
        """
        super().__init__(adapter)
        self._holds = holds
        self._report = report
        self._withdraw = withdraw
        self._slices: dict[str, contract.Device] = {}
        # Ids of devices of the manager that look like names of shares; they are not shown.
        self.reserved: tuple[str, ...] = ()
        self._arranged = memory_chunk.NOTHING
        # By attachment: what is asked for of one share is asked for in turn.
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    @property
    def shown(self) -> tuple[contract.Device, ...]:
        """All devices, with the shares in place of their slices."""
        hidden = self._hidden
        return (
            *(device for device in self._devices.values() if device.id not in hidden),
            *self._arranged.shown.values(),
        )

    @property
    def _hidden(self) -> frozenset[str]:
        return frozenset(made.id for made in self._arranged.occupants.values())

    def occupant(self, name: str) -> contract.Device | None:
        """Return the slice of a share; None where it has none, or it is not listed."""
        return self._arranged.occupants.get(name)

    def made(self, name: str) -> contract.Device | None:
        """Return the slice of a share, whether the share has an attachment or not."""
        return next((made for made in self._slices.values() if memory_chunk.name_of(made) == name), None)

    def withdrawn(self, expected: tuple[str, ...]) -> frozenset[str]:
        """Return those of the expected names that are gone since a share has the slice, or the share is no more."""
        held = {hold.name for hold in self._holds()}
        hidden = {names.label(device_id) for device_id in self._hidden}
        return frozenset(
            name for name in expected if name in hidden or (names.is_share(name) and name not in held)
        )

    def made_bytes(self, origin_id: str, mark: str | None) -> int:
        """Return the memory of a device that is in slices with our mark."""
        return sum(
            made.memory_bytes
            for made in self._slices.values()
            if made.slice_of is not None
            and made.slice_of.origin_id == origin_id
            and made.slice_of.mark == mark
        )

    def arrange(self) -> None:
        """Arrange the shares anew, and report what is different."""
        before, hidden = self._arranged, self._hidden
        holds = self._holds()
        self._arranged = memory_chunk.arrange(holds, self._slices.values(), self._devices, before.carved)
        held = {hold.name for hold in holds}
        for name in before.shown.keys() - self._arranged.shown.keys():
            if name in held:
                self._report(contract.DeviceGone(version="", device_id=name))
            else:
                self._withdraw(name)
        for device_id in self._hidden - hidden:
            self._withdraw(names.label(device_id))
        for device_id in hidden - self._hidden:
            if device_id in self._devices:
                self._report(contract.DeviceChanged(version="", device=self._devices[device_id]))
        for name, share in self._arranged.shown.items():
            if before.shown.get(name) != share:
                self._report(contract.DeviceChanged(version="", device=share))

    async def devices(self) -> contract.Inventory:
        """Return all devices, with the shares in place of their slices."""
        listed = await self._read()
        self.arrange()
        return replace(listed, devices=self.shown)

    async def attach(self, request: contract.AttachRequest) -> contract.Operation:
        """Attach a device; of a share make the slice first.

        Raises:
            FabricError: as the contract says, and as it says of `create_slice`.
        """
        hold = self._hold(request.device_id)
        if hold is None:
            return await self._adapter.attach(request)
        async with self._locks.setdefault(hold.uid, asyncio.Lock()):
            made = self._arranged.occupants.get(hold.name)
            if made is None:
                # An earlier attempt, or an earlier process, may have made it.
                await self._read()
                self.arrange()
                made = self._arranged.occupants.get(hold.name)
            if made is None:
                operation = await self._adapter.create_slice(
                    contract.CreateSliceRequest(
                        request_id=memory_chunk.slice_request(hold.name, request.request_id),
                        device_id=hold.share.device_id,
                        memory_bytes=hold.share.memory_bytes,
                        mark=request.mark,
                    )
                )
                if not operation.succeeded or operation.device is None:
                    return self._as_attach(operation, hold)
                made = operation.device
                self._put(made.id, made)
                self.arrange()
            return self._shown(await self._adapter.attach(replace(request, device_id=made.id)))

    async def detach(self, request: contract.DetachRequest) -> contract.Operation:
        """Detach a device; of a share its slice. Success where there is none."""
        hold = self._hold(request.device_id)
        if hold is None:
            return await self._adapter.detach(request)
        async with self._locks.setdefault(hold.uid, asyncio.Lock()):
            if hold.name not in self._arranged.occupants:
                await self._read()
                self.arrange()
            made = self._arranged.occupants.get(hold.name)
            if made is None:
                return contract.Operation(
                    id=f"done-{request.request_id}",
                    request_id=request.request_id,
                    kind=contract.OperationKind.DETACH,
                    done=True,
                    percent=100,
                    device=self._arranged.shown.get(hold.name),
                )
            return self._shown(await self._adapter.detach(replace(request, device_id=made.id)))

    async def operation(
        self, *, operation_id: str | None = None, request_id: str | None = None
    ) -> contract.Operation:
        """As the contract says; of an attach of a share that only its slice was asked for yet, how far that is."""
        try:
            return self._shown(
                await self._adapter.operation(operation_id=operation_id, request_id=request_id)
            )
        except errors.NotFound:
            hold = self._holder(request_id or "")
            if hold is None or request_id is None or not request_id.startswith(f"{hold.uid}-a"):
                raise
            making = await self._adapter.operation(
                request_id=memory_chunk.slice_request(hold.name, request_id)
            )
            if not making.succeeded:
                return self._as_attach(making, hold)
            # It is attached next.
            raise

    async def operations(self) -> tuple[contract.Operation, ...]:
        """As the contract says; what has made a slice is over, though the attach that it is a part of is not."""
        return tuple(
            operation
            if operation.kind is contract.OperationKind.CREATE_SLICE and operation.succeeded
            else self._shown(operation)
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
                    if device.id not in self._hidden:
                        yield event
                case contract.DeviceGone(device_id=device_id):
                    was_hidden, was_slice = device_id in self._hidden, device_id in self._slices
                    self._put(device_id, None)
                    if was_slice:
                        self._arrange_soon()
                    if not was_hidden:
                        yield event
                case contract.OperationChanged(operation=operation):
                    yield replace(event, operation=self._shown(operation))
                case _:
                    yield event

    async def _read(self) -> contract.Inventory:
        listed = await super()._read()
        self.reserved = tuple(filter(names.is_share, self._devices))
        for device_id in self.reserved:
            del self._devices[device_id]
        self._slices = {
            device_id: device for device_id, device in self._devices.items() if device.slice_of is not None
        }
        return listed

    def _put(self, device_id: str, device: contract.Device | None) -> None:
        super()._put(device_id, device)
        if device is None:
            self._slices.pop(device_id, None)
        elif device.slice_of is not None:
            self._slices[device_id] = device

    def _hold(self, name: str | None) -> memory_chunk.Hold | None:
        if name is None or not names.is_share(name):
            return None
        return next((hold for hold in self._holds() if hold.name == name), None)

    def _holder(self, request_id: str) -> memory_chunk.Hold | None:
        """Return whose request that is: the attachment's, or for the slice of its share."""
        name, uid = memory_chunk.requested_share(request_id), request_id.rpartition("-")[0]
        return next((hold for hold in self._holds() if name == hold.name or hold.uid == uid), None)

    def _as_attach(self, making: contract.Operation, hold: memory_chunk.Hold) -> contract.Operation:
        """Return the making of a slice as the attach that it is a part of: that is not done while the slice is not attached."""
        return replace(
            making,
            request_id=f"{hold.uid}-a{making.request_id.rpartition('-s')[2]}",
            kind=_ATTACH,
            done=making.error is not None,
            percent=None,
            retry_after_seconds=_NEXT_STEP_SECONDS if making.succeeded else making.retry_after_seconds,
            device=self._arranged.shown.get(hold.name),
        )

    def _shown(self, operation: contract.Operation) -> contract.Operation:
        """Return an operation on a slice as one on its share, also where another owner began it."""
        hold, device = self._holder(operation.request_id), operation.device
        if hold is not None and operation.kind is contract.OperationKind.CREATE_SLICE:
            return self._as_attach(operation, hold)
        if device is None or device.slice_of is None:
            return operation
        name = hold.name if hold is not None else self._share_with(device.id)
        return (
            replace(operation, device=memory_chunk.as_share(device, name)) if name is not None else operation
        )

    def _share_with(self, slice_id: str) -> str | None:
        return next((name for name, made in self._arranged.occupants.items() if made.id == slice_id), None)
