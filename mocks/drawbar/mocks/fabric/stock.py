"""The current hardware of a simulated fabric: devices, ports, and the device on each port.

Invariants: a port carries or is reserved for at most one device; a device is on at most one port; every change of
either is in the history.
"""

from collections.abc import Callable
from dataclasses import replace

from drawbar.fabric import contract, errors
from drawbar.mocks import identities
from drawbar.mocks.fabric import configuration as configurations
from drawbar.mocks.fabric import records
from drawbar.mocks.fabric.history import History


class Stock:
    """Hosts and devices. All methods are synchronous."""

    def __init__(
        self, configuration: configurations.Configuration, state: records.State, history: History
    ) -> None:
        self._history = history
        self._configuration = configuration
        self._hosts = {spec.id: spec for spec in configuration.hosts}
        self._devices: dict[str, contract.Device] = {}
        self._ports: dict[tuple[str, str], str] = {}
        self._revisions = dict(state.revisions)
        self._added = {
            device.id: device for device in state.added if device.id not in configuration.device_ids()
        }
        self._removed = {device_id for device_id in state.removed if device_id in configuration.device_ids()}
        self._healths = dict(state.healths)
        self.faulty = set(state.faulty_ports)
        configured = [configurations.device(enclosure, spec) for enclosure, spec in configuration.devices()]
        for device in (*configured, *self._added.values()):
            if device.id not in self._removed:
                self._take_over(device, state.connections.get(device.id))
        for device in tuple(self._devices.values()):
            if device.carving is not None:
                held = sum(made.memory_bytes for made in self.slices(device.id))
                free = replace(device.carving, free_bytes=device.memory_bytes - held)
                self._devices[device.id] = replace(device, carving=free)

    def _take_over(self, device: contract.Device, connection: contract.Connection | None) -> None:
        """Add a device with its saved state; drop its connection if the configuration no longer has the host."""
        if connection is not None and connection.host_id not in self._hosts:
            connection = None
        self._devices[device.id] = replace(
            device,
            connection=connection,
            health=self._healths.get(device.id, device.health),
            etag=str(self._revisions.get(device.id, 0)),
        )
        if connection is not None and connection.port_id is not None:
            self._ports[connection.host_id, connection.port_id] = device.id

    # --- reading ---

    def devices(self) -> tuple[contract.Device, ...]:
        """Return all devices."""
        return tuple(self._devices.values())

    @staticmethod
    def unreachable(device_id: str, host_id: str) -> errors.FailedPrecondition:
        """Return the error of an attach to a host that the fabric does not connect with the device."""
        return errors.FailedPrecondition(
            f"host {host_id} cannot have device {device_id}: the fabric does not connect them; choose another host",
            reason=errors.Reason.INCOMPATIBLE,
            host_id=host_id,
        )

    @staticmethod
    def check_free(device: contract.Device) -> None:
        """Check that the device is not attached.

        Raises:
            FailedPrecondition: IN_USE.
        """
        if device.connection is not None:
            raise errors.FailedPrecondition(
                f"device {device.id} is attached to host {device.connection.host_id}; detach it there first",
                reason=errors.Reason.IN_USE,
                host_id=device.connection.host_id,
            )

    def hosts(self) -> tuple[contract.Host, ...]:
        """Return all hosts."""
        return tuple(self.host(host_id) for host_id in self._hosts)

    def has(self, device_id: str) -> bool:
        """Return true if there is such a device."""
        return device_id in self._devices

    def has_host(self, host_id: str) -> bool:
        """Return true if there is such a host."""
        return host_id in self._hosts

    def device(self, device_id: str) -> contract.Device:
        """Return a device.

        Raises:
            NotFound: there is none of that id.
        """
        try:
            return self._devices[device_id]
        except KeyError:
            raise errors.NotFound(f'the fabric has no device "{errors.cut(device_id, 128)}"') from None

    def known_host(self, host_id: str) -> str:
        """Return the id if there is such a host.

        Raises:
            NotFound: there is none.
        """
        if host_id not in self._hosts:
            raise errors.NotFound(f'the fabric has no host "{errors.cut(host_id, 128)}"')
        return host_id

    def port_ids(self, host_id: str) -> tuple[str, ...]:
        """Return the ids of a host's ports."""
        return tuple(str(number + 1) for number in range(self._hosts[host_id].ports))

    def on_port(self, host_id: str, port_id: str) -> str | None:
        """Return the id of the device on a port, or of the device with a reservation; None if the port is free."""
        return self._ports.get((host_id, port_id))

    def usable_port(self, host_id: str, port_id: str) -> str:
        """Return the port's id if a device can be connected to it.

        Raises:
            NotFound: the host has no such port.
            FailedPrecondition: the port carries a device, or is at fault.
        """
        if port_id not in self.port_ids(host_id):
            raise errors.NotFound(f'host {host_id} has no port "{errors.cut(port_id, 128)}"')
        if (attached := self.on_port(host_id, port_id)) is not None:
            raise errors.FailedPrecondition(
                f"port {port_id} of host {host_id} carries device {attached}",
                reason="PORT_IN_USE",
                host_id=host_id,
            )
        if (host_id, port_id) in self.faulty:
            raise errors.FailedPrecondition(
                f"port {port_id} of host {host_id} is at fault", reason="PORT_FAULT", host_id=host_id
            )
        return port_id

    def free_port(self, host_id: str) -> str:
        """Return the id of the first usable port of a host.

        Raises:
            ResourceExhausted: NO_FREE_PORT.
        """
        for port_id in self.port_ids(host_id):
            if (host_id, port_id) not in self._ports and (host_id, port_id) not in self.faulty:
                return port_id
        raise errors.ResourceExhausted(
            f"host {host_id} has no free port", reason=errors.Reason.NO_FREE_PORT, host_id=host_id
        )

    def host(self, host_id: str) -> contract.Host:
        """Return a host."""
        spec = self._hosts[host_id]
        name = spec.name or spec.id
        return contract.Host(
            id=spec.id,
            name=name,
            identifiers={"hostname": name, **spec.identifiers},
            ports=tuple(self._port(host_id, port_id) for port_id in self.port_ids(host_id)),
            reach_groups=configurations.reach_groups(self._configuration, host_id),
        )

    def reaches(self, device: contract.Device, host_id: str) -> bool:
        """Return true if the device's enclosure is cabled to the host."""
        groups = configurations.reach_groups(self._configuration, host_id)
        return contract.reaches(device.reach_groups, groups)

    def state(self) -> records.State:
        """Return the hardware's part of the saved state."""
        return records.State(
            connections={
                device.id: device.connection for device in self._devices.values() if device.connection
            },
            revisions=dict(self._revisions),
            added=tuple(self._added.values()),
            removed=tuple(sorted(self._removed)),
            healths=dict(self._healths),
            faulty_ports=tuple(sorted(self.faulty)),
        )

    # --- changing ---

    def reserve(self, host_id: str, port_id: str, device_id: str) -> None:
        """Reserve a port for a device."""
        self._ports[host_id, port_id] = device_id

    def give_back(self, host_id: str, port_id: str) -> None:
        """End an unused reservation."""
        self._ports.pop((host_id, port_id), None)
        self.tell_host(host_id)

    def connect(
        self, device_id: str, host_id: str, port_id: str, request_id: str | None, mark: str | None = None
    ) -> None:
        """Connect a device to a port that is free or reserved for it."""
        self._ports[host_id, port_id] = device_id
        connection = contract.Connection(
            host_id=host_id,
            port_id=port_id,
            slot_hint=self._slot_of(port_id),
            request_id=request_id,
            mark=mark,
        )
        self._change(device_id, lambda device: replace(device, connection=connection))
        self.tell_host(host_id)

    def disconnect(self, device_id: str) -> None:
        """Disconnect a device from its port, if it is on one."""
        connection = self._devices[device_id].connection
        if connection is None:
            return
        if connection.port_id is not None:
            self._ports.pop((connection.host_id, connection.port_id), None)
        self._change(device_id, lambda device: replace(device, connection=None))
        self.tell_host(connection.host_id)

    def add_host(self, spec: configurations.HostSpec) -> None:
        """Add a host; an existing one of the id is kept."""
        if spec.id not in self._hosts:
            self._hosts[spec.id] = spec
            self.tell_host(spec.id)

    def add(self, device: contract.Device) -> None:
        """Put a device into its enclosure.

        Raises:
            AlreadyExists: there is one of that id.
        """
        if device.id in self._devices:
            raise errors.AlreadyExists(f"the fabric has a device {device.id} already; give another id")
        device = replace(
            device, reach_groups=configurations.enclosure_groups(self._configuration, device.enclosure)
        )
        self._added[device.id] = device
        self._removed.discard(device.id)
        self._devices[device.id] = device
        self._change(device.id, lambda fresh: fresh)

    def carve(self, request: contract.CreateSliceRequest, *, keeps_marks: bool) -> contract.Device:
        """Make a slice of a device with enough free memory; return the slice."""
        origin = self._devices[request.device_id]
        made = contract.Slice(
            origin_id=origin.id,
            request_id=request.request_id,
            mark=request.mark if keeps_marks else None,
        )
        # A device's revision is never reused, and so neither is the id.
        number = self._revisions.get(origin.id, 0) + 1
        serial = _serial_of_slice(origin.serial, number)
        device = replace(
            origin,
            id=f"{origin.id}-slice-{number}",
            serial=serial,
            identifiers=identities.defaults(origin.device_class, serial or ""),
            memory_bytes=request.memory_bytes,
            slice_of=made,
            carving=None,
            connection=None,
        )
        self.add(device)
        self._change_free_memory(origin.id, -request.memory_bytes)
        return self._devices[device.id]

    def merge(self, slice_id: str) -> None:
        """Return the memory of an unconnected slice to its device, and remove the slice."""
        device = self._devices[slice_id]
        assert device.slice_of is not None
        self.remove(slice_id)
        if device.slice_of.origin_id in self._devices:
            self._change_free_memory(device.slice_of.origin_id, device.memory_bytes)

    def slices(self, origin_id: str) -> tuple[contract.Device, ...]:
        """Return the slices of a device."""
        return tuple(
            device
            for device in self._devices.values()
            if device.slice_of is not None and device.slice_of.origin_id == origin_id
        )

    def _change_free_memory(self, origin_id: str, bytes_back: int) -> None:
        def edit(device: contract.Device) -> contract.Device:
            assert device.carving is not None
            free = device.carving.free_bytes + bytes_back
            return replace(device, carving=replace(device.carving, free_bytes=free))

        self._change(origin_id, edit)

    def remove(self, device_id: str) -> None:
        """Take an unconnected device out of its enclosure."""
        del self._devices[device_id]
        if self._added.pop(device_id, None) is None:
            self._removed.add(device_id)
        self._healths.pop(device_id, None)
        self._history.device_gone(device_id)

    def set_health(self, device_id: str, health: contract.Health) -> None:
        """Set the health of a device.

        Raises:
            NotFound: no such device.
        """
        self.device(device_id)
        self._healths[device_id] = health
        self._change(device_id, lambda device: replace(device, health=health))

    def set_port(self, host_id: str, port_id: str, *, faulty: bool) -> None:
        """Set or clear the fault of a port; a device on it stays.

        Raises:
            NotFound: no such host or port.
        """
        if port_id not in self.port_ids(self.known_host(host_id)):
            raise errors.NotFound(f'host {host_id} has no port "{errors.cut(port_id, 128)}"')
        (self.faulty.add if faulty else self.faulty.discard)((host_id, port_id))
        self.tell_host(host_id)

    def tell_host(self, host_id: str) -> None:
        """Record the present state of a host in the history."""
        self._history.host_changed(self.host(host_id))

    def _change(self, device_id: str, edit: Callable[[contract.Device], contract.Device]) -> None:
        self._revisions[device_id] = self._revisions.get(device_id, 0) + 1
        device = replace(edit(self._devices[device_id]), etag=str(self._revisions[device_id]))
        self._devices[device_id] = device
        self._history.device_changed(device)

    def _slot_of(self, port_id: str) -> str | None:
        return port_id if self._configuration.names_slots else None

    def _port(self, host_id: str, port_id: str) -> contract.Port:
        device_id = self._ports.get((host_id, port_id))
        state = contract.PortState.USED if device_id else contract.PortState.FREE
        if (host_id, port_id) in self.faulty:
            state = contract.PortState.FAULT
        return contract.Port(id=port_id, state=state, device_id=device_id, slot_hint=self._slot_of(port_id))


def _serial_of_slice(serial: str | None, number: int) -> str | None:
    """Return a serial number for a slice, in its device's format; that of CXL memory is a number."""
    if serial is None:
        return None
    try:
        return f"{int(serial, 16) + number:#x}"
    except ValueError:
        return f"{serial}-{number}"
