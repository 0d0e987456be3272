"""The external effects of a connection: devices in the hosts' mocked /sys trees, and entries in the journal."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from drawbar.fabric import contract, errors
from drawbar.mocks.fabric import journal, slots
from drawbar.mocks.redfish import devices, numbers, paths
from drawbar.mocks.redfish.configuration import Configuration, Device, Enclosure

log = logging.getLogger(__name__)

MIB = 1 << 20

Connections = Mapping[str, Sequence[str]]
"""By device the hosts that have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    device_id: str
    host_id: str
    is_attach: bool


class Wiring:
    """The hosts' slots, which are changed one after the other, after the connection that they follow."""

    def __init__(self, configuration: Configuration, written: journal.Journal) -> None:
        self._journal = written
        # As the adapter names them.
        self._names = {
            device.id: paths.device_name(enclosure, device, configuration)
            for enclosure in configuration.enclosures
            for device in enclosure.devices
        }
        self._devices = {
            device.id: _device(enclosure, device)
            for enclosure in configuration.enclosures
            for device in enclosure.devices
        }
        self._slots = slots.Slots({host.id: Path(host.sysfs) for host in configuration.hosts if host.sysfs})
        self._used: dict[tuple[str, str], int] = {}
        self._steps: asyncio.Queue[_Step] = asyncio.Queue()

    def follow_change(self, before: Connections, after: Connections, *, request: str, began: float) -> None:
        """Follow a change of the connections.

        Args:
            before: the change.
            after: the change.
            request: names the one that asked for it.
            began: when, in seconds since 1970.
        """
        # A slice is in no mocked tree.
        for device_id in (before.keys() | after.keys()) & self._devices.keys():
            former, present = set(before.get(device_id, ())), set(after.get(device_id, ()))
            for host_id in (*sorted(former - present), *sorted(present - former)):
                step = _Step(device_id=device_id, host_id=host_id, is_attach=host_id in present)
                self._write(step, request, began)
                self._steps.put_nowait(step)

    def _write(self, step: _Step, request: str, began: float) -> None:
        kind = contract.OperationKind.ATTACH if step.is_attach else contract.OperationKind.DETACH
        moments: tuple[tuple[journal.Event, float], ...] = (("started", began), ("finished", time.time()))
        for event, at in moments:
            self._journal.write(
                event,
                kind,
                operation=request,
                request_id=None,
                device=self._names[step.device_id],
                host=step.host_id,
                at=at,
            )

    @contextlib.asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Change the slots while the block lasts."""
        task = asyncio.get_running_loop().create_task(self._follow(), name="slots")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _follow(self) -> None:
        while True:
            step = await self._steps.get()
            try:
                await self._carry_out(step)
            except errors.FabricError as error:
                log.error("%s", error)  # noqa: TRY400 - the sentence explains it

    async def _carry_out(self, step: _Step) -> None:
        key = step.host_id, step.device_id
        if not step.is_attach:
            await self._slots.unplug(step.host_id, str(self._used.pop(key)))
            return
        taken = {slot for (host_id, _), slot in self._used.items() if host_id == step.host_id}
        slot = self._used[key] = min(set(range(1, len(taken) + 2)) - taken)
        await self._slots.plug(step.host_id, str(slot), self._devices[step.device_id])


def _device(enclosure: Enclosure, device: Device) -> contract.Device:
    return contract.Device(
        id=device.id,
        device_class=contract.DeviceClass(device.kind),
        model=device.model,
        vendor=device.vendor,
        serial=numbers.serial(device),
        pci_vendor_id=int(devices.pci_ids(device)[0], 16),
        pci_device_id=int(devices.pci_ids(device)[1], 16),
        enclosure=enclosure.id,
        memory_bytes=device.memory_mib * MIB,
    )
