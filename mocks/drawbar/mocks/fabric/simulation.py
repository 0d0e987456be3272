"""The simulated fabric as an adapter, with the manager's silence and faults around every call."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import NoReturn, Self

from drawbar.fabric import contract, errors
from drawbar.mocks.fabric import configuration as configurations
from drawbar.mocks.fabric import faults, records, slots
from drawbar.mocks.fabric import journal as journals
from drawbar.mocks.fabric.console import Console
from drawbar.mocks.fabric.history import History
from drawbar.mocks.fabric.works import Works
from drawbar.mocks.fabric.world import World

ENDPOINT_PREFIX = "file:"
PARAMETERS = frozenset({"journal", "state"})


class Door:
    """The token required by the manager, and the latest credentials; they are in memory only, and lost by a restart.

    Attributes:
        token: the required token; empty for none.
        blabs: true if refusals quote the caller's token, as a badly written manager does.
        tls: the TLS settings received with the credentials.
    """

    def __init__(self, token: str, *, blabs: bool = False) -> None:
        self.token = token
        self.blabs = blabs
        self.tls = contract.Tls()
        self._shown: contract.Credentials | None = None

    def show(self, credentials: contract.Credentials, tls: contract.Tls) -> None:
        """Replace the credentials."""
        self._shown, self.tls = credentials, tls

    def check(self) -> None:
        """Check the latest credentials.

        Raises:
            Unauthenticated: the token is wrong, or there are no credentials yet (NOT_CONFIGURED).
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
    """A fabric in memory; made by `running`, or by `connect` through the contract.

    Attributes:
        console: the operator's console.
        door: the check of credentials.
    """

    def __init__(
        self,
        configuration: configurations.Configuration,
        *,
        tasks: asyncio.TaskGroup,
        journal: journals.Journal,
        state: records.StateFile,
    ) -> None:
        self._keeps_marks = configuration.keeps_marks
        self._names_devices = configuration.chooses == "any"
        self._carves = any(spec.slice_step_bytes for _, spec in configuration.devices())
        self.door = Door(configuration.token)
        loaded = state.load()
        self._history = History()
        self._deck = faults.Deck(
            configuration.all_faults(), seen=loaded.failures_seen, used=loaded.failures_used
        )
        self._world = World(configuration, loaded, self._history)
        host_slots = slots.Slots({host.id: Path(host.sysfs) for host in configuration.hosts if host.sysfs})
        self._works = Works(
            configuration,
            self._world,
            deck=self._deck,
            host_slots=host_slots,
            tasks=tasks,
            journal=journal,
            state=state,
        )
        self.console = Console(self._world, self._works, self._deck, host_slots, self._history)
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
    ) -> AsyncIterator[Self]:
        """Run a fabric until the block ends; resume the saved operations in flight.

        Args:
            configuration: the whole fabric.
            journal: the file of the journal, or None.
            state: the file of the saved state, or None.

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
                )
                fabric._works.resume()
                try:
                    yield fabric
                finally:
                    fabric._stop()

    @classmethod
    def validate(cls, config: contract.AdapterConfig) -> None:
        """Check the endpoint, `file:/path/of/configuration.json`, and the parameters, journal and state (paths)."""
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
        """Connect as promised by the contract; call `close` in the task that connected."""
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
        """Accept credentials; the next call checks them."""
        self._check_open()
        self.door.show(credentials, tls)

    async def capabilities(self) -> contract.Capabilities:
        """Return the capabilities; slices if a device of the configuration can be carved."""
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
        """Return the hosts."""
        await self._hear("hosts")
        return self._world.hosts()

    async def devices(self) -> contract.Inventory:
        """Return the devices."""
        await self._hear("devices")
        return self._world.inventory()

    async def attach(self, request: contract.AttachRequest) -> contract.Operation:
        """Begin an attach; an attach without a duration is finished on return."""
        return await self._begin(request, "attach")

    async def detach(self, request: contract.DetachRequest) -> contract.Operation:
        """Begin a detach; a detach without a duration is finished on return."""
        return await self._begin(request, "detach")

    async def create_slice(self, request: contract.CreateSliceRequest) -> contract.Operation:
        """Begin to create a slice; if an attach has no duration, it is finished on return."""
        return await self._begin(request, contract.OperationKind.CREATE_SLICE)

    async def delete_slice(self, request: contract.DeleteSliceRequest) -> contract.Operation:
        """Begin to delete a slice; if an attach has no duration, it is finished on return."""
        return await self._begin(request, contract.OperationKind.DELETE_SLICE)

    async def operation(
        self, *, operation_id: str | None = None, request_id: str | None = None
    ) -> contract.Operation:
        """Return the operation of this id or request id."""
        await self._hear("operation")
        if operation_id is not None and request_id is None:
            return self._works.estimate_progress(self._world.record(operation_id))
        if request_id is not None and operation_id is None:
            return self._works.estimate_progress(self._world.record_of_request(request_id))
        raise errors.InvalidArgument("ask for an operation by its own id or by its request id")

    async def operations(self) -> tuple[contract.Operation, ...]:
        """Return the remembered operations."""
        await self._hear("operations")
        return tuple(self._works.estimate_progress(record) for record in self._world.list_records())

    async def cancel(self, operation_id: str) -> contract.Operation:
        """Cancel the operation and return it; once the slot changes, cancelling has no effect."""
        await self._hear("cancel")
        self._world.record(operation_id)
        await self._works.cancel(operation_id)
        return self._works.estimate_progress(self._world.record(operation_id))

    @asynccontextmanager
    async def watch(self, from_version: str) -> AsyncIterator[AsyncIterator[contract.WatchEvent]]:
        """Yield the events after a version."""
        await self._hear("watch")
        async with (
            aclosing(self._history.follow(from_version)) as events,
            aclosing(self._deliver(events)) as delivered,
        ):
            yield delivered

    async def close(self) -> None:
        """End the fabric; one made by `running` ends with its block."""
        self._stop()
        await self._lifetime.aclose()

    async def take_away(self, device_id: str) -> None:
        """Disconnect a device without a request: `Console.surprise_detach`."""
        self._check_open()
        await self.console.surprise_detach(device_id)

    # --- silence and faults ---

    async def _begin(
        self, request: records.Request, method: contract.OperationKind | str
    ) -> contract.Operation:
        slices = {contract.OperationKind.CREATE_SLICE, contract.OperationKind.DELETE_SLICE}
        if method in slices and not self._carves:
            raise errors.Unimplemented("no device of the simulated fabric can be carved")
        host_id = (
            request.host_id if isinstance(request, contract.AttachRequest | contract.DetachRequest) else None
        )
        await self._hear(method, device=request.device_id, host=host_id)
        record = await self._works.begin(request)
        lost = self._deck.draw((faults.LoseReply,), method, device=record.device_id, host=record.host_id)
        if lost is not None:
            self._works.save()
            await self._lose_reply(hang=lost.hang)
        return self._works.estimate_progress(self._works.latest(record))

    async def _hear(self, method: str, *, device: str | None = None, host: str | None = None) -> None:
        """Wait while the manager is silent; raise or hang if a fault hits the call before it begins."""
        self._check_open()
        await self.console.awake.wait()
        self._check_open()
        self.door.check()
        match self._deck.draw((faults.Refuse, faults.Hang), method, device=device, host=host):
            case faults.Refuse() as refusal:
                raise refusal.error()
            case faults.Hang():
                await self._never()

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
        """Yield the events, but hold them back while the manager is silent."""
        async for event in events:
            await self.console.awake.wait()
            yield event

    def _loses(self, event: contract.WatchEvent) -> bool:
        """Return true if an event is lost; after some time all watchers must list again."""
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
        """Stop all operations in their present state; with a state file the next start resumes them."""
        self._closing.set()
        self.console.awake.set()
        if self._resync is not None:
            self._resync.cancel()
        self._history.close()
        self._works.stop()


def _about(event: contract.WatchEvent) -> tuple[str | None, str | None]:
    """Return the ids of the event's device and host; None for an absent one."""
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
