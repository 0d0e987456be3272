"""An adapter with limits for the fabric's devices, hosts, ports and operations.

An adapter counts the bytes of its manager while it reads them. This module counts the resulting values, for all
adapters alike: a listing as a whole, and in a watch each new device or host. Beyond a limit the call ends with
`errors.Reason.LIMIT_EXCEEDED`, before any value is kept.
"""

from collections.abc import AsyncGenerator, AsyncIterator

from drawbar.fabric import budget, contract, wrapping


class LimitedAdapter(wrapping.WrappingAdapter):
    """An adapter around another adapter, with limits."""

    def __init__(
        self, adapter: contract.FabricAdapter, limits: budget.Limits, flow: budget.Flow, *, fabric: str
    ) -> None:
        """Wrap an adapter.

        Args:
            adapter: the adapter within.
            limits: of the fabric.
            flow: the balance for the events of its watches.
            fabric: the Fabric's name, for messages.
        """
        super().__init__(adapter)
        self._limits = limits
        self._flow = flow
        self._fabric = fabric
        # Ids as last listed or reported; of hosts with the number of their ports.
        self._devices: set[str] = set()
        self._ports: dict[str, int] = {}

    async def hosts(self) -> tuple[contract.Host, ...]:
        """Return all hosts, as the contract says."""
        listed = await super().hosts()
        ports = {host.id: len(host.ports) for host in listed}
        self._check_hosts(ports)
        self._ports = ports
        return listed

    async def devices(self) -> contract.Inventory:
        """Return all devices, as the contract says."""
        inventory = await super().devices()
        self._count(budget.Counted.DEVICES, len(inventory.devices))
        self._devices = {device.id for device in inventory.devices}
        return inventory

    async def operations(self) -> tuple[contract.Operation, ...]:
        """Return all remembered operations, as the contract says."""
        listed = await super().operations()
        self._count(budget.Counted.OPERATIONS, len(listed))
        return listed

    async def attach(self, request: contract.AttachRequest) -> contract.Operation:
        """Begin an attach, as the contract says."""
        self._flow.credit()
        return await super().attach(request)

    async def detach(self, request: contract.DetachRequest) -> contract.Operation:
        """Begin a detach, as the contract says."""
        self._flow.credit()
        return await super().detach(request)

    async def create_slice(self, request: contract.CreateSliceRequest) -> contract.Operation:
        """Begin to make a slice, as the contract says."""
        self._flow.credit()
        return await super().create_slice(request)

    async def delete_slice(self, request: contract.DeleteSliceRequest) -> contract.Operation:
        """Begin to delete a slice, as the contract says."""
        self._flow.credit()
        return await super().delete_slice(request)

    async def _events(
        self, events: AsyncIterator[contract.WatchEvent]
    ) -> AsyncGenerator[contract.WatchEvent, None]:
        async for event in events:
            self._flow.take()
            match event:
                case contract.DeviceChanged(device=device):
                    self._count(budget.Counted.DEVICES, len(self._devices) + (device.id not in self._devices))
                    self._devices.add(device.id)
                case contract.DeviceGone(device_id=device_id):
                    self._devices.discard(device_id)
                case contract.HostChanged(host=host) if self._ports.get(host.id) != len(host.ports):
                    ports = {**self._ports, host.id: len(host.ports)}
                    self._check_hosts(ports)
                    self._ports = ports
                case _:
                    pass
            yield event

    def _check_hosts(self, ports: dict[str, int]) -> None:
        self._count(budget.Counted.HOSTS, len(ports))
        self._count(budget.Counted.PORTS, sum(ports.values()))

    def _count(self, counted: budget.Counted, number: int) -> None:
        budget.Listing(self._limits, self._fabric).count(counted, number)
