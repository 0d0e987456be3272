"""The operator's console of the simulated fabric manager, outside the contract of its callers."""

import asyncio

from drawbar.fabric import contract, errors
from drawbar.mocks.fabric import faults, slots
from drawbar.mocks.fabric.configuration import HostSpec
from drawbar.mocks.fabric.history import History
from drawbar.mocks.fabric.works import Works
from drawbar.mocks.fabric.world import World


class Console:
    """Changes to a running fabric. Each preserves the world's invariants.

    Attributes:
        awake: unset while the manager is silent: calls and watches get no answer, and operations go on.
    """

    def __init__(
        self, world: World, works: Works, deck: faults.Deck, host_slots: slots.Slots, history: History
    ) -> None:
        self._world = world
        self._works = works
        self._deck = deck
        self._host_slots = host_slots
        self._history = history
        self._forgotten: dict[str, contract.Connection] = {}
        self.awake = asyncio.Event()
        self.awake.set()

    async def surprise_detach(self, device_id: str) -> None:
        """Disconnect a device without a request; a free one stays free.

        Raises:
            NotFound: no such device.
            Aborted: the device has an operation in flight.
        """
        connection = self._world.reserve(device_id)
        if connection is None:
            self._world.release(device_id)
            return
        kind = contract.OperationKind.DETACH
        self._works.note("started", kind, device_id, connection.host_id)
        try:
            await self._host_slots.unplug(connection.host_id, connection.port_id, surprise=True)
        finally:
            self._world.take_away(device_id)
            self._works.save()
            self._works.note("finished", kind, device_id, connection.host_id)

    def forget_connection(self, device_id: str) -> None:
        """Show an attached device as free, as a manager with lost state does; a free one stays free.

        Raises:
            NotFound: no such device.
            Aborted: the device has an operation in flight.
        """
        connection = self._world.reserve(device_id)
        self._world.take_away(device_id)
        if connection is not None:
            self._forgotten[device_id] = connection
        self._works.save()

    def recall_connection(self, device_id: str) -> None:
        """Restore a device's forgotten connection.

        Raises:
            NotFound: no such device, or its connection was not forgotten.
            Aborted: the device has an operation in flight.
            FailedPrecondition: IN_USE, PORT_IN_USE.
        """
        stock, forgotten = self._world.stock, self._forgotten.get(device_id)
        connection = self._world.reserve(device_id)
        try:
            if forgotten is None:
                raise errors.NotFound(f"the connection of device {device_id} was not forgotten")
            if connection is not None:
                raise errors.FailedPrecondition(
                    f"device {device_id} is attached to host {connection.host_id} meanwhile",
                    reason=errors.Reason.IN_USE,
                    host_id=connection.host_id,
                )
            assert forgotten.port_id is not None
            port = stock.usable_port(forgotten.host_id, forgotten.port_id)
            stock.connect(device_id, forgotten.host_id, port, forgotten.request_id, forgotten.mark)
            del self._forgotten[device_id]
        finally:
            self._world.release(device_id)
            self._works.save()

    async def foreign_attach(self, device_id: str, host_id: str, *, mark: str | None = None) -> None:
        """Connect a device as another cluster's request does, under that cluster's mark if given.

        Raises:
            NotFound: no such device or host.
            Aborted: the device has an operation in flight.
            FailedPrecondition: IN_USE.
            ResourceExhausted: NO_FREE_PORT.
        """
        stock = self._world.stock
        stock.known_host(host_id)
        if not stock.reaches(stock.device(device_id), host_id):
            raise stock.unreachable(device_id, host_id)
        port = stock.free_port(host_id)
        connection = self._world.reserve(device_id)
        try:
            if connection is not None:
                raise errors.FailedPrecondition(
                    f"device {device_id} is attached to host {connection.host_id}; detach it there first",
                    reason=errors.Reason.IN_USE,
                    host_id=connection.host_id,
                )
            stock.reserve(host_id, port, device_id)
            kind = contract.OperationKind.ATTACH
            self._works.note("started", kind, device_id, host_id)
            try:
                await self._host_slots.plug(host_id, port, stock.device(device_id))
            except BaseException:
                stock.give_back(host_id, port)
                raise
            stock.connect(device_id, host_id, port, None, mark)
            self._works.note("finished", kind, device_id, host_id)
        finally:
            self._world.release(device_id)
            self._works.save()

    def add_host(self, host: HostSpec) -> None:
        """Add a host; an existing one of the id is kept."""
        self._world.stock.add_host(host)

    def add_device(self, device: contract.Device) -> None:
        """Put a device into its enclosure.

        Raises:
            AlreadyExists: there is one of that id.
        """
        self._world.stock.add(device)
        self._works.save()

    async def remove_device(self, device_id: str) -> None:
        """Take a device out of its enclosure, and off its host.

        Raises:
            NotFound: no such device.
            Aborted: the device has an operation in flight.
        """
        await self.surprise_detach(device_id)
        self._world.reserve(device_id)
        self._world.release(device_id)
        self._world.remove(device_id)
        self._forgotten.pop(device_id, None)
        self._works.save()

    def set_health(self, device_id: str, health: contract.Health) -> None:
        """Set the health of a device.

        Raises:
            NotFound: no such device.
        """
        self._world.stock.set_health(device_id, health)
        self._works.save()

    def set_port(self, host_id: str, port_id: str, *, faulty: bool) -> None:
        """Set or clear the fault of a port; a device on it stays.

        Raises:
            NotFound: no such host or port.
        """
        self._world.stock.set_port(host_id, port_id, faulty=faulty)
        self._works.save()

    async def forget_operations(self) -> None:
        """Restart the manager without its operations; cancel those in flight if possible. Watchers list again."""
        self._world.forget()
        await self._works.cancel_all()
        self._history.resync()
        self._works.save()

    def pause(self) -> None:
        """Stop answering calls and watches."""
        self.awake.clear()

    def resume(self) -> None:
        """Answer again, including calls made meanwhile."""
        self.awake.set()

    def resync(self) -> None:
        """Make all watchers list again."""
        self._history.resync()

    def add_fault(self, fault: faults.Fault) -> None:
        """Add a fault.

        Raises:
            InvalidArgument: it names an unknown device or host, or a number is out of range.
        """
        stock = self._world.stock
        problems = faults.problems(
            fault,
            devices=frozenset(device.id for device in stock.devices()),
            hosts=frozenset(host.id for host in stock.hosts()),
        )
        if problems:
            raise errors.InvalidArgument("; ".join(problems))
        self._deck.faults.append(fault)

    def clear_faults(self) -> None:
        """Remove all faults."""
        self._deck.clear()
        self._works.save()
