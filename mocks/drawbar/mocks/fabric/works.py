"""The executor of a simulated fabric's operations: the world's rules plus time, files and slots.

An operation is one task. It waits and changes the slot of the host's mocked tree. Then, in one step without an await,
it changes the world, saves the state and writes the journal. So no reader sees a partial change.
"""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, replace

from drawbar.fabric import contract, errors
from drawbar.mocks.fabric import configuration as configurations
from drawbar.mocks.fabric import faults, records, slots
from drawbar.mocks.fabric import journal as journals
from drawbar.mocks.fabric.world import World

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """The predetermined course of an operation.

    Attributes:
        seconds: its duration in seconds.
        trouble: the fault of the operation, or None.
        appear: the fault of the device on its host, or None.
    """

    seconds: float
    trouble: faults.Fail | faults.Stick | None = None
    appear: faults.Appear | None = None


class Works:
    """The operations in flight."""

    def __init__(
        self,
        configuration: configurations.Configuration,
        world: World,
        *,
        deck: faults.Deck,
        host_slots: slots.Slots,
        tasks: asyncio.TaskGroup,
        journal: journals.Journal,
        state: records.StateFile,
    ) -> None:
        self._configuration = configuration
        self._world = world
        self._deck = deck
        self._draws: Counter[str] = Counter()
        self._host_slots = host_slots
        self._tasks = tasks
        self._journal = journal
        self._state = state
        self.running: dict[str, asyncio.Task[None]] = {}
        self._later: set[asyncio.Task[None]] = set()
        self._cancelled: dict[str, asyncio.Event] = {}
        self._begun: dict[str, tuple[float, float]] = {}

    def resume(self) -> None:
        """Resume the operations in flight in the saved state."""
        for record in self._world.list_unfinished_records():
            self._start(record, self._course(record))

    async def begin(self, request: records.Request) -> records.Record:
        """Begin the operation of a request; return its record. Without a duration it is finished on return.

        Raises:
            FabricError: as `World.begin`.
        """
        record, new = self._world.begin(request)
        if new:
            course = self._course(record)
            self.save()
            self._log("started", record)
            task = self._start(record, course)
            if course.seconds == 0 and not isinstance(course.trouble, faults.Stick):
                # `wait` leaves the task running if the caller is cancelled, so that no attach stays half done.
                await asyncio.wait({task})
        return self.latest(record)

    async def cancel(self, operation_id: str) -> None:
        """Cancel an operation, unless it already changes the slot."""
        if (cancelled := self._cancelled.get(operation_id)) is not None:
            cancelled.set()
            await asyncio.wait({self.running[operation_id]})

    async def cancel_all(self) -> None:
        """Cancel every operation."""
        for operation_id in tuple(self.running):
            await self.cancel(operation_id)

    def estimate_progress(self, record: records.Record) -> contract.Operation:
        """Return the operation for a caller, with its present progress."""
        operation = record.operation
        begun = self._begun.get(operation.id)
        if operation.done or begun is None:
            return operation
        started, seconds = begun
        elapsed = asyncio.get_running_loop().time() - started
        percent = min(99, int(100 * elapsed / seconds)) if seconds > 0 else 99
        return replace(operation, percent=percent, retry_after_seconds=max(0.01, seconds - elapsed))

    def save(self) -> None:
        """Save the state."""
        self._state.save(
            lambda: replace(
                self._world.state(),
                failures_used=dict(self._deck.used),
                failures_seen=dict(self._deck.seen),
            )
        )

    def note(self, event: journals.Event, kind: contract.OperationKind, device_id: str, host_id: str) -> None:
        """Record an operator's change in the journal."""
        self._journal.write(event, kind, operation=None, request_id=None, device=device_id, host=host_id)

    def stop(self) -> None:
        """Stop all operations in their present state; with a state file the next start resumes them."""
        for task in (*self.running.values(), *self._later):
            task.cancel()

    # --- one operation ---

    def _course(self, record: records.Record) -> Course:
        kind = record.operation.kind
        about = {"device": record.device_id, "host": record.host_id}
        trouble = self._deck.draw((faults.Fail, faults.Stick), kind, **about)
        assert trouble is None or isinstance(trouble, faults.Fail | faults.Stick)
        return Course(
            seconds=self._draw_seconds(kind, record.device_id),
            trouble=trouble,
            appear=self._deck.draw((faults.Appear,), kind, **about),
        )

    def _draw_seconds(self, kind: contract.OperationKind, device_id: str) -> float:
        """Return the duration of an operation. It depends only on the device and on its earlier operations."""
        shortest, longest = self._configuration.operation_bounds(kind)
        key = f"{kind}/{device_id}"
        self._draws[key] += 1
        return random.Random(f"{key}/{self._draws[key]}").uniform(shortest, longest)  # noqa: S311 -- to be repeated

    def _start(self, record: records.Record, course: Course) -> asyncio.Task[None]:
        operation_id = record.operation.id
        self._cancelled[operation_id] = asyncio.Event()
        self._begun[operation_id] = (asyncio.get_running_loop().time(), course.seconds)
        task = self._tasks.create_task(self._carry_out(record, course), name=operation_id)
        self.running[operation_id] = task
        return task

    async def _carry_out(self, record: records.Record, course: Course) -> None:
        operation_id, trouble = record.operation.id, course.trouble
        error: errors.FabricError | None = None
        happened: bool | None = None
        try:
            if await self._is_cancelled_within(course, self._cancelled[operation_id]):
                raise errors.Aborted(
                    "the operation was cancelled", reason=errors.Reason.CANCELLED, retryable=False
                )
            del self._cancelled[operation_id]
            if isinstance(trouble, faults.Fail) and not trouble.happens:
                raise trouble.error()
            await self._change_slot(record, course.appear)
            if isinstance(trouble, faults.Fail):
                error, happened = trouble.error(), True
        except errors.FabricError as failure:
            error = failure
        finally:
            self._cancelled.pop(operation_id, None)
            self._begun.pop(operation_id, None)
            self.running.pop(operation_id, None)
        finished = self._world.finish(operation_id, error, happened=happened)
        self.save()
        self._log("finished", finished)

    async def _is_cancelled_within(self, course: Course, cancelled: asyncio.Event) -> bool:
        try:
            async with asyncio.timeout(None if isinstance(course.trouble, faults.Stick) else course.seconds):
                await cancelled.wait()
        except TimeoutError:
            return False
        return True

    async def _change_slot(self, record: records.Record, appear: faults.Appear | None) -> None:
        if record.create is not None or record.delete is not None:
            return
        if record.operation.kind is contract.OperationKind.DETACH:
            await self._host_slots.unplug(record.host_id, record.port_id)
        elif appear is None or appear.arrival != "late":
            device = self._world.device(record.device_id)
            await self._host_slots.plug(record.host_id, record.port_id, device, appear=appear)
        else:
            self._do_later(self._appear_late(record, appear), f"{record.operation.id} appears")

    async def _appear_late(self, record: records.Record, appear: faults.Appear) -> None:
        """Plug the device in after the delay, if it is still attached by this operation."""
        await asyncio.sleep(appear.late_seconds)

        def still() -> bool:
            stock = self._world.stock
            now = stock.device(record.device_id).connection if stock.has(record.device_id) else None
            return now is not None and now.request_id == record.operation.request_id

        if not still():
            return
        device = self._world.device(record.device_id)
        try:
            await self._host_slots.plug(record.host_id, record.port_id, device, appear=appear, still=still)
        except errors.Unavailable as error:
            _logger.warning("a device that was to appear late never does", extra={"error": error.message})

    def _do_later(self, what: Coroutine[None, None, None], name: str) -> None:
        task = self._tasks.create_task(what, name=name)
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    def latest(self, record: records.Record) -> records.Record:
        """Return the present record of the operation, or the given one if it was forgotten meanwhile."""
        try:
            return self._world.record(record.operation.id)
        except errors.NotFound:
            return record

    def _log(self, event: journals.Event, record: records.Record) -> None:
        operation = record.operation
        self._journal.write(
            event,
            operation.kind,
            operation=operation.id,
            request_id=operation.request_id,
            device=record.device_id,
            host=record.host_id,
            error=None if operation.error is None else operation.error.reason,
        )
