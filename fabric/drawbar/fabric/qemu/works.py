"""Carries attaches and detaches out, and remembers what became of them.

An attach is done when this returns from QEMU, in milliseconds. A detach waits for the guest. Neither believes an
answer: an operation has succeeded when the fabric, looked at again, shows it.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from drawbar.fabric import contract, errors
from drawbar.fabric.qemu import judgement, plan, qmp, sights
from drawbar.fabric.qemu.fleet import Fleet

_logger = logging.getLogger(__name__)

REMEMBERED_OPERATIONS = 1024
LOOK_AGAIN_SECONDS = 0.5
LOOK_AGAIN_FIRST_SECONDS = 0.05
"""QEMU 7.2 tells of no CXL memory that it has deleted, so a detach looks again without an event too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """An operation and what it was asked for."""

    request: judgement.Request
    operation: contract.Operation


class Works:
    """The operations in flight, and those of the recent past."""

    def __init__(
        self,
        fleet: Fleet,
        tasks: asyncio.TaskGroup,
        *,
        detach_seconds: float,
        on_finished: Callable[[], None],
    ) -> None:
        self._fleet = fleet
        self._tasks = tasks
        self._detach_seconds = detach_seconds
        self._on_finished = on_finished
        self._records: dict[str, Record] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._stirred = asyncio.Event()

    def stir(self) -> None:
        """Something happened in QEMU: whoever waits looks again."""
        self._stirred.set()
        self._stirred = asyncio.Event()

    async def begin(self, request: judgement.Request, *, patience_seconds: float) -> contract.Operation:
        """Begins what is asked for, and waits a little for its end.

        Raises:
            FabricError: it is refused; nothing has changed then.
        """
        if problems := request.problems():
            raise errors.InvalidArgument("; ".join(problems))
        if (known := self._known(request)) is None:
            async with self._fleet.looking():
                known = self._known(request) or self._adopted(request)
                if known is None:
                    known = self._judged(request)
        operation = known.operation
        if (task := self._running.get(operation.id)) is not None:
            # Not awaited itself: the caller's cancellation must not undo half an attach.
            await asyncio.wait({task}, timeout=patience_seconds)
        return self._records.get(operation.id, known).operation

    async def find(self, operation_id: str) -> contract.Operation:
        """An operation, also one of an earlier life of the adapter whose device is still attached.

        Raises:
            NotFound: it is neither remembered nor to be seen.
            FabricError: the fabric cannot be read.
        """
        if (record := self._records.get(operation_id)) is not None:
            return record.operation
        async with self._fleet.looking():
            for device in self._fleet.history.devices.values():
                request_id = device.connection and device.connection.request_id
                if request_id and judgement.operation_id(request_id) == operation_id:
                    made = judgement.finished(request_id, contract.OperationKind.ATTACH, device)
                    return replace(made, mark=device.connection.mark if device.connection else None)
        raise errors.NotFound("no such operation is remembered; read the devices to know what became of it")

    def all(self) -> tuple[contract.Operation, ...]:
        """All operations in flight and remembered, oldest first."""
        return tuple(record.operation for record in self._records.values())

    def stop(self) -> None:
        """Ends all tasks; what QEMU was told goes on there."""
        for task in self._running.values():
            task.cancel()

    # --- beginning ---

    def _known(self, request: judgement.Request) -> Record | None:
        record = self._records.get(judgement.operation_id(request.request_id))
        if record is not None and record.request != request:
            raise judgement.used(request)
        return record

    def _adopted(self, request: judgement.Request) -> Record | None:
        """The operation of an earlier life that made a connection which still stands."""
        for device in self._fleet.history.devices.values():
            connection = device.connection
            if connection is None or connection.request_id != request.request_id:
                continue
            same_place = connection.host_id == request.host_id
            if not (
                isinstance(request, contract.AttachRequest)
                and same_place
                and judgement.names(request, device)
            ):
                raise judgement.used(request)
            return self._remember(
                request, judgement.finished(request.request_id, contract.OperationKind.ATTACH, device)
            )
        return None

    def _judged(self, request: judgement.Request) -> Record:
        attach = isinstance(request, contract.AttachRequest)
        kind = contract.OperationKind.ATTACH if attach else contract.OperationKind.DETACH
        match self._fleet.judge(request):
            case judgement.Stay(device_id=device_id):
                return self._remember(
                    request,
                    judgement.finished(request.request_id, kind, self._fleet.history.devices[device_id]),
                )
            case judgement.Begin(device_id=device_id, port_id=port_id):
                self._fleet.pending[device_id] = (request.host_id, port_id) if attach else None
                self._fleet.publish()
                device = self._fleet.history.devices[device_id]
                operation = replace(
                    judgement.finished(request.request_id, kind, device),
                    done=False,
                    percent=None,
                    retry_after_seconds=LOOK_AGAIN_SECONDS,
                )
                record = self._remember(request, operation)
                self._running[operation.id] = self._tasks.create_task(
                    self._carry_out(record, device_id, port_id), name=f"{kind} {device_id}"
                )
                return record

    # --- carrying out ---

    async def _carry_out(self, record: Record, device_id: str, port_id: str) -> None:
        error: errors.FabricError | None = None
        try:
            match record.request:
                case contract.AttachRequest() as request:
                    await self._attach(request, device_id, port_id)
                case contract.DetachRequest() as request:
                    await self._detach(request, device_id)
        except errors.FabricError as failure:
            error = failure
        await self._finish(record, device_id, error)

    async def _attach(self, request: contract.AttachRequest, device_id: str, port_id: str) -> None:
        one = self._fleet.machines[request.host_id]
        await self._fleet.clear(device_id)
        async with one.lock:
            # What was judged is old by now: this look and the actions belong together.
            host = await one.look()
            port = host.port(port_id)
            if port is None:
                raise errors.Aborted(f"port {port_id} of host {host.id} is gone; read the fabric again")
            note = sights.Note(request_id=request.request_id, mark=request.mark)
            for action in plan.attach(self._fleet.models[device_id], port, host, note):
                await one.do(action)

    async def _detach(self, request: contract.DetachRequest, device_id: str) -> None:
        one, name = self._fleet.machines[request.host_id], sights.qemu_id(device_id)
        clock = asyncio.get_running_loop().time
        progress = plan.Progress(deadline=clock() + self._detach_seconds)
        pause = LOOK_AGAIN_FIRST_SECONDS
        while True:
            # Taken before the look: what happens during it, or during the request, is not waited for in vain.
            news = self._stirred
            there = await self._is_there(one.spec.id, device_id, before=progress.deadline)
            progress = replace(progress, refused=progress.asked is not None and one.refused(name))
            match plan.detach(device_id, progress, clock(), there=there):
                case plan.Done():
                    await self._fleet.clear(device_id)
                    return
                case plan.GiveUp(error=error):
                    raise error
                case plan.Ask():
                    answer = await one.act(plan.RemoveDevice(id=name))
                    if answer in {None, qmp.Meaning.PENDING}:
                        progress = replace(progress, asked=clock())
                case plan.Wait():
                    pass
            await _happened(news, pause)
            pause = min(2 * pause, LOOK_AGAIN_SECONDS)

    async def _is_there(self, host_id: str, device_id: str, *, before: float) -> bool:
        """Whether the host still has the device; a fabric that cannot be read for a while is waited for."""
        try:
            async with self._fleet.looking() as hosts:
                return device_id in sights.places([hosts[host_id]])
        except errors.Transient:
            if asyncio.get_running_loop().time() >= before:
                raise
            return True

    async def _finish(self, record: Record, device_id: str, error: errors.FabricError | None) -> None:
        """Looks what has really become of it, and says so."""
        operation, request = record.operation, record.request
        try:
            async with self._fleet.looking():
                self._fleet.pending.pop(device_id, None)
                self._fleet.publish()
                device = self._fleet.history.devices[device_id]
                error = judgement.verified(request, device, error)
        except errors.FabricError as blind:
            self._fleet.pending.pop(device_id, None)
            device = None
            error = judgement.unknown(error or blind)
        self._running.pop(operation.id, None)
        finished = replace(
            operation,
            done=True,
            percent=None if error else 100,
            retry_after_seconds=None,
            device=device or operation.device,
            error=None if error is None else contract.OperationError.from_error(error),
            side_effects_unknown=error is not None and error.side_effects_unknown,
        )
        self._remember(request, finished)
        _logger.info(
            "an operation of the QEMU fabric is finished",
            extra={"operation": operation.kind, "device": device_id, "host": request.host_id}
            | ({} if error is None else {"error": error.message}),
        )
        # What is left of the device is tidied up without anybody waiting for it.
        self._on_finished()

    def _remember(self, request: judgement.Request, operation: contract.Operation) -> Record:
        if isinstance(request, contract.AttachRequest):
            operation = replace(operation, mark=request.mark)
        record = Record(request=request, operation=operation)
        self._records[operation.id] = record
        self._fleet.history.operation_changed(operation)
        # Everything but what is in flight is finished, so that this looks at few and ends.
        while len(self._records) - len(self._running) > REMEMBERED_OPERATIONS:
            oldest = next(old for old, known in self._records.items() if known.operation.done)
            del self._records[oldest]
        return record


async def _happened(news: asyncio.Event, seconds: float) -> None:
    """Waits until something happens, or that long."""
    try:
        async with asyncio.timeout(seconds):
            await news.wait()
    except TimeoutError:
        return
