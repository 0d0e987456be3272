"""A fabric as a manager shows it that does not know its hosts' slots, as most do not."""

import dataclasses
from collections.abc import AsyncGenerator, AsyncIterator

from drawbar.fabric import contract, wrapping


class SlotlessAdapter(wrapping.WrappingAdapter):
    """Another adapter, of which no port and no connection names its slot."""

    async def hosts(self) -> tuple[contract.Host, ...]:
        """Return the hosts."""
        return tuple(_host(host) for host in await super().hosts())

    async def devices(self) -> contract.Inventory:
        """Return the devices."""
        listed = await super().devices()
        return dataclasses.replace(listed, devices=tuple(_device(device) for device in listed.devices))

    def _translate(self, operation: contract.Operation) -> contract.Operation:
        return dataclasses.replace(operation, device=operation.device and _device(operation.device))

    async def _events(
        self, events: AsyncIterator[contract.WatchEvent]
    ) -> AsyncGenerator[contract.WatchEvent, None]:
        async for event in super()._events(events):
            match event:
                case contract.DeviceChanged(device=device):
                    yield dataclasses.replace(event, device=_device(device))
                case contract.HostChanged(host=host):
                    yield dataclasses.replace(event, host=_host(host))
                case _:
                    yield event


def _host(host: contract.Host) -> contract.Host:
    return dataclasses.replace(
        host, ports=tuple(dataclasses.replace(port, slot_hint=None) for port in host.ports)
    )


def _device(device: contract.Device) -> contract.Device:
    if device.connection is None:
        return device
    return dataclasses.replace(device, connection=dataclasses.replace(device.connection, slot_hint=None))
