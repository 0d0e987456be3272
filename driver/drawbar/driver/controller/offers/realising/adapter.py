"""The adapter of a fabric whose offers are not its devices, as an adapter whose devices are the parts.

To the rest of the controller a part is a device: its name is the lock, and its connection is that of the device that it is. A
subclass for each kind of offer chooses the parts, and does what a part needs before its attach.
"""

import asyncio
import weakref
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from drawbar.driver.controller import names
from drawbar.driver.controller.offers import holdings
from drawbar.fabric import contract, wrapping


class RealisingAdapter(wrapping.KeepingAdapter):
    """Another adapter, with parts in place of devices.

    Changes of parts are reported by a call, not by the watch: a DeviceAttachment or an answer changes them, too.

    Attributes:
        chooses: the fabric chooses the device itself, so that its parts stand for any device of a model.
        held: what the cluster holds.
        parts: as they are shown, by name.
        occupants: by the name of a part the device that it is; none for a part that is free, or is not made yet.
        hidden: ids of devices that are shown as parts.
        reserved: ids of the manager's devices that look like names of parts; they are not shown.
    """

    chooses = False

    def __init__(
        self,
        adapter: contract.FabricAdapter,
        mark: str | None,
        *,
        held: holdings.Holdings,
        report: Callable[[contract.WatchEvent], None],
        withdraw: Callable[[str], None],
    ) -> None:
        """Stand before an adapter.

        Args:
            adapter: the adapter within.
            mark: ours; None where the fabric keeps no marks.
            held: what the cluster holds.
            report: called with each part, or device, that is shown now, different or lost.
            withdraw: called with the name of each that is not shown any more, and not lost.
        """
        super().__init__(adapter)
        self.held = held
        self.parts: Mapping[str, contract.Device] = {}
        self.occupants: Mapping[str, contract.Device] = {}
        self.hidden: Collection[str] = frozenset()
        self.reserved: tuple[str, ...] = ()
        self._mark, self._report, self._withdraw = mark, report, withdraw
        # By what calls for parts exclude each other.
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    @abstractmethod
    def _choose(self) -> None:
        """Choose the parts anew."""

    @abstractmethod
    def withdrawn(self, expected: Collection[str]) -> frozenset[str]:
        """Return those of the expected parts that are gone, and not only missing from a listing."""

    @abstractmethod
    def _find(self, request_id: str) -> holdings.Holding | None:
        """Return the part that a request is to attach or detach; None for a device that is a part as it is.

        Raises:
            errors.NotFound: there is no such part.
        """

    @abstractmethod
    def _lock(self, part: holdings.Holding) -> str:
        """Return what calls for other parts exclude each other by."""

    @abstractmethod
    async def _attach(self, request: contract.AttachRequest, part: holdings.Holding) -> contract.Operation:
        """Attach a part, with all that it needs before."""

    @abstractmethod
    async def _find_device(self, part: holdings.Holding, request_id: str) -> str | None:
        """Return the id of the device that a part is, before its detach; None where there is none."""

    @property
    def listed(self) -> Collection[contract.Device]:
        """The devices within, as last listed or reported."""
        return self._devices.values()

    @property
    def shown(self) -> tuple[contract.Device, ...]:
        """All parts, and the devices that are none."""
        return (*(device for device in self.listed if device.id not in self.hidden), *self.parts.values())

    def hold(self, held: holdings.Holdings, *, arranges: bool = True) -> None:
        """Take over what the cluster holds now."""
        before, self.held = self.held, held
        if arranges and held.parts is not before.parts:
            self.arrange()

    def arrange(self) -> None:
        """Arrange the parts anew, and report what is different."""
        parts, hidden = self.parts, self.hidden
        self._choose()
        for name in parts.keys() - self.parts.keys():
            if name in self.held.parts:
                self._report(contract.DeviceGone(version="", device_id=name))
            else:
                self._withdraw(name)
        for device_id in set(self.hidden).difference(hidden):
            self._withdraw(names.label(device_id))
        for device_id in set(hidden).difference(self.hidden):
            if device_id in self._devices:
                self._report(contract.DeviceChanged(version="", device=self._devices[device_id]))
        for name, part in self.parts.items():
            if parts.get(name) != part:
                self._report(contract.DeviceChanged(version="", device=part))

    async def devices(self) -> contract.Inventory:
        """Return all parts, and the devices that are none."""
        listed = await self._read()
        self.arrange()
        return replace(listed, devices=self.shown)

    async def attach(self, request: contract.AttachRequest) -> contract.Operation:
        """Attach a part, with all that it needs before; or a device that is none.

        Raises:
            FabricError: as the contract says.
        """
        part = self._find(request.request_id)
        if part is None:
            return await self._adapter.attach(request)
        async with self._locks.setdefault(self._lock(part), asyncio.Lock()):
            return await self._attach(request, part)

    async def detach(self, request: contract.DetachRequest) -> contract.Operation:
        """Detach the device that a part is, or one that is none; success where there is none."""
        part = self._find(request.request_id)
        if part is None:
            return await self._adapter.detach(request)
        async with self._locks.setdefault(self._lock(part), asyncio.Lock()):
            device_id = await self._find_device(part, request.request_id)
            if device_id is None:
                return self._done(request.request_id, contract.OperationKind.DETACH, part)
            before = dict(self._devices)
            return self._answered(await self._adapter.detach(replace(request, device_id=device_id)), before)

    async def _read_and_arrange(self) -> None:
        await self._read()
        self.arrange()

    def _answered(
        self, operation: contract.Operation, before: Mapping[str, contract.Device]
    ) -> contract.Operation:
        """Return what the caller sees of an answer to a call that was made with the devices `before`."""
        del before
        return self._shown(operation)

    def _done(
        self, request_id: str, kind: contract.OperationKind, part: holdings.Holding, mark: str | None = None
    ) -> contract.Operation:
        """Return an operation that had nothing to do."""
        return contract.Operation(
            id=f"done-{request_id}",
            request_id=request_id,
            kind=kind,
            done=True,
            percent=100,
            device=self.parts.get(part.name),
            mark=mark,
        )
