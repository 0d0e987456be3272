"""The `qemu` adapter: QEMU's hot-plug as a fabric, for developers' labs.

QEMU keeps the state: the place, request and mark of each device. So a later adapter finds everything. This adapter
remembers only operations, for its own lifetime.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import Self

from drawbar.fabric import budget, contract, errors, judgement
from drawbar.fabric.qemu import configuration, machine
from drawbar.fabric.qemu.fleet import Fleet
from drawbar.fabric.works import Works

_logger = logging.getLogger(__name__)

NAME = "qemu"
ENDPOINT_PREFIX = "file:"
PATIENCE_SECONDS = 2.0
"""An attach takes milliseconds, and so does the detach of a device whose slot the guest has powered off."""
LOOK_EVERY_SECONDS = 5.0
"""QEMU has no event for another client's device, so a watched fabric is read this often."""

PACE_SECONDS = 0.1
"""Events come in groups, which one reading serves; and QEMU closes a device's file shortly after the event."""


class QemuAdapter(contract.FabricAdapter):
    """Virtual machines and their common pool; made by `connect`. `close` it in the task that connected."""

    def __init__(
        self, config: contract.AdapterConfig, described: configuration.Configuration, tasks: asyncio.TaskGroup
    ) -> None:
        self._config = config
        self._tasks = tasks
        self._closed = False
        self._lifetime = AsyncExitStack()
        answer_seconds = min(machine.ANSWER_SECONDS, config.timeout_seconds / 2)
        self._news = asyncio.Event()
        flow = budget.Flow(config.limits, config.name, clock=asyncio.get_running_loop().time)
        self._fleet = Fleet(described, on_event=self._news.set, flow=flow, answer_seconds=answer_seconds)
        self._works = Works(self._fleet, tasks, prefix=NAME, shows_requests=True, on_finished=self._news.set)
        self._keeper: asyncio.Task[None] | None = None

    @classmethod
    def validate(cls, config: contract.AdapterConfig) -> None:
        """Check that the endpoint is `file:/path/of/fabric.json`, without parameters and credentials."""
        problems = []
        if not config.endpoint.startswith(ENDPOINT_PREFIX + "/"):
            problems.append(f'the endpoint "{config.endpoint}" is not of the form file:/path/of/fabric.json')
        if not config.timeout_seconds > 0:
            problems.append(f"the timeout of {config.timeout_seconds} s is not positive")
        problems += [
            f'the parameter "{name}" is unknown; the qemu adapter has none'
            for name in sorted(config.parameters)
        ]
        if config.credentials.present_parts:
            problems.append(
                "the qemu adapter takes no credentials, the file system guards the sockets; leave them out"
            )
        if problems:
            raise errors.InvalidConfiguration(problems)

    @classmethod
    def parameters_schema(cls) -> Mapping[str, object]:
        """Return the schema of no parameters."""
        return {"type": "object", "properties": {}, "additionalProperties": False}

    @classmethod
    async def connect(cls, config: contract.AdapterConfig) -> Self:
        """Connect and return the adapter, as the contract says.

        At least one virtual machine runs, and all running ones answer.
        """
        cls.validate(config)
        described = await asyncio.to_thread(
            configuration.load, Path(config.endpoint.removeprefix(ENDPOINT_PREFIX))
        )
        lifetime = AsyncExitStack()
        tasks = await lifetime.enter_async_context(asyncio.TaskGroup())
        adapter = cls(config, described, tasks)
        adapter._lifetime = lifetime
        try:
            await adapter._begin_to_keep()
        except BaseException:
            # Not through the group, which would wrap the error.
            await adapter.close()
            raise
        _logger.info("connected to a QEMU fabric", extra={"fabric": config.name})
        return adapter

    async def capabilities(self) -> contract.Capabilities:
        """Return all capabilities except slices, force and cancelling."""
        self._check_open()
        return contract.Capabilities(
            exact_device=True,
            select_by_model=True,
            watch=True,
            marks=True,
            serialization_scope=contract.SerializationScope.DEVICE,
        )

    async def hosts(self) -> tuple[contract.Host, ...]:
        """Return all hosts, as the contract says; the ports of a machine that does not run are at fault."""
        async with self._limit_time(), self._fleet.looking():
            return self._fleet.history.hosts

    async def devices(self) -> contract.Inventory:
        """Return all devices, as the contract says."""
        async with self._limit_time(), self._fleet.looking():
            history = self._fleet.history
            return contract.Inventory(version=history.version, devices=tuple(history.devices.values()))

    async def attach(self, request: contract.AttachRequest) -> contract.Operation:
        """Begin an attach, as the contract says; as a rule finished at once."""
        return await self._begin(request)

    async def detach(self, request: contract.DetachRequest) -> contract.Operation:
        """Begin a detach, as the contract says; finished at once if the guest has powered the slot off, else it takes about 6 s."""
        return await self._begin(request)

    async def operation(
        self, *, operation_id: str | None = None, request_id: str | None = None
    ) -> contract.Operation:
        """Return one operation, as the contract says; the attach of an earlier adapter is found while its connection stands."""
        async with self._limit_time():
            return await self._works.find(operation_id=operation_id, request_id=request_id)

    async def operations(self) -> tuple[contract.Operation, ...]:
        """Return all remembered operations, as the contract says."""
        self._check_open()
        return self._works.all()

    async def cancel(self, operation_id: str) -> contract.Operation:
        """Raise Unimplemented: the request to the guest cannot be withdrawn."""
        name = errors.cut(operation_id, contract.STRING_BYTES)
        raise errors.Unimplemented(
            f'operation "{name}" of the QEMU fabric cannot be cancelled; wait for its end'
        )

    @asynccontextmanager
    async def watch(self, from_version: str) -> AsyncIterator[AsyncIterator[contract.WatchEvent]]:
        """Yield the events after a version, as the contract says."""
        self._check_open()
        async with aclosing(self._fleet.history.follow(from_version)) as events:
            yield events

    async def close(self) -> None:
        """Close the connection, as the contract says; operations in flight go on in QEMU, and another adapter sees how they end."""
        self._stop()
        await self._lifetime.aclose()

    async def _begin(self, request: judgement.Request) -> contract.Operation:
        async with self._limit_time(changes=True):
            patience = min(PATIENCE_SECONDS, self._config.timeout_seconds / 4)
            return await self._works.begin(request, patience_seconds=patience)

    @asynccontextmanager
    async def _limit_time(self, *, changes: bool = False) -> AsyncIterator[None]:
        """Apply the contract's deadline to one call."""
        self._check_open()
        try:
            async with asyncio.timeout(self._config.timeout_seconds):
                yield
        except TimeoutError as error:
            text = f'the QEMU fabric "{self._config.name}" has not answered in time; read it again'
            raise errors.DeadlineExceeded(text, side_effects_unknown=changes) from error

    async def _begin_to_keep(self) -> None:
        async with self._limit_time(), self._fleet.looking() as hosts:
            if not any(host.running for host in hosts.values()):
                raise errors.Unavailable(
                    f'no virtual machine of the QEMU fabric "{self._config.name}" runs; start one'
                )
        self._keeper = self._tasks.create_task(self._keep(), name="keep the QEMU fabric")

    async def _keep(self) -> None:
        """Read the fabric after every event of QEMU, and tidy up; without events, read it while there are watchers."""
        while not self._closed:
            try:
                async with asyncio.timeout(LOOK_EVERY_SECONDS):
                    await self._news.wait()
            except TimeoutError:
                if not self._fleet.history.watchers:
                    continue
            await asyncio.sleep(PACE_SECONDS)
            self._news.clear()
            try:
                await self._fleet.tidy()
            except errors.FabricError as error:
                _logger.debug("the QEMU fabric cannot be tidied now", extra={"error": error.message})

    def _check_open(self) -> None:
        if self._closed:
            raise errors.Unavailable("the connection to the QEMU fabric is closed")

    def _stop(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._fleet.close()
        if self._keeper is not None:
            self._keeper.cancel()
        self._works.stop()
