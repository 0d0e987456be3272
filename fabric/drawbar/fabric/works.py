"""The operations of adapters that read back their changes: it performs them and remembers their outcomes.

An answer of the fabric manager does not end an operation. The operation has succeeded when the fabric, read again,
shows its effect. The memory is lost with the adapter. The next adapter finds the attach of an existing connection,
and the creation of a slice, by the request id in it, if the fabric keeps that.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Protocol

from drawbar.fabric import contract, errors, judgement
from drawbar.fabric.history import History

_logger = logging.getLogger(__name__)

_ATTACH, _CREATE_SLICE = contract.OperationKind.ATTACH, contract.OperationKind.CREATE_SLICE
_KINDS: Mapping[type[judgement.Request], contract.OperationKind] = MappingProxyType(
    {
        contract.AttachRequest: _ATTACH,
        contract.DetachRequest: contract.OperationKind.DETACH,
        contract.CreateSliceRequest: _CREATE_SLICE,
        contract.DeleteSliceRequest: contract.OperationKind.DELETE_SLICE,
    }
)
REMEMBERED_OPERATIONS = 1024
ASK_AGAIN_SECONDS = 0.5
# Between further looks at an accepted change, which some managers show late.
LOOK_AGAIN_SECONDS = (0.5, 1.0, 2.0)

# Called with the progress in percent and the seconds until the next one; None if unknown.
Report = Callable[[int | None, float | None], None]


class Backend(Protocol):
    """The fabric behind an adapter.

    Attributes:
        history: the last reading, and the changes.
        pending: by device id, the host and port of every attach in flight, or None for a detach. An operation leaves
            it only under `looking`, after a reading that began after its last change. So the decision on a request
            never rests on a reading from before the end of an operation.
    """

    history: History
    pending: dict[str, tuple[str, str] | None]

    def looking(self) -> AbstractAsyncContextManager[Any]:
        """Read the fabric and publish it; no other task reads or judges until the block is left."""
        ...

    def publish(self) -> None:
        """Publish the last reading, with the pending operations."""
        ...

    def judge(self, request: judgement.Request) -> judgement.Stay | judgement.Begin:
        """Return the decision on a request, from the caller's reading."""
        ...

    async def carry_out(
        self, request: judgement.Request, begun: judgement.Begin, report: Report
    ) -> str | None:
        """Make the change, or raise an error of the contract; the fabric is read afterwards.

        A new slice shows the request. Return the id of the device if the fabric has chosen it, else None.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    request: judgement.Request
    operation: contract.Operation


class Works:
    """The operations in flight, and the recent ones."""

    def __init__(
        self,
        backend: Backend,
        tasks: asyncio.TaskGroup,
        *,
        prefix: str,
        shows_requests: bool = False,
        on_finished: Callable[[], None] = lambda: None,
    ) -> None:
        # Ids of operations begin with the prefix, the adapter's name. If the fabric shows requests, every
        # connection of an attach has its request id.
        self._backend = backend
        self._tasks = tasks
        self._prefix = prefix
        self._shows_requests = shows_requests
        self._on_finished = on_finished
        self._records: dict[str, _Record] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._stopped = False

    async def begin(self, request: judgement.Request, *, patience_seconds: float) -> contract.Operation:
        """Begin the requested operation, wait up to `patience_seconds` for its end, and return it.

        Raises:
            FabricError: it is refused; nothing has changed then.
        """
        if problems := request.problems():
            raise errors.InvalidArgument("; ".join(problems))
        if (record := self._find_remembered(request)) is None:
            async with self._backend.looking():
                if self._stopped:
                    raise errors.Unavailable("the connection to the fabric is closed")
                record = self._find_remembered(request) or self._adopt(request)
                if record is None:
                    record = self._judge(request)
        operation = record.operation
        if (task := self._running.get(operation.id)) is not None:
            # Not awaited itself: the caller's cancellation must not undo half an attach.
            await asyncio.wait({task}, timeout=patience_seconds)
        return self._records.get(operation.id, record).operation

    async def find(
        self, *, operation_id: str | None = None, request_id: str | None = None
    ) -> contract.Operation:
        """Return an operation, including one of an earlier adapter whose device is still attached.

        Raises:
            NotFound: it is neither remembered nor visible in the fabric.
            InvalidArgument: none or both ids are given.
            FabricError: the fabric cannot be read.
        """
        if (operation_id is None) == (request_id is None):
            raise errors.InvalidArgument("ask for an operation by its own id or by its request id")
        wanted = operation_id or self._id(request_id or "")
        if (record := self._records.get(wanted)) is not None:
            return record.operation
        async with self._backend.looking():
            for operation in self._yield_shown():
                if operation.id == wanted:
                    return operation
        raise errors.NotFound("no such operation is remembered; read the devices to see how it ended")

    def all(self) -> tuple[contract.Operation, ...]:
        """Return all operations in flight and remembered, oldest first."""
        return tuple(record.operation for record in self._records.values())

    def stop(self) -> None:
        """End all tasks, and begin no operation from now on; the manager continues its work."""
        self._stopped = True
        for task in self._running.values():
            task.cancel()

    # --- beginning ---

    def _find_remembered(self, request: judgement.Request) -> _Record | None:
        record = self._records.get(self._id(request.request_id))
        if record is not None and record.request != request:
            raise judgement.build_reuse_error(request)
        return record

    def _adopt(self, request: judgement.Request) -> _Record | None:
        """Return the operation of an earlier adapter whose result still exists, or None."""
        for operation in self._yield_shown():
            if operation.request_id != request.request_id:
                continue
            if operation.device is None or not judgement.has_made(request, operation.device):
                raise judgement.build_reuse_error(request)
            return self._remember(request, operation)
        return None

    def _yield_shown(self) -> Iterator[contract.Operation]:
        """Yield the operations whose outcome the fabric shows with their requests."""
        for device in self._backend.history.devices.values():
            shown = (_ATTACH, device.connection), (_CREATE_SLICE, device.slice_of)
            for kind, made in shown:
                if made is not None and made.request_id:
                    yield replace(self._build_finished(made.request_id, kind, device), mark=made.mark)

    def _judge(self, request: judgement.Request) -> _Record:
        backend = self._backend
        kind = _KINDS[type(request)]
        match backend.judge(request):
            case judgement.Stay(device_id=device_id):
                finished = self._build_finished(
                    request.request_id, kind, backend.history.devices.get(device_id)
                )
                return self._remember(request, finished)
            case judgement.Begin(device_id=device_id, port_id=port_id) as begun:
                backend.pending[device_id] = (
                    (request.host_id, port_id) if isinstance(request, contract.AttachRequest) else None
                )
                backend.publish()
                operation = replace(
                    self._build_finished(request.request_id, kind, backend.history.devices[device_id]),
                    device=None if begun.fabric_chooses else backend.history.devices[device_id],
                    done=False,
                    percent=None,
                    retry_after_seconds=ASK_AGAIN_SECONDS,
                )
                record = self._remember(request, operation)
                self._running[operation.id] = self._tasks.create_task(
                    self._carry_out(record, begun), name=f"{kind} {device_id}"
                )
                return record

    # --- carrying out ---

    async def _carry_out(self, record: _Record, begun: judgement.Begin) -> None:
        def report(percent: int | None, retry_after_seconds: float | None) -> None:
            operation = replace(
                record.operation,
                percent=percent,
                retry_after_seconds=retry_after_seconds or ASK_AGAIN_SECONDS,
            )
            if operation != self._records[operation.id].operation:
                self._remember(record.request, operation)

        error: errors.FabricError | None = None
        device_id, came = begun.device_id, None if begun.fabric_chooses else begun.device_id
        try:
            came = await self._backend.carry_out(record.request, begun, report) or came
        except errors.FabricError as failure:
            error = failure
        await self._finish(record, device_id, came, error)

    async def _finish(
        self, record: _Record, device_id: str, came: str | None, error: errors.FabricError | None
    ) -> None:
        """Read its real outcome, and remember it.

        Args:
            record: of the operation.
            device_id: the device that is pending.
            came: the device that it is about; None where the fabric was to choose one, and none came.
            error: of the answer.
        """
        operation, request, backend = record.operation, record.request, self._backend
        device: contract.Device | None = None
        pauses = iter(LOOK_AGAIN_SECONDS if error is None else ())
        try:
            while True:
                async with backend.looking():
                    device = self._outcome(request, came)
                    seen = judgement.verify(
                        request,
                        device,
                        error,
                        shows_requests=self._shows_requests,
                        is_whole=backend.history.is_whole,
                    )
                    is_late = isinstance(seen, errors.Unavailable) and not seen.side_effects_unknown
                    pause = next(pauses, None) if is_late else None
                    if pause is None:
                        backend.pending.pop(device_id, None)
                        backend.publish()
                        device, error = self._outcome(request, came), seen
                        break
                await asyncio.sleep(pause)
        except errors.FabricError as blind:
            backend.pending.pop(device_id, None)
            error = judgement.unknown(error or blind)
        self._running.pop(operation.id, None)
        finished = replace(
            operation,
            done=True,
            percent=None if error else 100,
            retry_after_seconds=None,
            device=device or (None if isinstance(request, judgement.Slicing) else operation.device),
            error=None if error is None else contract.OperationError.from_error(error),
            side_effects_unknown=error is not None and error.side_effects_unknown,
        )
        self._remember(request, finished)
        _logger.info(
            "an operation of the fabric is finished",
            extra={"operation": operation.kind, "device": came or device_id}
            | ({"host": request.host_id} if isinstance(request, judgement.Connecting) else {})
            | ({} if error is None else {"error": error.message}),
        )
        self._on_finished()

    def _outcome(self, request: judgement.Request, came: str | None) -> contract.Device | None:
        """Return the device that an operation is about, or the slice that it made, as the fabric shows it."""
        devices = self._backend.history.devices
        if isinstance(request, contract.CreateSliceRequest):
            return next((device for device in devices.values() if judgement.has_made(request, device)), None)
        return None if came is None else devices.get(came)

    def _build_finished(
        self, request_id: str, kind: contract.OperationKind, device: contract.Device | None
    ) -> contract.Operation:
        return contract.Operation(
            id=self._id(request_id), request_id=request_id, kind=kind, done=True, percent=100, device=device
        )

    def _id(self, request_id: str) -> str:
        return judgement.operation_id(request_id, prefix=self._prefix)

    def _remember(self, request: judgement.Request, operation: contract.Operation) -> _Record:
        if isinstance(request, contract.AttachRequest | contract.CreateSliceRequest):
            operation = replace(operation, mark=request.mark)
        record = _Record(request=request, operation=operation)
        self._records[operation.id] = record
        self._backend.history.operation_changed(operation)
        # Only the operations in flight are unfinished, so this looks at few and ends.
        while len(self._records) - len(self._running) > REMEMBERED_OPERATIONS:
            oldest = next(key for key, kept in self._records.items() if kept.operation.done)
            del self._records[oldest]
        return record
