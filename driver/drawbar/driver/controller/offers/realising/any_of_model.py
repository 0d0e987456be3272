"""Any device of a model, at a fabric manager that chooses the device itself (see `offers.any_of_model`).

The fabric is read before each attach. If an earlier call with a lost answer has connected a device, that is adopted,
and a second one is never attached.
"""

import dataclasses
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping

import msgspec

from drawbar.driver.controller.offers import any_of_model, holdings
from drawbar.driver.controller.offers.realising import adapter
from drawbar.fabric import contract, errors


class AnyOfModel(adapter.RealisingAdapter):
    """An adapter with model offers in place of devices."""

    chooses = True
    _arranged = any_of_model.Arrangement()

    @property
    def visible_parts(self) -> tuple[contract.Device, ...]:
        """Return the offers, as last reported."""
        return tuple(self.parts.values())

    def withdrawn(self, expected: Collection[str]) -> frozenset[str]:
        """Return the expected offers that are gone since other owners have their devices."""
        return any_of_model.withdrawn(expected, self.listed_devices, self._arranged)

    async def capabilities(self) -> contract.Capabilities:
        """Return the contract's capabilities without memory chunks: these come from a named device, and offers hide devices."""
        return dataclasses.replace(await self._adapter.capabilities(), slices=False)

    # This is refused, as the capabilities say.
    create_slice = contract.FabricAdapter.create_slice
    delete_slice = contract.FabricAdapter.delete_slice

    async def hosts(self) -> tuple[contract.Host, ...]:
        """Return the hosts as in the contract; ports name offers."""
        return tuple(self._translate_host(host) for host in await self._adapter.hosts())

    async def devices(self) -> contract.Inventory:
        """Return all offers; their changes count as reported."""
        listed = await self._read()
        self._choose()
        return dataclasses.replace(listed, devices=self.visible_parts)

    async def operation(
        self, *, operation_id: str | None = None, request_id: str | None = None
    ) -> contract.Operation:
        """Return the operation as in the contract."""
        answer = await self._adapter.operation(operation_id=operation_id, request_id=request_id)
        return self._take_answer(answer)

    async def cancel(self, operation_id: str) -> contract.Operation:
        """Cancel as in the contract, and return the operation."""
        return self._take_answer(await self._adapter.cancel(operation_id))

    async def _events(
        self, events: AsyncIterator[contract.WatchEvent]
    ) -> AsyncGenerator[contract.WatchEvent, None]:
        async for event in events:
            match event:
                case contract.DeviceChanged(device=device):
                    self._put(device.id, device)
                    self._arrange_soon()
                case contract.DeviceGone(device_id=device_id):
                    self._put(device_id, None)
                    self._arrange_soon()
                case contract.OperationChanged(operation=operation):
                    yield dataclasses.replace(
                        event, operation=self._take_answer(operation, arrange=self._arrange_soon)
                    )
                case contract.HostChanged(host=host):
                    yield dataclasses.replace(event, host=self._translate_host(host))
                case _:
                    yield event

    def _choose(self) -> None:
        self._arranged = any_of_model.arrange(self._devices, self.held, self._arranged.memory, self._mark)
        self.parts = self._arranged.parts
        self.contents = {
            name: self._devices[device_id]
            for name, device_id in self._arranged.contents.items()
            if device_id in self._devices
        }

    def _find(self, request_id: str) -> holdings.Holding:
        uid = any_of_model.uid_of(request_id)
        part = self.held.by_uid.get(uid)
        if part is None:
            raise errors.NotFound(f"no DeviceAttachment with the uid {uid} has a device of the fabric")
        return part

    def _lock(self, part: holdings.Holding) -> str:
        """Return the host: another attach in between would adopt the device of this one."""
        return part.host_id

    async def _attach(self, request: contract.AttachRequest, part: holdings.Holding) -> contract.Operation:
        """Attach a device of the offer's model, unless an earlier call has done it; return the operation.

        Raises:
            FabricError: as in the contract.
            Aborted: an unfinished operation may have connected a device that cannot be distinguished from the offer's
                own.
        """
        await self._read_and_arrange()
        await self._adopt(part, request.request_id)
        placed_device = self.contents.get(part.name)
        connection = placed_device.connection if placed_device is not None else None
        if connection is not None and connection.host_id == part.host_id:
            mark = request.mark if self._mark is not None else None
            return self._build_done(request.request_id, contract.OperationKind.ATTACH, part, mark)
        before = dict(self._devices)
        operation = await self._adapter.attach(dataclasses.replace(request, device_id=None, model=part.model))
        return self._take_answer(operation, before)

    async def _find_device(self, part: holdings.Holding, request_id: str) -> str | None:
        if part.name not in self._arranged.contents:
            await self._read_and_arrange()
            await self._adopt(part, request_id)
        return self._arranged.contents.get(part.name)

    async def _adopt(self, part: holdings.Holding, request_id: str) -> None:
        """Put the device of an earlier attach with a lost answer into its offer."""

        def adoptable(*spoken_for: str) -> str | None:
            return any_of_model.adoptable(
                self._devices, part, self._arranged, self._mark, spoken_for=spoken_for
            )

        if adoptable() is None:
            return
        # A retry has an id of its own.
        attaches = [
            operation
            for operation in await self._adapter.operations()
            if operation.kind is contract.OperationKind.ATTACH
            and operation.request_id != request_id
            and any_of_model.uid_of(operation.request_id) != part.uid
        ]
        if any(operation.device is None and not operation.done for operation in attaches):
            raise errors.Aborted(
                "another attach by model is under way, and its device cannot be distinguished from a lost one; wait for its end",
                reason=errors.Reason.OPERATION_PENDING,
            )
        device_id = adoptable(
            *(operation.device.id for operation in attaches if operation.device is not None)
        )
        if device_id is not None:
            memory = any_of_model.remember_device(self._arranged.memory, part, device_id)
            self._arranged = msgspec.structs.replace(self._arranged, memory=memory)
            self.arrange()

    def _take_answer(
        self,
        operation: contract.Operation,
        before: Mapping[str, contract.Device] | None = None,
        *,
        arrange: Callable[[], None] | None = None,
    ) -> contract.Operation:
        """Take in an answer's device, and its state if no newer one was reported since `before`; return the caller's view."""
        part, device = self.held.by_uid.get(any_of_model.uid_of(operation.request_id)), operation.device
        if (
            before is not None
            and device is not None
            and operation.succeeded
            and self._devices.get(device.id) == before.get(device.id)
        ):
            self._put(device.id, device)
        if part is not None and operation.kind is contract.OperationKind.ATTACH and not part.device_id:
            memory = self._arranged.memory
            if device is not None and operation.error is None:
                memory = any_of_model.remember_device(memory, part, device.id)
            elif operation.error is not None and not operation.side_effects_unknown:
                memory = any_of_model.forget_device(memory, part)
            self._arranged = msgspec.structs.replace(self._arranged, memory=memory)
        (arrange or self.arrange)()
        return self._translate(operation)

    def _translate(self, operation: contract.Operation) -> contract.Operation:
        """Return an operation with its offer as its device; without a device if that is in no offer of ours."""
        part, device = self.held.by_uid.get(any_of_model.uid_of(operation.request_id)), operation.device
        name = part.name if part is not None else None
        if name is None and device is not None:
            name = self._find_part_name(device.id)
        return dataclasses.replace(operation, device=self.parts.get(name) if name is not None else None)

    def _translate_host(self, host: contract.Host) -> contract.Host:
        ports = tuple(
            port
            if port.device_id is None
            else dataclasses.replace(port, device_id=self._find_part_name(port.device_id) or port.device_id)
            for port in host.ports
        )
        return dataclasses.replace(host, ports=ports)

    def _find_part_name(self, device_id: str) -> str | None:
        return next(
            (name for name, placed_device in self._arranged.contents.items() if placed_device == device_id),
            None,
        )
