"""The requests of a simulated fabric and every rule of the contract, without time, files or tasks.

Invariants, in addition to those of the stock: a device has at most one operation in flight, or is held by an operator.
A request is checked completely before any change, so a refusal has no effect.
"""

from collections import OrderedDict
from dataclasses import replace

from drawbar.fabric import contract, errors
from drawbar.mocks.fabric import configuration as configurations
from drawbar.mocks.fabric import records
from drawbar.mocks.fabric.history import History
from drawbar.mocks.fabric.stock import Stock

REMEMBERED_OPERATIONS = 1024
"""The number of remembered finished operations. The oldest are forgotten; those in flight never are."""
_HELD = "of an operator"


class World:
    """Operations on a stock of hosts and devices. All methods are synchronous."""

    def __init__(
        self, configuration: configurations.Configuration, state: records.State, history: History
    ) -> None:
        self._history = history
        self._keeps_marks = configuration.keeps_marks
        self._chooses = configuration.chooses
        self.stock = Stock(configuration, state, history)
        self._counter = state.counter
        self._in_flight: dict[str, str] = {}
        self._forgotten: set[str] = set()
        # The configuration may have changed since the state was saved.
        self._records = OrderedDict(
            (record.operation.id, record)
            for record in state.records
            if self.stock.has(record.device_id)
            and (not record.host_id or self.stock.has_host(record.host_id))
        )
        self._by_request: dict[str, str] = {}
        for record in self._records.values():
            self._by_request.setdefault(record.operation.request_id, record.operation.id)
        for record in self.list_unfinished_records():
            self._reserve(record)

    # --- reading ---

    def inventory(self) -> contract.Inventory:
        """Return all devices with the history's version."""
        return contract.Inventory(version=self._history.version, devices=self.stock.devices())

    def hosts(self) -> tuple[contract.Host, ...]:
        """Return all hosts."""
        return self.stock.hosts()

    def device(self, device_id: str) -> contract.Device:
        """Return a device.

        Raises:
            NotFound: there is none of that id.
        """
        return self.stock.device(device_id)

    def record(self, operation_id: str) -> records.Record:
        """Return an operation with its request.

        Raises:
            NotFound: never begun, or forgotten.
        """
        record = self._records.get(operation_id)
        if record is None or operation_id in self._forgotten:
            raise errors.NotFound(f'no operation "{errors.cut(operation_id, 128)}" is remembered')
        return record

    def record_of_request(self, request_id: str) -> records.Record:
        """Return the operation of a request.

        Raises:
            NotFound: never begun, or forgotten.
        """
        try:
            return self._records[self._by_request[request_id]]
        except KeyError:
            raise errors.NotFound(f'no operation of request "{errors.cut(request_id, 128)}"') from None

    def list_records(self) -> tuple[records.Record, ...]:
        """Return all remembered operations, oldest first."""
        return tuple(
            record for record in self._records.values() if record.operation.id not in self._forgotten
        )

    def list_unfinished_records(self) -> tuple[records.Record, ...]:
        """Return the operations in flight, including those forgotten by the manager."""
        return tuple(record for record in self._records.values() if not record.operation.done)

    def state(self) -> records.State:
        """Return the state to save."""
        return replace(self.stock.state(), counter=self._counter, records=self.list_records())

    # --- changing ---

    def begin(self, request: records.Request) -> tuple[records.Record, bool]:
        """Begin the operation of a request. Return its record, and true if this call began it and it is unfinished.

        Raises:
            FabricError: as documented at `FabricAdapter.attach` and `detach`; nothing changed.
        """
        if problems := request.problems():
            raise errors.InvalidArgument("; ".join(problems))
        if (begun := self._by_request.get(request.request_id)) is not None:
            record = self._records[begun]
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
            case contract.CreateSliceRequest():
                return self._begin_create(request)
            case contract.DeleteSliceRequest():
                return self._begin_delete(request)

    def finish(
        self, operation_id: str, error: errors.FabricError | None, *, happened: bool | None = None
    ) -> records.Record:
        """End an operation in flight, make its changes, and return its record.

        Args:
            operation_id: the operation.
            error: the failure, or None.
            happened: true if it took effect; None to take effect unless it failed.
        """
        record = self._records[operation_id]
        self._in_flight.pop(record.device_id, None)
        happened = error is None if happened is None else happened
        shown = record.device_id
        if record.create is not None:
            if happened:
                shown = self.stock.carve(record.create, keeps_marks=self._keeps_marks).id
        elif record.delete is not None:
            if happened:
                self.stock.merge(record.device_id)
        elif record.operation.kind is contract.OperationKind.ATTACH and record.port_id is not None:
            if happened:
                mark = record.attach.mark if record.attach and self._keeps_marks else None
                self.stock.connect(
                    record.device_id, record.host_id, record.port_id, record.operation.request_id, mark
                )
            else:
                self.stock.give_back(record.host_id, record.port_id)
        elif happened:
            self.stock.disconnect(record.device_id)
        operation = replace(
            record.operation,
            done=True,
            percent=None if error else 100,
            device=self.stock.device(shown) if self.stock.has(shown) else None,
            error=None if error is None else contract.OperationError.from_error(error),
            side_effects_unknown=error is not None and error.side_effects_unknown,
        )
        return self._remember(replace(record, operation=operation))

    def forget(self) -> None:
        """Forget all operations; those in flight go on, but callers can no longer query them."""
        for operation_id, record in list(self._records.items()):
            if record.operation.done:
                del self._records[operation_id]
            else:
                self._forgotten.add(operation_id)
        self._by_request.clear()

    def reserve(self, device_id: str) -> contract.Connection | None:
        """Keep a device from all operations until `release`; return its connection, or None.

        Raises:
            NotFound: no such device.
            Aborted: the device has an operation in flight.
        """
        device = self.stock.device(device_id)
        self._check_idle(device_id)
        self._in_flight[device_id] = _HELD
        return device.connection

    def release(self, device_id: str) -> None:
        """End a hold."""
        self._in_flight.pop(device_id, None)

    def take_away(self, device_id: str) -> None:
        """Disconnect a held device, as an operator does, and end the hold."""
        self.release(device_id)
        self.stock.disconnect(device_id)

    def remove(self, device_id: str) -> None:
        """Remove a free, idle device from the fabric, with its operations."""
        for operation_id, record in list(self._records.items()):
            if record.device_id == device_id:
                del self._records[operation_id]
                if self._by_request.get(record.operation.request_id) == operation_id:
                    del self._by_request[record.operation.request_id]
        self.stock.remove(device_id)

    def _begin_attach(self, request: contract.AttachRequest) -> tuple[records.Record, bool]:
        host_id = self.stock.known_host(request.host_id)
        device = self._select_device(request)
        self._check_idle(device.id)
        if request.expected_etag not in {None, device.etag}:
            raise errors.Aborted(
                f"device {device.id} changed since it was read; read it again",
                reason=errors.Reason.STALE_ETAG,
            )
        if device.connection is not None:
            if device.connection.host_id == host_id and device.connection.mark in {None, request.mark}:
                return self._nothing_to_do(request, device), False
            raise errors.FailedPrecondition(
                f"device {device.id} is attached to host {device.connection.host_id}, "
                f"port {device.connection.port_id}; detach it there first",
                reason=errors.Reason.IN_USE,
                host_id=device.connection.host_id,
            )
        if not self.stock.reaches(device, host_id):
            raise self.stock.unreachable(device.id, host_id)
        if device.id in contract.find_carved(self.stock.devices()):
            raise errors.FailedPrecondition(
                f"device {device.id} is attached only in chunks; attach one of these",
                reason=errors.Reason.CARVED,
            )
        record = self._new_record(request, device, self.stock.free_port(host_id))
        self._reserve(record)
        self.stock.tell_host(host_id)
        return self._remember(record), True

    def _begin_detach(self, request: contract.DetachRequest) -> tuple[records.Record, bool]:
        host_id = self.stock.known_host(request.host_id)
        device = self.stock.device(request.device_id)
        self._check_idle(device.id)
        if device.connection is None or device.connection.host_id != host_id:
            return self._nothing_to_do(request, device), False
        if not (request.host_prepared or request.force):
            raise errors.FailedPrecondition(
                f"host {host_id} has not released device {device.id}; prepare the host, or use force",
                reason=errors.Reason.NOT_PREPARED,
                host_id=host_id,
            )
        record = self._new_record(request, device, device.connection.port_id)
        self._reserve(record)
        return self._remember(record), True

    def _begin_create(self, request: contract.CreateSliceRequest) -> tuple[records.Record, bool]:
        for made in self.stock.slices(request.device_id):
            if made.slice_of is not None and made.slice_of.request_id == request.request_id:
                # The operation was forgotten, but the slice carries its request id.
                return self._nothing_to_do(request, made), False
        origin = self.stock.device(request.device_id)
        self._check_idle(origin.id)
        if origin.carving is None:
            raise errors.InvalidArgument(f"device {origin.id} cannot be carved; name one that can")
        if request.memory_bytes % origin.carving.step_bytes:
            raise errors.InvalidArgument(
                f"a slice of device {origin.id} has a multiple of {origin.carving.step_bytes} bytes, "
                f"and not {request.memory_bytes}"
            )
        self.stock.check_free(origin)
        if request.memory_bytes > origin.carving.free_bytes:
            raise errors.ResourceExhausted(
                f"device {origin.id} has {origin.carving.free_bytes} bytes left, and {request.memory_bytes} were asked for",
                reason=errors.Reason.NO_CAPACITY,
            )
        return self._begin_slice_change(request)

    def _begin_delete(self, request: contract.DeleteSliceRequest) -> tuple[records.Record, bool]:
        try:
            device = self.stock.device(request.device_id)
        except errors.NotFound:
            return self._nothing_to_do(request, None), False
        self._check_idle(device.id)
        if device.slice_of is None:
            raise errors.InvalidArgument(f"device {device.id} is no slice, so it cannot be deleted")
        self.stock.check_free(device)
        return self._begin_slice_change(request)

    def _begin_slice_change(
        self, request: contract.CreateSliceRequest | contract.DeleteSliceRequest
    ) -> tuple[records.Record, bool]:
        record = self._new_record(request, self.stock.device(request.device_id), None)
        self._reserve(record)
        return self._remember(record), True

    # --- checking ---

    def _select_device(self, request: contract.AttachRequest) -> contract.Device:
        """Return the named device, or a free one of the model."""
        if request.device_id is not None:
            if self._chooses != "any":
                raise errors.Unimplemented("the simulated fabric chooses the device; attach by model")
            return self.stock.device(request.device_id)
        models = [
            device
            for device in self.stock.devices()
            if device.model == request.model and device.slice_of is None
        ]
        if not models:
            raise errors.NotFound(f'the fabric has no device of the model "{request.model}"')
        models = [device for device in models if self.stock.reaches(device, request.host_id)]
        if not models:
            raise self.stock.unreachable(f"of the model {request.model}", request.host_id)
        kept = contract.find_carved(self.stock.devices()) | self._in_flight.keys()
        for device in reversed(models) if self._chooses == "last" else models:
            if device.connection is None and device.id not in kept:
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

    # --- bookkeeping ---

    def _nothing_to_do(self, request: records.Request, device: contract.Device | None) -> records.Record:
        record = self._new_record(request, device, None)
        operation = replace(record.operation, done=True, percent=100)
        return self._remember(replace(record, operation=operation))

    def _new_record(
        self, request: records.Request, device: contract.Device | None, port_id: str | None
    ) -> records.Record:
        self._counter += 1
        attach = request if isinstance(request, contract.AttachRequest) else None
        detach = request if isinstance(request, contract.DetachRequest) else None
        create = request if isinstance(request, contract.CreateSliceRequest) else None
        delete = request if isinstance(request, contract.DeleteSliceRequest) else None
        kind = next(
            kind
            for kind, own in zip(contract.OperationKind, (attach, detach, create, delete), strict=True)
            if own is not None
        )
        marked = attach or create
        operation = contract.Operation(
            id=f"operation-{self._counter}",
            request_id=request.request_id,
            kind=kind,
            done=False,
            percent=0,
            device=device,
            mark=marked.mark if marked and self._keeps_marks else None,
        )
        asked = attach or detach
        return records.Record(
            operation=operation,
            attach=attach,
            detach=detach,
            create=create,
            delete=delete,
            device_id=device.id if device is not None else request.device_id or "",
            host_id=asked.host_id if asked else "",
            port_id=port_id,
        )

    def _remember(self, record: records.Record) -> records.Record:
        operation_id, request_id = record.operation.id, record.operation.request_id
        if operation_id in self._forgotten:
            self._forgotten.discard(operation_id)
            del self._records[operation_id]
            return record
        self._records[operation_id] = record
        self._by_request.setdefault(request_id, operation_id)
        self._history.operation_changed(record.operation)
        # All records are finished or in flight, so there is a finished one to remove and the loop ends.
        while len(self._records) - len(self._in_flight) > REMEMBERED_OPERATIONS:
            oldest = next(old for old in self._records.values() if old.operation.done)
            del self._records[oldest.operation.id]
            if self._by_request.get(oldest.operation.request_id) == oldest.operation.id:
                del self._by_request[oldest.operation.request_id]
        return record

    def _reserve(self, record: records.Record) -> None:
        self._in_flight[record.device_id] = record.operation.id
        if record.port_id is not None:
            self.stock.reserve(record.host_id, record.port_id, record.device_id)
