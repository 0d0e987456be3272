"""The devices of a site, instead of the lab's electrician: the fabric's adapter plugs them in and takes them out.

Only what the file lists is ever named to the fabric, and of that only the devices assigned to the running test.
"""

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lab import chassis, errors, waiting

from drawbar.fabric import contract
from drawbar.fabric import errors as fabric_errors
from field import configuration

MARK = "drawbar-hil"
POLL_SECONDS = 0.2


class Assigned:
    """The devices assigned to the running test; `FabricDevices` takes from it."""

    def __init__(self) -> None:
        self._devices: list[configuration.Device] = []

    def fill(self, devices: Sequence[configuration.Device]) -> None:
        """Hand out these devices from now on, in this order."""
        self._devices = list(devices)

    def take(self, device_class: str) -> configuration.Device:
        """Hand out the next device of a class, or of any class where the class is empty.

        Raises:
            errors.LabError: no further device is assigned to the test.
        """
        for device in self._devices:
            if device_class in ("", device.device_class):
                self._devices.remove(device)
                return device
        raise errors.LabError(f"no further device of class {device_class or 'any'} is assigned to this test")


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A device of any class, under the name that a test gave it."""

    name: str
    serial: str
    device_class: str


class FabricDevices:
    """The listed devices, and the one host that they may go to."""

    def __init__(
        self,
        adapter: contract.FabricAdapter,
        site: configuration.Site,
        inventory: contract.Inventory,
        assigned: Assigned,
    ) -> None:
        self._adapter, self._site, self._assigned = adapter, site, assigned
        self._serials = {device.id: device.serial or "" for device in inventory.devices}
        self._ids: dict[str, str] = {}

    def card(self, name: str) -> Card:
        """Return the next assigned device, of any class."""
        listed = self._take_device(name, "")
        return Card(name=name, serial=self._serials[listed.id], device_class=listed.device_class)

    async def disk(self, name: str) -> chassis.Disk:
        """Return the next assigned NVMe disk; there is no file of its content."""
        listed = self._take_device(name, "nvme")
        return chassis.Disk(name=name, serial=self._serials[listed.id], file=Path())

    def _take_device(self, name: str, device_class: str) -> configuration.Device:
        listed = self._assigned.take(device_class)
        self._ids[name] = listed.id
        return listed

    def where(self, port: str) -> dict[str, str]:
        """Return what the node is to say of a port's position: nothing, since the fabric chooses the port."""
        del port
        return {}

    async def plug(self, card: Card | chassis.Card, port: str) -> None:
        """Attach the device to the site's host, at a port that the fabric chooses; return when it is done.

        Raises:
            errors.LabError: the fabric could not.
        """
        del port
        await self._begin(
            contract.AttachRequest(
                request_id=str(uuid.uuid4()),
                device_id=self._ids[card.name],
                host_id=self._site.node.host,
                mark=MARK,
            )
        )

    async def out(self, card: Card | chassis.Card) -> None:
        """Detach a device that its node has let go of; return when the fabric reports it as free.

        Raises:
            errors.LabError: the fabric could not.
        """
        await self.detach(self._ids[card.name])

    async def detach(self, device_id: str) -> None:
        """Detach a device by the fabric's own name; return when its host does not have it any more."""
        await self._begin(
            contract.DetachRequest(
                request_id=str(uuid.uuid4()),
                device_id=device_id,
                host_id=self._site.node.host,
                host_prepared=True,
            )
        )
        await waiting.until(
            self.list_attached_devices, lambda there: device_id not in there, self._site.detach_seconds
        )

    async def list_attached_devices(self) -> tuple[str, ...]:
        """Return the listed devices that the site's host has, by the fabric's names."""
        inventory = await self._adapter.devices()
        connections = {
            listed.id: device.connection
            for listed in self._site.devices
            if (device := inventory.device(listed.id)) is not None
        }
        host = self._site.node.host
        return tuple(name for name, seen in connections.items() if seen is not None and seen.host_id == host)

    async def _begin(self, request: contract.AttachRequest | contract.DetachRequest) -> None:
        """Make the request, and wait until the operation has ended."""
        attaches = isinstance(request, contract.AttachRequest)
        seconds = self._site.attach_seconds if attaches else self._site.detach_seconds
        what = f"the {'attach' if attaches else 'detach'} of {request.device_id}"
        try:
            async with asyncio.timeout(seconds):
                match request:
                    case contract.AttachRequest():
                        operation = await self._adapter.attach(request)
                    case contract.DetachRequest():
                        operation = await self._adapter.detach(request)
                while not operation.done:
                    await asyncio.sleep(operation.retry_after_seconds or POLL_SECONDS)
                    operation = await self._adapter.operation(operation_id=operation.id)
        except TimeoutError as error:
            raise errors.LabError(f"{what} took more than {seconds:.0f} s") from error
        except fabric_errors.FabricError as error:
            raise errors.LabError(f"{what} was refused: {error}") from error
        if operation.error is not None:
            raise errors.LabError(f"{what} failed: {operation.error.message}")
