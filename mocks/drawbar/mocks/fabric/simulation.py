"""The simulated fabric as an adapter: the world's rules, with time, files and slots around them.

An operation is one task. It waits, changes the slot of the host's mocked tree, and then in one step without an
await the world changes, the state is saved and the journal written: so no reader sees one without the others.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Self

from drawbar.fabric import contract, errors
from drawbar.mocks.fabric import configuration as configurations
from drawbar.mocks.fabric import journal as journals
from drawbar.mocks.fabric import records, slots
from drawbar.mocks.fabric.history import History
from drawbar.mocks.fabric.world import World

ENDPOINT_PREFIX = "file:"
PARAMETERS = frozenset({"journal", "state"})


class SimulatedFabric(contract.FabricAdapter):
    """A fabric in memory; made by `running`, or by `connect` where only the contract is known."""

    def __init__(
        self,
        configuration: configurations.Configuration,
        *,
        tasks: asyncio.TaskGroup,
        journal: journals.Journal,
        state: records.StateFile,
    ) -> None:
        self._configuration = configuration
        self._tasks = tasks
        self._journal = journal
        self._state = state
        loaded = state.load()
        self._failures_used = dict(loaded.failures_used)
        self._history = History()
        self._world = World(configuration, loaded, self._history)
        self._sysfs = {host.id: Path(host.sysfs) for host in configuration.hosts if host.sysfs}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._cancelled: dict[str, asyncio.Event] = {}
        self._started: dict[str, float] = {}
        self._closed = False
        self._lifetime = AsyncExitStack()

    @classmethod
    @asynccontextmanager
    async def running(
        cls,
        configuration: configurations.Configuration,
        *,
        journal: Path | None = None,
        state: Path | None = None,
    ) -> AsyncIterator[Self]:
        """A fabric that runs until the block is left; operations that were in flight before are resumed.

        Raises:
            InvalidConfiguration: the state file cannot be read.
        """
        with journals.Journal(journal) as lines:
            async with asyncio.TaskGroup() as tasks:
                fabric = cls(configuration, tasks=tasks, journal=lines, state=records.StateFile(state))
                for record in fabric._world.unfinished():
                    fabric._start(record)
                try:
                    yield fabric
                finally:
                    fabric._stop()

    @classmethod
    def validate(cls, config: contract.AdapterConfig) -> None:
        """The endpoint is `file:/path/of/configuration.json`; parameters: journal, state (paths)."""
        problems = []
        if not config.endpoint.startswith(ENDPOINT_PREFIX + "/"):
            problems.append(
                f'the endpoint "{config.endpoint}" is not of the form file:/path/of/configuration.json'
            )
        problems += [
            f'the parameter "{name}" is unknown; the simulated fabric has {", ".join(sorted(PARAMETERS))}'
            for name in sorted(config.parameters.keys() - PARAMETERS)
        ]
        if problems:
            raise errors.InvalidConfiguration(problems)

    @classmethod
    async def connect(cls, config: contract.AdapterConfig) -> Self:
        """As the contract says; `close` it in the task that connected."""
        cls.validate(config)
        path = Path(config.endpoint.removeprefix(ENDPOINT_PREFIX))
        configuration = await asyncio.to_thread(configurations.load, path)
        paths = {name: Path(value) for name, value in config.parameters.items()}
        async with AsyncExitStack() as stack:
            fabric = await stack.enter_async_context(cls.running(configuration, **paths))
            fabric._lifetime = stack.pop_all()  # noqa: SLF001 -- an instance of this very class
        return fabric

    async def capabilities(self) -> contract.Capabilities:
        """Everything but slices."""
        self._check_open()
        return contract.Capabilities(
            exact_device=True,
            select_by_model=True,
            force_detach=True,
            watch=True,
            cancel=True,
            serialization_scope=contract.SerializationScope.DEVICE,
        )

    async def hosts(self) -> tuple[contract.Host, ...]:
        """As the contract says."""
        self._check_open()
        return self._world.hosts()

    async def devices(self) -> contract.Inventory:
        """As the contract says."""
        self._check_open()
        return self._world.inventory()

    async def attach(self, request: contract.AttachRequest) -> contract.Operation:
        """As the contract says; finished at once when the configured time is zero."""
        return await self._begin(request, self._configuration.attach_seconds)

    async def detach(self, request: contract.DetachRequest) -> contract.Operation:
        """As the contract says; finished at once when the configured time is zero."""
        return await self._begin(request, self._configuration.detach_seconds)

    async def operation(
        self, *, operation_id: str | None = None, request_id: str | None = None
    ) -> contract.Operation:
        """As the contract says."""
        self._check_open()
        if operation_id is not None and request_id is None:
            return self._shown(self._world.record(operation_id))
        if request_id is not None and operation_id is None:
            return self._shown(self._world.record_of_request(request_id))
        raise errors.InvalidArgument("ask for an operation by its own id or by its request id")

    async def operations(self) -> tuple[contract.Operation, ...]:
        """As the contract says."""
        self._check_open()
        return tuple(self._shown(record) for record in self._world.remembered())

    async def cancel(self, operation_id: str) -> contract.Operation:
        """As the contract says; possible until the device is put into, or taken out of, its slot."""
        self._check_open()
        self._world.record(operation_id)
        if (cancelled := self._cancelled.get(operation_id)) is not None:
            cancelled.set()
            await asyncio.wait({self._running[operation_id]})
        return self._shown(self._world.record(operation_id))

    @asynccontextmanager
    async def watch(self, from_version: str) -> AsyncIterator[AsyncIterator[contract.WatchEvent]]:
        """As the contract says."""
        self._check_open()
        async with aclosing(self._history.follow(from_version)) as events:
            yield events

    async def close(self) -> None:
        """As the contract says; a fabric made by `running` ends with its block."""
        self._stop()
        await self._lifetime.aclose()

    async def take_away(self, device_id: str) -> None:
        """Disconnects a device without asking anybody, as an operator at the fabric manager's own console can.

        Raises:
            NotFound: no such device.
            Aborted: the device has an operation in flight.
        """
        self._check_open()
        connection = self._world.hold(device_id)
        if connection is None:
            return
        self._log_taken_away("started", device_id, connection.host_id)
        try:
            if connection.host_id in self._sysfs and connection.port_id is not None:
                await asyncio.to_thread(slots.unplug, self._sysfs[connection.host_id], connection.port_id)
        finally:
            self._world.take_away(device_id)
            self._save()
            self._log_taken_away("finished", device_id, connection.host_id)

    # --- operations ---

    async def _begin(self, request: records.Request, seconds: float) -> contract.Operation:
        self._check_open()
        record, new = self._world.begin(request)
        if new:
            self._save()
            self._log("started", record)
            task = self._start(record)
            if seconds == 0:
                # Not awaited itself: the caller's cancellation must not undo half an attach.
                await asyncio.wait({task})
        return self._shown(self._world.record(record.operation.id))

    def _start(self, record: records.Record) -> asyncio.Task[None]:
        operation_id = record.operation.id
        self._cancelled[operation_id] = asyncio.Event()
        self._started[operation_id] = asyncio.get_running_loop().time()
        task = self._tasks.create_task(self._carry_out(record), name=operation_id)
        self._running[operation_id] = task
        return task

    async def _carry_out(self, record: records.Record) -> None:
        operation_id = record.operation.id
        error: errors.FabricError | None = None
        try:
            if await self._is_cancelled_within(self._seconds(record), self._cancelled[operation_id]):
                raise errors.Aborted(
                    "the operation was cancelled", reason=errors.Reason.CANCELLED, retryable=False
                )
            del self._cancelled[operation_id]
            self._fail_if_told(record)
            await self._change_slot(record)
        except errors.FabricError as failure:
            error = failure
        finally:
            self._cancelled.pop(operation_id, None)
            self._started.pop(operation_id, None)
            self._running.pop(operation_id, None)
        finished = self._world.finish(operation_id, error)
        self._save()
        self._log("finished", finished)

    async def _is_cancelled_within(self, seconds: float, cancelled: asyncio.Event) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await cancelled.wait()
        except TimeoutError:
            return False
        return True

    def _fail_if_told(self, record: records.Record) -> None:
        """Raises the next failure that the configuration has for an attach of this device."""
        if record.attach is None:
            return
        for index, failure in enumerate(self._configuration.attach_fails):
            used = self._failures_used.get(str(index), 0)
            if failure.device == record.device_id and used < failure.times:
                self._failures_used[str(index)] = used + 1
                raise errors.BY_CODE[failure.code](
                    failure.message, reason=failure.reason, retryable=failure.retryable
                )

    async def _change_slot(self, record: records.Record) -> None:
        sysfs = self._sysfs.get(record.host_id)
        if sysfs is None or record.port_id is None:
            return
        if record.operation.kind is contract.OperationKind.ATTACH:
            await asyncio.to_thread(slots.plug, sysfs, record.port_id, self._world.device(record.device_id))
        else:
            await asyncio.to_thread(slots.unplug, sysfs, record.port_id)

    def _shown(self, record: records.Record) -> contract.Operation:
        """The operation as a caller sees it now: with progress while it runs."""
        operation = record.operation
        started = self._started.get(operation.id)
        if operation.done or started is None:
            return operation
        seconds = self._seconds(record)
        elapsed = asyncio.get_running_loop().time() - started
        percent = min(99, int(100 * elapsed / seconds)) if seconds > 0 else 99
        return replace(operation, percent=percent, retry_after_seconds=max(0.01, seconds - elapsed))

    def _seconds(self, record: records.Record) -> float:
        if record.operation.kind is contract.OperationKind.ATTACH:
            return self._configuration.attach_seconds
        return self._configuration.detach_seconds

    # --- files and life ---

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

    def _log_taken_away(self, event: journals.Event, device_id: str, host_id: str) -> None:
        kind = contract.OperationKind.DETACH
        self._journal.write(event, kind, operation=None, request_id=None, device=device_id, host=host_id)

    def _save(self) -> None:
        self._state.save(self._world.state(self._failures_used))

    def _check_open(self) -> None:
        if self._closed:
            raise errors.Unavailable("the simulated fabric is closed")

    def _stop(self) -> None:
        """Ends operations where they are; with a state file the next start resumes them."""
        self._closed = True
        self._history.close()
        for task in self._running.values():
            task.cancel()
