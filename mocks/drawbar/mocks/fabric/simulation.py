"""The simulated fabric as an adapter: what a caller sees, with the manager's moods before and after every call."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import NoReturn, Self

from drawbar.fabric import contract, errors
from drawbar.mocks.fabric import configuration as configurations
from drawbar.mocks.fabric import faults, latencies, records, slots
from drawbar.mocks.fabric import journal as journals
from drawbar.mocks.fabric.console import Console
from drawbar.mocks.fabric.history import History
from drawbar.mocks.fabric.works import Works
from drawbar.mocks.fabric.world import World

ENDPOINT_PREFIX = "file:"
PARAMETERS = frozenset({"journal", "state"})


class Door:
    """The token that the manager requires, and the credentials it received last; in memory only, lost by a restart.

    Attributes:
        token: what callers must have shown; empty: nothing.
        blabs: refusals quote the token that was shown, as those of badly written managers do.
        tls: the settings of TLS that came with the credentials.
    """

    def __init__(self, token: str, *, blabs: bool = False) -> None:
        self.token = token
        self.blabs = blabs
        self.tls = contract.Tls()
        self._shown: contract.Credentials | None = None

    def show(self, credentials: contract.Credentials, tls: contract.Tls) -> None:
        """Takes over credentials; what was shown before counts no longer."""
        self._shown, self.tls = credentials, tls

    def check(self) -> None:
        """Lets a call in.

        Raises:
            Unauthenticated: NOT_CONFIGURED where nothing was shown yet; the token is another one.
        """
        if not self.token or (self._shown is not None and self._shown.token == self.token):
            return
        if self._shown is None:
            raise errors.Unauthenticated(
                "the simulated fabric manager was shown no credentials yet; send them",
                reason=errors.Reason.NOT_CONFIGURED,
            )
        quoted = f' "{self._shown.token}"' if self.blabs else ""
        raise errors.Unauthenticated(f"the simulated fabric manager does not know this token{quoted}")


class SimulatedFabric(contract.FabricAdapter):
    """A fabric in memory; made by `running`, or by `connect` where only the contract is known.

    Attributes:
        console: what an operator does at the fabric manager's own console.
        door: the credentials that it requires.
    """

    def __init__(
        self,
        configuration: configurations.Configuration,
        *,
        tasks: asyncio.TaskGroup,
        journal: journals.Journal,
        state: records.StateFile,
        forget_operations: bool = False,
    ) -> None:
        self._latencies = configuration.latencies
        self._keeps_marks = configuration.keeps_marks
        self._names_devices = configuration.chooses == "any"
        self._carves = any(spec.slice_step_bytes for _, spec in configuration.devices())
        self.door = Door(configuration.token)
        loaded = state.load()
        if forget_operations:
            loaded = replace(loaded, records=())
        self._history = History()
        self._dice = latencies.Dice(configuration.seed, loaded.draws)
        self._deck = faults.Deck(
            configuration.all_faults(), self._dice, seen=loaded.failures_seen, used=loaded.failures_used
        )
        self._world = World(configuration, loaded, self._history)
        places = slots.Slots({host.id: Path(host.sysfs) for host in configuration.hosts if host.sysfs})
        self._works = Works(
            configuration,
            self._world,
            deck=self._deck,
            dice=self._dice,
            places=places,
            tasks=tasks,
            journal=journal,
            state=state,
        )
        self.console = Console(self._world, self._works, self._deck, places, self._history)
        self._running = self._works.running
        self._history.loses = self._loses
        self._resync: asyncio.TimerHandle | None = None
        self._closing = asyncio.Event()
        self._lifetime = AsyncExitStack()

    @classmethod
    @asynccontextmanager
    async def running(
        cls,
        configuration: configurations.Configuration,
        *,
        journal: Path | None = None,
        state: Path | None = None,
        forget_operations: bool = False,
    ) -> AsyncIterator[Self]:
        """A fabric that runs until the block is left; operations that were in flight before are resumed.

        Args:
            configuration: the whole fabric.
            journal: where what it does is written.
            state: where it keeps what it remembers over a restart.
            forget_operations: of that, it has forgotten the operations: those in flight come to nothing.

        Raises:
            InvalidConfiguration: the state file cannot be read.
        """
        with journals.Journal(journal) as lines:
            async with asyncio.TaskGroup() as tasks:
                fabric = cls(
                    configuration,
                    tasks=tasks,
                    journal=lines,
                    state=records.StateFile(state),
                    forget_operations=forget_operations,
                )
                fabric._works.resume()
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
            journal, state = paths.get("journal"), paths.get("state")
            fabric = await stack.enter_async_context(cls.running(configuration, journal=journal, state=state))
            await fabric.configure(config.credentials, config.tls)
            fabric.door.check()
            fabric._lifetime = stack.pop_all()  # noqa: SLF001 -- an instance of this very class
        return fabric

    async def configure(self, credentials: contract.Credentials, tls: contract.Tls) -> None:
        """Is shown credentials; whether they do shows the next call."""
        self._check_open()
        self.door.show(credentials, tls)

    async def capabilities(self) -> contract.Capabilities:
        """As the contract says; slices where a device of the configuration can be carved."""
        await self._hear("capabilities")
        return contract.Capabilities(
            exact_device=self._names_devices,
            select_by_model=True,
            slices=self._carves,
            force_detach=True,
            watch=True,
            cancel=True,
            marks=self._keeps_marks,
            serialization_scope=contract.SerializationScope.DEVICE,
        )

    async def hosts(self) -> tuple[contract.Host, ...]:
        """As the contract says; read when the call comes in, and old by the latency when it answers."""
        await self._hear("hosts")
        hosts = self._world.hosts()
        await self._pass(self._latencies.hosts, "hosts")
        return hosts

    async def devices(self) -> contract.Inventory:
        """As the contract says; read when the call comes in, and old by the latency when it answers."""
        await self._hear("devices")
        inventory = self._world.inventory()
        await self._pass(self._latencies.devices, "devices")
        return inventory

    async def attach(self, request: contract.AttachRequest) -> contract.Operation:
        """As the contract says; finished at once when it takes no time."""
        return await self._begin(request, "attach", self._latencies.attach_call)

    async def detach(self, request: contract.DetachRequest) -> contract.Operation:
        """As the contract says; finished at once when it takes no time."""
        return await self._begin(request, "detach", self._latencies.detach_call)

    async def create_slice(self, request: contract.CreateSliceRequest) -> contract.Operation:
        """As the contract says; finished at once when an attach takes no time."""
        return await self._begin(request, contract.OperationKind.CREATE_SLICE, None)

    async def delete_slice(self, request: contract.DeleteSliceRequest) -> contract.Operation:
        """As the contract says; finished at once when an attach takes no time."""
        return await self._begin(request, contract.OperationKind.DELETE_SLICE, None)

    async def operation(
        self, *, operation_id: str | None = None, request_id: str | None = None
    ) -> contract.Operation:
        """As the contract says."""
        await self._hear("operation")
        await self._pass(self._latencies.operation, "operation")
        if operation_id is not None and request_id is None:
            return self._works.shown(self._world.record(operation_id))
        if request_id is not None and operation_id is None:
            return self._works.shown(self._world.record_of_request(request_id))
        raise errors.InvalidArgument("ask for an operation by its own id or by its request id")

    async def operations(self) -> tuple[contract.Operation, ...]:
        """As the contract says."""
        await self._hear("operations")
        await self._pass(self._latencies.operations, "operations")
        return tuple(self._works.shown(record) for record in self._world.remembered())

    async def cancel(self, operation_id: str) -> contract.Operation:
        """As the contract says; possible until the device is put into, or taken out of, its slot."""
        await self._hear("cancel")
        await self._pass(self._latencies.cancel, "cancel")
        self._world.record(operation_id)
        await self._works.cancel(operation_id)
        return self._works.shown(self._world.record(operation_id))

    @asynccontextmanager
    async def watch(self, from_version: str) -> AsyncIterator[AsyncIterator[contract.WatchEvent]]:
        """As the contract says."""
        await self._hear("watch")
        async with (
            aclosing(self._history.follow(from_version)) as events,
            aclosing(self._deliver(events)) as delivered,
        ):
            yield delivered

    async def close(self) -> None:
        """As the contract says; a fabric made by `running` ends with its block."""
        self._stop()
        await self._lifetime.aclose()

    async def take_away(self, device_id: str) -> None:
        """Disconnects a device without asking anybody: `Console.surprise_detach`."""
        self._check_open()
        await self.console.surprise_detach(device_id)

    # --- the manager's moods ---

    async def _begin(
        self,
        request: records.Request,
        method: contract.OperationKind | str,
        latency: latencies.Distribution | None,
    ) -> contract.Operation:
        slices = {contract.OperationKind.CREATE_SLICE, contract.OperationKind.DELETE_SLICE}
        if method in slices and not self._carves:
            raise errors.Unimplemented("no device of the simulated fabric can be carved")
        host_id = (
            request.host_id if isinstance(request, contract.AttachRequest | contract.DetachRequest) else None
        )
        await self._hear(method, device=request.device_id, host=host_id)
        record = await self._works.begin(request)
        await self._pass(latency, f"{method}-call", record.device_id)
        lost = self._deck.draw((faults.LoseReply,), method, device=record.device_id, host=record.host_id)
        if lost is not None:
            self._works.save()
            await self._lose_reply(hang=lost.hang)
        return self._works.shown(self._works.latest(record))

    async def _hear(self, method: str, *, device: str | None = None, host: str | None = None) -> None:
        """Waits while the manager is silent, and ends the call if it is to end before it begins."""
        self._check_open()
        await self.console.awake.wait()
        self._check_open()
        self.door.check()
        match self._deck.draw((faults.Refuse, faults.Hang), method, device=device, host=host):
            case faults.Refuse() as refusal:
                raise refusal.error()
            case faults.Hang():
                await self._never()

    async def _pass(self, latency: latencies.Distribution | None, *key: str) -> None:
        """Lets the latency of a call pass; a fabric that ends does not wait for it."""
        seconds = self._dice.seconds(latency, "call", *key)
        if seconds == 0:
            return
        try:
            async with asyncio.timeout(seconds):
                await self._closing.wait()
        except TimeoutError:
            return
        self._check_open()

    async def _lose_reply(self, *, hang: bool) -> NoReturn:
        if hang:
            await self._never()
        raise errors.Unavailable(
            "the simulated fabric manager lost its connection before it answered",
            reason="REPLY_LOST",
            side_effects_unknown=True,
        )

    async def _never(self) -> NoReturn:
        await self._closing.wait()
        raise errors.Unavailable("the simulated fabric is closed")

    async def _deliver(
        self, events: AsyncIterator[contract.WatchEvent]
    ) -> AsyncGenerator[contract.WatchEvent, None]:
        """The events, unless the manager is silent."""
        async for event in events:
            await self.console.awake.wait()
            yield event

    def _loses(self, event: contract.WatchEvent) -> bool:
        """Whether an event gets lost; some time after that, all watchers list again."""
        device, host = _about(event)
        lost = self._deck.draw((faults.LoseEvents,), "event", device=device, host=host)
        if lost is None:
            return False
        if self._resync is None:
            loop = asyncio.get_running_loop()
            self._resync = loop.call_later(lost.resync_seconds, self._tell_to_list_again)
        return True

    def _tell_to_list_again(self) -> None:
        self._resync = None
        self._history.resync()

    def _check_open(self) -> None:
        if self._closing.is_set():
            raise errors.Unavailable("the simulated fabric is closed")

    def _stop(self) -> None:
        """Ends operations where they are; with a state file the next start resumes them."""
        self._closing.set()
        self.console.awake.set()
        if self._resync is not None:
            self._resync.cancel()
        self._history.close()
        self._works.stop()


def _about(event: contract.WatchEvent) -> tuple[str | None, str | None]:
    """The device and the host that an event is about."""
    match event:
        case contract.DeviceChanged(device=device):
            return device.id, None
        case contract.DeviceGone(device_id=device_id):
            return device_id, None
        case contract.HostChanged(host=host):
            return None, host.id
        case contract.OperationChanged(operation=operation):
            return (None if operation.device is None else operation.device.id), None
        case _:
            return None, None
