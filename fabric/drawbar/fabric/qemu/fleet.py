"""All virtual machines and the pool together: one reading of everything, and the attaches and detaches."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from drawbar.fabric import backoff, budget, contract, errors, judgement
from drawbar.fabric.history import History
from drawbar.fabric.notes import Note
from drawbar.fabric.qemu import configuration, hotplug, machine, pool, ports, qmp, sights
from drawbar.fabric.works import Report

CLOSING_SECONDS = 1.0
CLOSING_LOOK_SECONDS = 0.02
# QEMU 7.2 sends no event when it has deleted CXL memory, so a detach looks again without an event too.
LOOK_AGAIN_SECONDS_MIN = 0.05
LOOK_AGAIN_SECONDS_MAX = 0.5


class Fleet:
    """The fabric behind the adapter; `works.Backend`.

    Attributes:
        models: the pool, by device id.
        machines: the virtual machines, by host id.
    """

    def __init__(
        self,
        described: configuration.Configuration,
        *,
        on_event: Callable[[], None],
        flow: budget.Flow,
        answer_seconds: float = machine.ANSWER_SECONDS,
    ) -> None:
        self.models: Mapping[str, pool.Model] = MappingProxyType(
            {model.id: model for model in described.devices}
        )
        self.machines: Mapping[str, machine.Machine] = MappingProxyType(
            {
                spec.id: machine.Machine(spec, on_event=self._event, flow=flow, answer_seconds=answer_seconds)
                for spec in described.hosts
            }
        )
        self.history = History()
        self.pending: dict[str, tuple[str, str] | None] = {}
        self._on_event = on_event
        self._detach_seconds = described.detach_seconds
        self._events = asyncio.Event()
        self._lock = asyncio.Lock()
        self._hosts: Mapping[str, sights.Host] = {}

    @contextlib.asynccontextmanager
    async def looking(self) -> AsyncIterator[Mapping[str, sights.Host]]:
        """Read all virtual machines and publish the result; no other task reads or decides until the block ends.

        Raises:
            Unavailable, PermissionDenied: a virtual machine cannot be read, so the place of a device is unknown.
        """
        async with self._lock:
            try:
                # One after the other: each takes milliseconds.
                hosts = [
                    self._remember_host(await self._look(virtual_machine))
                    for virtual_machine in self.machines.values()
                ]
            except errors.FabricError as trouble:
                self.history.interrupt(trouble)
                raise
            self._hosts = {host.id: host for host in hosts}
            self.publish()
            yield self._hosts

    def publish(self) -> None:
        """Publish the last reading and the pending operations to watchers."""
        locations = sights.find_locations(self._hosts.values())
        self.history.publish(
            tuple(_device(model, locations.get(model.id)) for model in self.models.values()),
            tuple(self._host(host) for host in self._hosts.values()),
        )

    def judge(self, request: judgement.Request) -> judgement.Stay | judgement.Begin:
        """Return the decision on a request; see `works.Backend`."""
        devices, busy = self.history.devices, self.pending.keys()
        match request:
            case contract.AttachRequest():
                return judgement.attach(
                    request, devices, self._hosts, busy=busy, choose_port=self._port, reaches=_reaches
                )
            case contract.DetachRequest():
                return judgement.detach(request, devices, self._hosts, busy=busy)
            case _:
                raise errors.Unimplemented("QEMU makes no slices of devices")

    async def carry_out(
        self,
        request: judgement.Request,
        begun: judgement.Begin,
        report: Report,  # noqa: ARG002 - QEMU reports no progress
    ) -> None:
        """Make the change of a request; see `works.Backend`."""
        if isinstance(request, contract.AttachRequest):
            await self._attach(request, begun.device_id, begun.port_id)
        elif isinstance(request, contract.DetachRequest):
            await self._detach(request, begun.device_id)

    async def _attach(self, request: contract.AttachRequest, device_id: str, port_id: str) -> None:
        """Attach a device; done when it returns from QEMU, in milliseconds."""
        destination = self.machines[request.host_id]
        await self.clear(device_id)
        async with destination.lock:
            # The decision is old by now: this reading and the actions belong together.
            host = await destination.look()
            port = host.port(port_id)
            if port is None:
                raise errors.Aborted(f"port {port_id} of host {host.id} is gone; read the fabric again")
            for action in hotplug.attach(self.models[device_id], port, host, Note.from_request(request)):
                await destination.do(action)

    async def _detach(self, request: contract.DetachRequest, device_id: str) -> None:
        """Detach a device; waits for the guest."""
        source, name = self.machines[request.host_id], sights.qemu_id(device_id)
        clock = asyncio.get_running_loop().time
        progress = hotplug.Progress(deadline=clock() + self._detach_seconds)
        pauses = backoff.Backoff(LOOK_AGAIN_SECONDS_MIN, LOOK_AGAIN_SECONDS_MAX)
        while True:
            # Taken before the look, so that an event during it, or during the request, ends the wait.
            events = self._events
            there = await self._is_there(request.host_id, device_id, before=progress.deadline)
            progress = replace(progress, refused=progress.asked is not None and source.has_refused(name))
            match hotplug.detach(device_id, progress, clock(), there=there):
                case hotplug.Done():
                    await self.clear(device_id)
                    return
                case hotplug.GiveUp(error=error):
                    raise error
                case hotplug.Ask():
                    answer = await source.act(hotplug.RemoveDevice(id=name))
                    if answer in {None, qmp.Meaning.PENDING}:
                        progress = replace(progress, asked=clock())
                case hotplug.Wait():
                    pass
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pauses.count_failure()):
                    await events.wait()

    async def tidy(self) -> None:
        """Remove the remains of devices that were unplugged without a detach.

        Raises:
            FabricError: the fabric cannot be read or changed.
        """
        async with self.looking() as hosts:
            for host in hosts.values():
                attached = frozenset(sights.find_locations([host]))
                virtual_machine = self.machines[host.id]
                async with virtual_machine.lock:
                    for action in hotplug.tidy(self.models, host, attached, self.pending.keys()):
                        await virtual_machine.do(action)

    async def clear(self, device_id: str) -> None:
        """Remove the last reading's remains of a device that is attached nowhere.

        QEMU closes the file of an unplugged device a moment later. Until then no other virtual machine can write to
        it, so this waits for it.

        Raises:
            FabricError: a virtual machine does not answer.
        """
        clock = asyncio.get_running_loop().time
        deadline = clock() + CLOSING_SECONDS
        for host in [host for host in self._hosts.values() if host.running]:
            virtual_machine = self.machines[host.id]
            for action in hotplug.list_remains(device_id, host):
                while await virtual_machine.act(action) is qmp.Meaning.HELD and isinstance(
                    action, hotplug.RemoveNode
                ):
                    if clock() >= deadline:
                        break
                    await asyncio.sleep(CLOSING_LOOK_SECONDS)

    def close(self) -> None:
        """Close the connections to all virtual machines, which run on."""
        for virtual_machine in self.machines.values():
            virtual_machine.close()
        self.history.interrupt(errors.Unavailable("the connection to the QEMU fabric is closed"))

    def _event(self) -> None:
        self._events.set()
        self._events = asyncio.Event()
        self._on_event()

    def _port(self, device: contract.Device, host: sights.Host) -> str:
        reserved = frozenset(host_port for host_port in self.pending.values() if host_port is not None)
        return ports.choose(host, reserved, cxl=pool.is_cxl(self.models[device.id]))

    async def _is_there(self, host_id: str, device_id: str, *, before: float) -> bool:
        """Return whether the host still has the device; wait while the fabric cannot be read for a moment."""
        try:
            async with self.looking() as hosts:
                return device_id in sights.find_locations([hosts[host_id]])
        except errors.Transient:
            if asyncio.get_running_loop().time() >= before:
                raise
            return True

    @staticmethod
    async def _look(virtual_machine: machine.Machine) -> sights.Host:
        async with virtual_machine.lock:
            return await virtual_machine.look()

    def _remember_host(self, host: sights.Host) -> sights.Host:
        """Return a stopped machine with its former ports, so that they are listed as faulty instead of missing."""
        if host.running:
            return host
        former = self._hosts.get(host.id)
        names = self.machines[host.id].spec.ports or ()
        shown = former.ports if former is not None else tuple(sights.Port(id=name) for name in names)
        return replace(
            host,
            uuid=None if former is None else former.uuid,
            ports=tuple(replace(port, port_devices=()) for port in shown),
        )

    def _host(self, host: sights.Host) -> contract.Host:
        spec = self.machines[host.id].spec
        name = spec.name or spec.id
        own = {"hostname": name} | ({} if host.uuid is None else {"system-uuid": host.uuid})
        reserved = {
            host_port: device_id for device_id, host_port in self.pending.items() if host_port is not None
        }
        return contract.Host(
            id=host.id,
            name=name,
            identifiers={**spec.identifiers, **own},
            ports=tuple(
                _port(port, reserved.get((host.id, port.id)), running=host.running, models=self.models)
                for port in host.ports
            ),
            reach_groups=pool.host_groups(port.cxl for port in host.ports),
        )


def _reaches(host: sights.Host, device: contract.Device) -> bool:
    groups = pool.host_groups(port.cxl for port in host.ports)
    return contract.reaches(device.reach_groups, groups)


def _port(
    port: sights.Port, reserved_for: str | None, *, running: bool, models: Mapping[str, pool.Model]
) -> contract.Port:
    seen = (port_device.device_id for port_device in port.port_devices)
    device_id = next((name for name in seen if name in models), reserved_for)
    used = bool(port.port_devices) or reserved_for is not None
    state = contract.PortState.USED if used else contract.PortState.FREE
    return contract.Port(
        id=port.id,
        state=state if running else contract.PortState.FAULT,
        device_id=device_id,
        slot_hint=None if port.slot is None else str(port.slot),
    )


def _device(model: pool.Model, location: sights.Location | None) -> contract.Device:
    device = pool.device(model)
    if location is None:
        return device
    return replace(
        device,
        connection=contract.Connection(
            host_id=location.host.id,
            port_id=location.port.id,
            slot_hint=None if location.port.slot is None else str(location.port.slot),
            request_id=location.port_device.note.request_id,
            mark=location.port_device.note.mark,
        ),
    )
