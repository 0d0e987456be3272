"""An adapter whose devices are the parts of a fabric's offers, in place of the manager's devices.

To the rest of the controller a part is a device: its name is the lock, and its connection is that of the device behind
it. A subclass for each kind of offer chooses the parts, and prepares a part for its attach.
"""

import asyncio
import dataclasses
import weakref
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping

from drawbar.driver.controller import names
from drawbar.driver.controller.offers import holdings
from drawbar.fabric import contract, wrapping


class RealisingAdapter(wrapping.KeepingAdapter):
    """Another adapter, with parts in place of devices.

    Changes of parts are reported by a call, not by the watch: a DeviceAttachment or an answer also changes them.

    Attributes:
        chooses: whether the fabric chooses the device itself, so that its parts stand for any device of a model.
        held: the cluster's holdings.
        parts: the shown parts, by name.
        contents: the device behind each part, by the part's name; none for a part that is free, or is not made yet.
        hidden: the ids of devices that are shown as parts.
        reserved: the ids of the manager's devices that look like names of parts; they are not shown.
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
        """Wrap an adapter.

        Args:
            adapter: the wrapped adapter.
            mark: our mark; None if the fabric keeps no marks.
            held: the cluster's holdings.
            report: called with each new, changed or lost part or device.
            withdraw: called with the name of each part or device that is no longer shown, and not lost.
        """
        super().__init__(adapter)
        self.held = held
        self.parts: Mapping[str, contract.Device] = {}
        self.contents: Mapping[str, contract.Device] = {}
        self.hidden: Collection[str] = frozenset()
        self.reserved: tuple[str, ...] = ()
        self._mark, self._report, self._withdraw = mark, report, withdraw
        # The locks of calls for parts that exclude each other.
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    @abstractmethod
    def _choose(self) -> None:
        """Choose the parts again."""

    @abstractmethod
    def withdrawn(self, expected: Collection[str]) -> frozenset[str]:
        """Return those of the expected parts that are gone, not only missing from a listing."""

    @abstractmethod
    def _find(self, request_id: str) -> holdings.Holding | None:
        """Return the part that a request attaches or detaches, or None for a plain device.

        Raises:
            errors.NotFound: there is no such part.
        """

    @abstractmethod
    def _lock(self, part: holdings.Holding) -> str:
        """Return the key by which calls for other parts exclude each other."""

    @abstractmethod
    async def _attach(self, request: contract.AttachRequest, part: holdings.Holding) -> contract.Operation:
        """Attach a part, after its preparation, and return the operation."""

    @abstractmethod
    async def _find_device(self, part: holdings.Holding, request_id: str) -> str | None:
        """Return the id of the device behind a part, before its detach, or None if there is none."""

    @property
    def listed_devices(self) -> Collection[contract.Device]:
        """Return the wrapped adapter's devices, as last listed or reported."""
        return self._devices.values()

    @property
    def visible_parts(self) -> tuple[contract.Device, ...]:
        """Return all parts, and the devices that are not shown as parts."""
        return (
            *(device for device in self.listed_devices if device.id not in self.hidden),
            *self.parts.values(),
        )

    def update_holdings(self, held: holdings.Holdings, *, arranges: bool = True) -> None:
        """Take in the cluster's present holdings."""
        before, self.held = self.held, held
        if arranges and held.parts is not before.parts:
            self.arrange()

    def arrange(self) -> None:
        """Arrange the parts again, and report the differences."""
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
        """Return all parts, and the devices that are not shown as parts."""
        listed = await self._read()
        self.arrange()
        return dataclasses.replace(listed, devices=self.visible_parts)

    async def attach(self, request: contract.AttachRequest) -> contract.Operation:
        """Attach a part, after its preparation, or a plain device; return the operation.

        Raises:
            FabricError: as in the contract.
        """
        part = self._find(request.request_id)
        if part is None:
            return await self._adapter.attach(request)
        async with self._locks.setdefault(self._lock(part), asyncio.Lock()):
            return await self._attach(request, part)

    async def detach(self, request: contract.DetachRequest) -> contract.Operation:
        """Detach the device behind a part, or a plain device; return success if there is none."""
        part = self._find(request.request_id)
        if part is None:
            return await self._adapter.detach(request)
        async with self._locks.setdefault(self._lock(part), asyncio.Lock()):
            device_id = await self._find_device(part, request.request_id)
            if device_id is None:
                return self._build_done(request.request_id, contract.OperationKind.DETACH, part)
            before = dict(self._devices)
            return self._view_answer(
                await self._adapter.detach(dataclasses.replace(request, device_id=device_id)), before
            )

    async def _read_and_arrange(self) -> None:
        await self._read()
        self.arrange()

    def _view_answer(
        self, operation: contract.Operation, before: Mapping[str, contract.Device]
    ) -> contract.Operation:
        """Return the caller's view of an answer to a call that was made with the devices `before`."""
        del before
        return self._translate(operation)

    def _build_done(
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
