"""The state of a simulated fabric and every rule of the contract, without time, files or tasks.

Invariants: a port carries or is reserved for at most one device; a device is on at most one port and has at most
one operation in flight; every change of either is in the history. Requests are judged completely before
anything changes, so a refusal leaves nothing behind.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace

from drawbar.fabric import contract, errors
from drawbar.mocks.fabric import configuration as configurations
from drawbar.mocks.fabric import records
from drawbar.mocks.fabric.history import History

REMEMBERED_OPERATIONS = 1024
"""Finished operations beyond this are forgotten, oldest first; those in flight never are."""


class World:
    """Hosts, devices and operations. Everything is synchronous and happens at once."""

    def __init__(
        self, configuration: configurations.Configuration, state: records.State, history: History
    ) -> None:
        self._history = history
        self._hosts = {spec.id: spec for spec in configuration.hosts}
        self._devices: dict[str, contract.Device] = {}
        self._reserved: dict[tuple[str, str], str] = {}
        self._counter = state.counter
        self._revisions = dict(state.revisions)
        self._in_flight: dict[str, str] = {}
        for enclosure, spec in configuration.devices():
            connection = state.connections.get(spec.id)
            if connection is not None and connection.host_id not in self._hosts:
                connection = None
            self._devices[spec.id] = replace(
                configurations.device(enclosure, spec),
                connection=connection,
                etag=str(self._revisions.get(spec.id, 0)),
            )
            if connection is not None and connection.port_id is not None:
                self._reserved[connection.host_id, connection.port_id] = spec.id
        # The configuration may have lost a host or device since the state was written.
        self._records = OrderedDict(
            (record.operation.id, record)
            for record in state.records
            if record.device_id in self._devices and record.host_id in self._hosts
        )
        self._by_request = {record.operation.request_id: id_ for id_, record in self._records.items()}
        for record in self.unfinished():
            self._reserve(record)

    # --- reading ---

    def inventory(self) -> contract.Inventory:
        """All devices now."""
        return contract.Inventory(version=self._history.version, devices=tuple(self._devices.values()))

    def hosts(self) -> tuple[contract.Host, ...]:
        """All hosts now."""
        return tuple(self._host(host_id) for host_id in self._hosts)

    def device(self, device_id: str) -> contract.Device:
        """One device.

        Raises:
            NotFound: there is none of that id.
        """
        try:
            return self._devices[device_id]
        except KeyError:
            raise errors.NotFound(f'the fabric has no device "{errors.cut(device_id, 128)}"') from None

    def record(self, operation_id: str) -> records.Record:
        """One operation with its request.

        Raises:
            NotFound: never begun, or forgotten.
        """
        try:
            return self._records[operation_id]
        except KeyError:
            raise errors.NotFound(f'no operation "{errors.cut(operation_id, 128)}" is remembered') from None

    def record_of_request(self, request_id: str) -> records.Record:
        """The operation that a request began.

        Raises:
            NotFound: never begun, or forgotten.
        """
        try:
            return self._records[self._by_request[request_id]]
        except KeyError:
            raise errors.NotFound(f'no operation of request "{errors.cut(request_id, 128)}"') from None

    def remembered(self) -> tuple[records.Record, ...]:
        """All remembered operations, oldest first."""
        return tuple(self._records.values())

    def unfinished(self) -> tuple[records.Record, ...]:
        """The operations in flight."""
        return tuple(record for record in self._records.values() if not record.operation.done)

    def state(self, failures_used: dict[str, int]) -> records.State:
        """What must survive a restart."""
        return records.State(
            counter=self._counter,
            connections={
                device.id: device.connection for device in self._devices.values() if device.connection
            },
            revisions=dict(self._revisions),
            records=self.remembered(),
            failures_used=failures_used,
        )

    # --- changing ---

    def begin(self, request: records.Request) -> tuple[records.Record, bool]:
        """Begins what is asked for; True if this call began it and it is not finished at once.

        Raises:
            FabricError: as `FabricAdapter.attach` and `detach` say; nothing has changed then.
        """
        if problems := request.problems():
            raise errors.InvalidArgument("; ".join(problems))
        if (known := self._by_request.get(request.request_id)) is not None:
            record = self._records[known]
            if record.request != request:
                raise errors.AlreadyExists(
                    f'the request id "{request.request_id}" was used for another request'
                )
            return record, False
        match request:
            case contract.AttachRequest():
                return self._begin_attach(request)
            case contract.DetachRequest():
                return self._begin_detach(request)

    def finish(self, operation_id: str, error: errors.FabricError | None) -> records.Record:
        """Ends an operation in flight, with what it changes if it went well."""
        record = self._records[operation_id]
        self._in_flight.pop(record.device_id, None)
        match record.operation.kind, error:
            case contract.OperationKind.ATTACH, None:
                self._connect(record)
            case contract.OperationKind.DETACH, None:
                self._disconnect(record.device_id)
            case contract.OperationKind.ATTACH, _ if record.port_id is not None:
                self._reserved.pop((record.host_id, record.port_id), None)
        self._history.host_changed(self._host(record.host_id))
        operation = replace(
            record.operation,
            done=True,
            percent=None if error else 100,
            device=self._devices[record.device_id],
            error=None if error is None else contract.OperationError.of(error),
            side_effects_unknown=error is not None and error.side_effects_unknown,
        )
        return self._remember(replace(record, operation=operation))

    def hold(self, device_id: str) -> contract.Connection | None:
        """Keeps a device from all operations until `take_away`; None, and not held, if it is free.

        Raises:
            NotFound: no such device.
            Aborted: the device has an operation in flight.
        """
        device = self.device(device_id)
        self._check_idle(device_id)
        if device.connection is not None:
            self._in_flight[device_id] = "of an operator"
        return device.connection

    def take_away(self, device_id: str) -> None:
        """Disconnects a device that is held, as an operator beside us does."""
        connection = self._devices[device_id].connection
        self._in_flight.pop(device_id, None)
        self._disconnect(device_id)
        if connection is not None:
            self._history.host_changed(self._host(connection.host_id))

    def _begin_attach(self, request: contract.AttachRequest) -> tuple[records.Record, bool]:
        host_id = self._known_host(request.host_id)
        device = self._selected(request)
        self._check_idle(device.id)
        if request.expected_etag not in {None, device.etag}:
            raise errors.Aborted(
                f"device {device.id} changed since it was read; read it again",
                reason=errors.Reason.STALE_ETAG,
            )
        port_id = self._known_port(request)
        if device.connection is not None:
            if device.connection.host_id == host_id and port_id in {None, device.connection.port_id}:
                return self._nothing_to_do(request, device), False
            raise errors.FailedPrecondition(
                f"device {device.id} is attached to host {device.connection.host_id}, "
                f"port {device.connection.port_id}; detach it there first",
                reason=errors.Reason.IN_USE,
                host_id=device.connection.host_id,
            )
        record = self._new_record(request, device, port_id or self._free_port(host_id))
        self._reserve(record)
        self._history.host_changed(self._host(host_id))
        return self._remember(record), True

    def _begin_detach(self, request: contract.DetachRequest) -> tuple[records.Record, bool]:
        host_id = self._known_host(request.host_id)
        device = self.device(request.device_id)
        self._check_idle(device.id)
        if device.connection is None or device.connection.host_id != host_id:
            return self._nothing_to_do(request, device), False
        if not (request.host_prepared or request.force):
            raise errors.FailedPrecondition(
                f"host {host_id} has not let go of device {device.id}; prepare the host, or use force",
                reason=errors.Reason.NOT_PREPARED,
                host_id=host_id,
            )
        record = self._new_record(request, device, device.connection.port_id)
        self._reserve(record)
        return self._remember(record), True

    # --- judging ---

    def _known_host(self, host_id: str) -> str:
        if host_id not in self._hosts:
            raise errors.NotFound(f'the fabric has no host "{host_id}"')
        return host_id

    def _known_port(self, request: contract.AttachRequest) -> str | None:
        """The port asked for, if it can be the device's; None if none was asked for."""
        if request.port_id is None:
            return None
        if request.port_id not in self._port_ids(request.host_id):
            raise errors.NotFound(f'host {request.host_id} has no port "{request.port_id}"')
        occupant = self._reserved.get((request.host_id, request.port_id))
        if occupant not in {None, request.device_id}:
            raise errors.FailedPrecondition(
                f"port {request.port_id} of host {request.host_id} carries device {occupant}",
                reason=errors.Reason.PORT_IN_USE,
                host_id=request.host_id,
            )
        return request.port_id

    def _selected(self, request: contract.AttachRequest) -> contract.Device:
        """The device named, or the first free one of the model."""
        if request.device_id is not None:
            return self.device(request.device_id)
        models = [device for device in self._devices.values() if device.model == request.model]
        if not models:
            raise errors.NotFound(f'the fabric has no device of the model "{request.model}"')
        for device in models:
            if device.connection is None and device.id not in self._in_flight:
                return device
        raise errors.ResourceExhausted(
            f'no device of the model "{request.model}" is free', reason=errors.Reason.NO_DEVICE
        )

    def _check_idle(self, device_id: str) -> None:
        if (operation_id := self._in_flight.get(device_id)) is not None:
            raise errors.Aborted(
                f"device {device_id} has operation {operation_id} in flight; wait for its end",
                reason=errors.Reason.OPERATION_PENDING,
            )

    def _free_port(self, host_id: str) -> str:
        for port_id in self._port_ids(host_id):
            if (host_id, port_id) not in self._reserved:
                return port_id
        raise errors.ResourceExhausted(
            f"host {host_id} has no free port", reason=errors.Reason.NO_FREE_PORT, host_id=host_id
        )

    # --- bookkeeping ---

    def _nothing_to_do(self, request: records.Request, device: contract.Device) -> records.Record:
        record = self._new_record(request, device, None)
        operation = replace(record.operation, done=True, percent=100)
        return self._remember(replace(record, operation=operation))

    def _new_record(
        self, request: records.Request, device: contract.Device, port_id: str | None
    ) -> records.Record:
        self._counter += 1
        attach = request if isinstance(request, contract.AttachRequest) else None
        detach = request if isinstance(request, contract.DetachRequest) else None
        operation = contract.Operation(
            id=f"operation-{self._counter}",
            request_id=request.request_id,
            kind=contract.OperationKind.ATTACH if attach else contract.OperationKind.DETACH,
            done=False,
            percent=0,
            device=device,
        )
        return records.Record(
            operation=operation,
            attach=attach,
            detach=detach,
            device_id=device.id,
            host_id=request.host_id,
            port_id=port_id,
        )

    def _remember(self, record: records.Record) -> records.Record:
        self._records[record.operation.id] = record
        self._by_request[record.operation.request_id] = record.operation.id
        self._history.operation_changed(record.operation)
        # Everything but what is in flight is finished, so that this looks at few and ends.
        while len(self._records) - len(self._in_flight) > REMEMBERED_OPERATIONS:
            oldest = next(old for old in self._records.values() if old.operation.done)
            del self._records[oldest.operation.id]
            del self._by_request[oldest.operation.request_id]
        return record

    def _reserve(self, record: records.Record) -> None:
        self._in_flight[record.device_id] = record.operation.id
        if record.port_id is not None:
            self._reserved[record.host_id, record.port_id] = record.device_id

    def _connect(self, record: records.Record) -> None:
        connection = contract.Connection(
            host_id=record.host_id,
            port_id=record.port_id,
            slot_hint=record.port_id,
            request_id=record.operation.request_id,
        )
        self._change(record.device_id, lambda device: replace(device, connection=connection))

    def _disconnect(self, device_id: str) -> None:
        connection = self._devices[device_id].connection
        if connection is not None and connection.port_id is not None:
            self._reserved.pop((connection.host_id, connection.port_id), None)
        self._change(device_id, lambda device: replace(device, connection=None))

    def _change(self, device_id: str, edit: Callable[[contract.Device], contract.Device]) -> None:
        self._revisions[device_id] = self._revisions.get(device_id, 0) + 1
        device = replace(edit(self._devices[device_id]), etag=str(self._revisions[device_id]))
        self._devices[device_id] = device
        self._history.device_changed(device)

    def _port_ids(self, host_id: str) -> tuple[str, ...]:
        return tuple(str(number + 1) for number in range(self._hosts[host_id].ports))

    def _host(self, host_id: str) -> contract.Host:
        spec = self._hosts[host_id]
        name = spec.name or spec.id
        occupants = [(port_id, self._reserved.get((host_id, port_id))) for port_id in self._port_ids(host_id)]
        return contract.Host(
            id=spec.id,
            name=name,
            identifiers={"hostname": name, **spec.identifiers},
            ports=tuple(
                contract.Port(
                    id=port_id,
                    state=contract.PortState.USED if device_id else contract.PortState.FREE,
                    device_id=device_id,
                    slot_hint=port_id,
                )
                for port_id, device_id in occupants
            ),
        )
