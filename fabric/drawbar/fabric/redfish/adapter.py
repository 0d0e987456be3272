"""The `redfish` adapter: fabrics whose manager speaks DMTF Redfish, by zones of endpoints, connections or composition.

The service keeps the state: the place of each device and, if it keeps a client's text, the owner. So a later adapter finds
everything. This adapter remembers only operations, for its own lifetime.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from typing import Self

from drawbar.fabric import contract, errors, judgement
from drawbar.fabric.redfish import (
    client,
    deadlines,
    keeping,
    parameters,
    profiles,
    selecting,
    service,
    transcripts,
)
from drawbar.fabric.works import Works

_logger = logging.getLogger(__name__)

NAME = "redfish"
PATIENCE_SECONDS = 5.0
# For this long the reading of `connect` is handed to the first listing, or for as long as it took.
HANDED_SECONDS_MIN = 5.0


class RedfishAdapter(contract.FabricAdapter):
    """One Redfish service; made by `connect`. `close` it in the task that connected."""

    _client: client.Client

    def __init__(self, config: contract.AdapterConfig, recorder: transcripts.Recorder | None = None) -> None:
        self._config = config
        self._recorder = recorder
        self._parameters = parameters.parse(config)
        self._lifetime = AsyncExitStack()
        self._closed = False
        # Until when, on the loop's clock, the first listing is the reading of `connect`: it is as old as its own would be.
        self._handed_until = 0.0

    @classmethod
    def validate(cls, config: contract.AdapterConfig) -> None:
        """Check that the endpoint is `https://host[:port]` and the parameters fit `parameters.SCHEMA`."""
        parameters.parse(config)

    @classmethod
    def parameters_schema(cls) -> Mapping[str, object]:
        """Return the schema of `parameters`."""
        return parameters.schema()

    @classmethod
    async def connect(
        cls, config: contract.AdapterConfig, recorder: transcripts.Recorder | None = None
    ) -> Self:
        """Connect to the fabric manager and return the adapter, as the contract says; the service root and the whole fabric can be read.

        With a recorder it keeps all requests and answers, but no events.
        """
        adapter = cls(config, recorder)
        try:
            async with deadlines.plain(config):
                adapter._client = await client.Client.connect(
                    config, recorder, requests_at_once=adapter._parameters.requests_at_once
                )
            adapter._lifetime.push_async_callback(adapter._client.close)
            async with adapter._limit_time():
                await adapter._connect()
        except BaseException:
            await adapter.close()
            raise
        return adapter

    async def _connect(self) -> None:
        """Choose the profile, read the service, and begin the background tasks."""
        clock = asyncio.get_running_loop().time
        began = clock()
        fabrics = self._parameters.fabrics
        name = self._parameters.profile or await selecting.choose_profile(self._client, fabrics)
        self._profile = self._parameters.apply(profiles.PROFILES[name])
        self._suggester = selecting.Suggester(self._client, self._profile, fabrics, bounded=self._limit_time)
        self._service = service.Service(
            self._client,
            selecting.build_method(self._profile, fabrics),
            task_seconds=self._parameters.task_seconds,
            uses_etags=self._parameters.uses_etags,
        )
        try:
            async with self._service.looking(whole=True):
                changes = await self._service.adopt_changes()
        except errors.Unimplemented as error:
            if suggestion := await self._suggester.suggest():
                raise errors.Unimplemented(f"{error.message}; {suggestion}") from error
            raise
        self._handed_until = clock() + max(clock() - began, HANDED_SECONDS_MIN)
        group = await self._lifetime.enter_async_context(asyncio.TaskGroup())
        keeper = keeping.Keeper(
            self._client,
            self._service,
            poll_seconds=self._parameters.poll_seconds,
            bounded=self._limit_time,
        )
        self._works = Works(self._service, group, prefix=NAME, on_finished=keeper.poke.set)
        tasks = [
            group.create_task(keeper.poll(), name="keep the Redfish fabric"),
            group.create_task(keeper.listen(), name="listen to the Redfish service"),
            *(
                group.create_task(self._service.release(change), name=f"follow {change.task_uri}")
                for change in changes
            ),
        ]
        self._lifetime.callback(self._works.stop)
        for task in tasks:
            self._lifetime.callback(task.cancel)
        _logger.info("connected to a Redfish service", extra={"fabric": self._config.name, "profile": name})

    async def capabilities(self) -> contract.Capabilities:
        """Return the capabilities, as the contract says; there is no force and no cancelling."""
        self._check_open()
        return contract.Capabilities(
            exact_device=self._profile.method is not profiles.MethodName.CONSTRAINED,
            select_by_model=True,
            slices=self._service.carves,
            watch=True,
            marks=bool(self._profile.note_property),
            serialization_scope=contract.SerializationScope.DEVICE,
        )

    async def hosts(self) -> tuple[contract.Host, ...]:
        """Return all hosts, as the contract says; from the connections as they are now, and the hosts as they were read last."""
        async with self._limit_time(), self._service.looking():
            self._service.check_limits()
            return self._service.history.hosts

    async def devices(self) -> contract.Inventory:
        """Return all devices, as the contract says."""
        is_handed = asyncio.get_running_loop().time() < self._handed_until
        self._handed_until = 0.0
        async with self._limit_time(), self._service.looking(whole=not is_handed):
            self._service.check_limits()
            history = self._service.history
            inventory = contract.Inventory(
                version=history.version,
                devices=tuple(history.devices.values()),
                unread=contract.bound_sentences(self._service.unread.values()),
                oddities=contract.bound_sentences(
                    (*filter(None, (self._profile.unverified,)), *self._service.oddities)
                ),
            )
        suggestion = "" if inventory.devices else await self._suggester.suggest()
        if suggestion:
            oddities = contract.bound_sentences((suggestion, *inventory.oddities))
            inventory = replace(inventory, oddities=oddities)
        return inventory

    async def attach(self, request: contract.AttachRequest) -> contract.Operation:
        """Begin an attach, as the contract says."""
        return await self._begin(request)

    async def detach(self, request: contract.DetachRequest) -> contract.Operation:
        """Begin a detach, as the contract says."""
        return await self._begin(request)

    async def create_slice(self, request: contract.CreateSliceRequest) -> contract.Operation:
        """Begin to make a slice, as the contract says; a chunk of a memory domain."""
        return await self._begin(request)

    async def delete_slice(self, request: contract.DeleteSliceRequest) -> contract.Operation:
        """Begin to delete a slice, as the contract says."""
        return await self._begin(request)

    async def operation(
        self, *, operation_id: str | None = None, request_id: str | None = None
    ) -> contract.Operation:
        """Return one operation, as the contract says; the attach of an earlier adapter is found while its connection shows the request."""
        async with self._limit_time():
            return await self._works.find(operation_id=operation_id, request_id=request_id)

    async def operations(self) -> tuple[contract.Operation, ...]:
        """Return all remembered operations, as the contract says."""
        self._check_open()
        return self._works.all()

    async def cancel(self, operation_id: str) -> contract.Operation:
        """Raise Unimplemented: half a change of a zone cannot be undone."""
        name = errors.cut(operation_id, contract.STRING_BYTES)
        raise errors.Unimplemented(
            f'operation "{name}" of the Redfish service cannot be cancelled; wait for its end'
        )

    @asynccontextmanager
    async def watch(self, from_version: str) -> AsyncIterator[AsyncIterator[contract.WatchEvent]]:
        """Yield the events after a version, as the contract says."""
        self._check_open()
        async with aclosing(self._service.history.follow(from_version)) as events:
            yield events

    async def close(self) -> None:
        """Close the connection, as the contract says; operations in flight go on in the service, and another adapter sees how they end."""
        if self._closed:
            return
        self._closed = True
        if hasattr(self, "_service"):
            self._service.history.interrupt(
                errors.Unavailable("the connection to the Redfish service is closed")
            )
        await self._lifetime.aclose()

    async def _begin(self, request: judgement.Request) -> contract.Operation:
        async with self._limit_time(changes=True):
            if isinstance(request, judgement.Slicing):
                self._service.prepare_slicing()
            patience = min(PATIENCE_SECONDS, self._config.timeout_seconds / 4)
            return await self._works.begin(request, patience_seconds=patience)

    @asynccontextmanager
    async def _limit_time(self, *, changes: bool = False) -> AsyncIterator[None]:
        """Apply the contract's deadline to one call; each answer of the service extends it."""
        self._check_open()
        async with deadlines.extend_deadline(self._config, self._client, changes=changes):
            yield

    def _check_open(self) -> None:
        if self._closed:
            raise errors.Unavailable("the connection to the Redfish service is closed")
