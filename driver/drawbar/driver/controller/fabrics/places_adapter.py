"""The adapter of a fabric that chooses the device itself, as an adapter whose devices are places (see `offers.any_of_model`).

Before each attach the fabric is read anew: a device that an earlier call has connected, whose answer was lost, is adopted,
and a second one is never attached.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import replace

from drawbar.driver.controller.offers import any_of_model
from drawbar.fabric import contract, errors, wrapping


class PlacesAdapter(wrapping.KeepingAdapter):
    """Another adapter, with places in place of its devices.

    Changes of places are reported by a call, not by the watch: an attachment, an answer or a listing changes them, too.
    """

    def __init__(
        self,
        adapter: contract.FabricAdapter,
        *,
        mark: str | None,
        taken: Callable[[], any_of_model.Taken],
        report: Callable[[contract.WatchEvent], None],
    ) -> None:
        """Stand before an adapter.

        Args:
            adapter: the adapter within.
            mark: ours; None where the fabric keeps no marks.
            taken: returns what the cluster has taken of the places now.
            report: called with each place that is new, different or gone.
        """
        super().__init__(adapter)
        self._mark = mark
        self._taken = taken
        self._report = report
        self._arranged = any_of_model.Arrangement()
        # By place, as last reported.
        self._reported: dict[str, contract.Device] = {}
        # By host: an attach reads the fabric and calls it, and another in between would adopt its device.
        self._hosts: dict[str, asyncio.Lock] = {}

    @property
    def shown(self) -> tuple[contract.Device, ...]:
        """The places as last reported."""
        return tuple(self._reported.values())

    def occupant(self, place: str) -> contract.Device | None:
        """Return the device that is in a place; None where none is, or it is not listed."""
        return self._devices.get(self._arranged.occupants.get(place, ""))

    def withdrawn(self, expected: tuple[str, ...]) -> frozenset[str]:
        """Return those of the expected places that are gone since other owners have their devices."""
        return any_of_model.withdrawn(expected, self._devices.values(), self._arranged)

    def arrange(self) -> None:
        """Arrange the places anew, and report what is different."""
        self._arranged = any_of_model.arrange(self._devices, self._taken(), self._arranged.memory, self._mark)
        before, self._reported = self._reported, dict(self._arranged.places)
        for name, place in self._reported.items():
            if before.get(name) != place:
                self._report(contract.DeviceChanged(version="", device=place))
        for name in before.keys() - self._reported.keys():
            self._report(contract.DeviceGone(version="", device_id=name))

    async def capabilities(self) -> contract.Capabilities:
        """As the contract says, without slices: these are carved from a named device, and places hide which devices there are."""
        return replace(await self._adapter.capabilities(), slices=False)

    async def hosts(self) -> tuple[contract.Host, ...]:
        """As the contract says; ports name places."""
        return tuple(self._shown_host(host) for host in await self._adapter.hosts())

    async def devices(self) -> contract.Inventory:
        """Return all places, whose changes count as reported."""
        listed = await self._read()
        self._arranged = any_of_model.arrange(self._devices, self._taken(), self._arranged.memory, self._mark)
        self._reported = dict(self._arranged.places)
        return replace(listed, devices=self.shown)

    async def attach(self, request: contract.AttachRequest) -> contract.Operation:
        """Attach a device of the place's model, unless an earlier call has done it.

        Raises:
            FabricError: as the contract says.
            NotFound: no attachment holds the place.
            Aborted: an operation under way may have connected a device that cannot be distinguished from the place's own.
        """
        hold = self._hold(any_of_model.uid_of(request.request_id))
        async with self._hosts.setdefault(request.host_id, asyncio.Lock()):
            await self._read()
            self.arrange()
            await self._adopt(hold, request.request_id)
            occupant = self.occupant(hold.place)
            if occupant is not None and _is_on(occupant, hold.host_id):
                return self._done(request.request_id, contract.OperationKind.ATTACH, hold, request.mark)
            before = dict(self._devices)
            operation = await self._adapter.attach(replace(request, device_id=None, model=hold.model))
            return self._answered(operation, before)

    async def detach(self, request: contract.DetachRequest) -> contract.Operation:
        """Detach the device that is in the place; success where none is."""
        hold = self._hold(any_of_model.uid_of(request.request_id))
        async with self._hosts.setdefault(request.host_id, asyncio.Lock()):
            if hold.place not in self._arranged.occupants:
                await self._read()
                self.arrange()
                await self._adopt(hold, request.request_id)
            device_id = self._arranged.occupants.get(hold.place)
            if device_id is None:
                return self._done(request.request_id, contract.OperationKind.DETACH, hold, None)
            before = dict(self._devices)
            operation = await self._adapter.detach(replace(request, device_id=device_id))
            return self._answered(operation, before)

    # Refused, as the capabilities say.
    create_slice = contract.FabricAdapter.create_slice
    delete_slice = contract.FabricAdapter.delete_slice

    async def operation(
        self, *, operation_id: str | None = None, request_id: str | None = None
    ) -> contract.Operation:
        """As the contract says."""
        return self._answered(await self._adapter.operation(operation_id=operation_id, request_id=request_id))

    async def cancel(self, operation_id: str) -> contract.Operation:
        """As the contract says."""
        return self._answered(await self._adapter.cancel(operation_id))

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
                    yield replace(event, operation=self._answered(operation, arrange=self._arrange_soon))
                case contract.HostChanged(host=host):
                    yield replace(event, host=self._shown_host(host))
                case _:
                    yield event

    def _hold(self, uid: str) -> any_of_model.Hold:
        hold = next((hold for hold in self._taken().holds if hold.uid == uid), None)
        if hold is None:
            raise errors.NotFound(f"no DeviceAttachment with the uid {uid} holds a place of the fabric")
        return hold

    async def _adopt(self, hold: any_of_model.Hold, request_id: str) -> None:
        """Put the device into its place that an earlier attach has connected, whose answer was lost."""

        def adoptable(*spoken_for: str) -> str | None:
            return any_of_model.adoptable(
                self._devices, hold, self._arranged, self._mark, spoken_for=spoken_for
            )

        if adoptable() is None:
            return
        attaches = [
            operation
            for operation in await self._adapter.operations()
            if operation.kind is contract.OperationKind.ATTACH and operation.request_id != request_id
        ]
        # A retry has an id of its own.
        attaches = [
            operation for operation in attaches if any_of_model.uid_of(operation.request_id) != hold.uid
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
            self._arranged = replace(
                self._arranged, memory=any_of_model.named(self._arranged.memory, hold, device_id)
            )
            self.arrange()

    def _answered(
        self,
        operation: contract.Operation,
        before: Mapping[str, contract.Device] | None = None,
        *,
        arrange: Callable[[], None] | None = None,
    ) -> contract.Operation:
        """Take over an answer: which device it names, and its state where no newer one was reported since `before`."""
        uid, device = any_of_model.uid_of(operation.request_id), operation.device
        hold = next((hold for hold in self._taken().holds if hold.uid == uid), None)
        if (
            before is not None
            and device is not None
            and operation.succeeded
            and self._devices.get(device.id) == before.get(device.id)
        ):
            self._put(device.id, device)
        if hold is not None and operation.kind is contract.OperationKind.ATTACH and not hold.device_id:
            memory = self._arranged.memory
            if device is not None and operation.error is None:
                memory = any_of_model.named(memory, hold, device.id)
            elif operation.error is not None and not operation.side_effects_unknown:
                memory = any_of_model.unnamed(memory, hold)
            self._arranged = replace(self._arranged, memory=memory)
        (arrange or self.arrange)()
        return self._shown(operation)

    def _shown(self, operation: contract.Operation) -> contract.Operation:
        """Return an operation with its place as its device; without one where its device is in no place of ours."""
        uid, device = any_of_model.uid_of(operation.request_id), operation.device
        place = next((hold.place for hold in self._taken().holds if hold.uid == uid), None)
        if place is None and device is not None:
            place = self._place_of(device.id)
        return replace(operation, device=self._arranged.places.get(place) if place is not None else None)

    def _done(
        self, request_id: str, kind: contract.OperationKind, hold: any_of_model.Hold, mark: str | None
    ) -> contract.Operation:
        return contract.Operation(
            id=f"done-{request_id}",
            request_id=request_id,
            kind=kind,
            done=True,
            percent=100,
            device=self._arranged.places.get(hold.place),
            mark=mark if self._mark is not None else None,
        )

    def _shown_host(self, host: contract.Host) -> contract.Host:
        ports = tuple(
            port
            if port.device_id is None
            else replace(port, device_id=self._place_of(port.device_id) or port.device_id)
            for port in host.ports
        )
        return replace(host, ports=ports)

    def _place_of(self, device_id: str) -> str | None:
        return next(
            (place for place, occupant in self._arranged.occupants.items() if occupant == device_id), None
        )


def _is_on(device: contract.Device, host_id: str) -> bool:
    return device.connection is not None and device.connection.host_id == host_id
