"""The `redfish` adapter: fabrics whose manager speaks DMTF Redfish, by zones of endpoints, connections or composition.

The service keeps the state: the place of each device and, if it keeps a client's text, the owner. So a later adapter finds
everything. This adapter remembers only operations, for its own lifetime.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Set
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from typing import Self

from drawbar.fabric import backoff, budget, contract, errors, judgement
from drawbar.fabric.history import History
from drawbar.fabric.redfish import (
    appliance,
    client,
    composition,
    connections,
    constrained,
    documents,
    entities,
    methods,
    parameters,
    polling,
    profiles,
    reading,
    remembered,
    restoring,
    tasks,
    transcripts,
    zones,
)
from drawbar.fabric.works import Report, Works

_logger = logging.getLogger(__name__)

NAME = "redfish"
PATIENCE_SECONDS = 5.0
# Events come in groups, which one reading serves.
EVENTS_PACE_SECONDS = 0.2
EVENTS_BACKOFF_SECONDS_MIN = 1.0
EVENTS_BACKOFF_SECONDS_MAX = 60.0
# After a flood of events, without which the service is read every so often; and of a service that lists too much.
LIMIT_BACKOFF_SECONDS_MAX = 300.0
# A stream that was open for this long counts as a success.
EVENTS_GOOD_SECONDS = 60.0
# Of one change, each after another client has changed the same resource.
ATTEMPTS = 4
# For this long the reading of `connect` is handed to the first listing, or for as long as it took.
HANDED_SECONDS_MIN = 5.0


class _Service:
    """The fabric behind the adapter; `works.Backend`."""

    def __init__(
        self, connection: client.Client, method: methods.Method, *, task_seconds: float, uses_etags: bool
    ) -> None:
        self.history = History()
        self.pending: dict[str, tuple[str, str] | None] = {}
        self.oddities: tuple[str, ...] = ()
        self.unread: Mapping[str, str] = {}
        self._client = connection
        self._method = method
        # Where the service chooses the device.
        self._constrained = method if isinstance(method, constrained.Constrained) else None
        # Where slices of devices can be made.
        self._carving = method if isinstance(method, connections.Connections) else None
        # The next look has to be a whole one: slices may have been made or deleted since the last.
        self.is_changed = False
        self._task_seconds = task_seconds
        self._uses_etags = uses_etags
        # Changes of earlier clients that still run, with their devices.
        self._foreign: dict[tasks.Change, frozenset[str]] = {}
        # A sentence where the service lists more devices or hosts than it may; what was known before goes on.
        self.excess = ""
        self._lock = asyncio.Lock()
        # By host id, and one for slices.
        self._turns: dict[str, asyncio.Lock] = {}
        self._view = methods.View()
        self._remembered = remembered.Remembered(asyncio.get_running_loop().time)
        # Requests of the last whole look for resources that are not remembered.
        self._fixed_requests = 0

    def plan_poll(self, poll_seconds: float) -> polling.Poll:
        """Return when the service is polled next, and how much of it is read then."""
        return polling.plan(poll_seconds, fixed=self._fixed_requests, remembered=len(self._remembered))

    @asynccontextmanager
    async def looking(self, *, whole: bool = False, turns: int | None = None) -> AsyncIterator[None]:
        """Read the connections, and everything else if necessary; see `works.Backend`.

        Devices and hosts are read again if `whole` is set or slices were changed.

        Args:
            whole: whether more than the connections is read.
            turns: the number of remembered resources to read again; None for all members of collections.
        """
        async with self._lock:
            try:
                await self._reread(whole=whole, turns=turns)
            except errors.FabricError as trouble:
                self.history.interrupt(trouble)
                raise
            self._view = self._bounded(self._method.view())
            self.unread = self._view.unread
            if self._view.oddities != self.oddities:
                self.oddities = self._view.oddities
                for sentence in self.oddities:
                    _logger.warning("something in the Redfish service is odd: %s", sentence)
            self.publish()
            yield

    def _bounded(self, view: methods.View) -> methods.View:
        """Return the view; if it exceeds the limits, omit its new devices and hosts."""
        self.excess = self._excess(view)
        self.history.exceed("listing", self.excess)
        if not self.excess:
            return view
        listed_before = {host.id for host in self.history.hosts}
        return replace(
            view,
            devices={name: view.devices[name] for name in self.history.devices if name in view.devices},
            hosts={name: host for name, host in view.hosts.items() if name in listed_before},
        )

    def _excess(self, view: methods.View) -> str:
        listing = self._client.listing()
        try:
            listing.count(budget.Counted.DEVICES, len(view.devices))
            listing.count(budget.Counted.HOSTS, len(view.hosts))
            listing.count(budget.Counted.PORTS, sum(len(host.ports) for host in view.hosts.values()))
        except errors.FabricError as error:
            return error.message
        return ""

    async def _reread(self, *, whole: bool = False, turns: int | None = None) -> None:
        """Read the connections again, and devices and hosts if they may have changed; the caller holds the lock."""
        if not (whole or self.is_changed):
            await self._method.read_connections(reading.Reader(self._client))
            return
        reader = reading.Reader(self._client, self._remembered, turns=None if self.is_changed else turns)
        is_changed, self.is_changed = self.is_changed, False
        try:
            await self._method.read(reader)
        except errors.FabricError:
            self.is_changed |= is_changed
            raise
        self._remembered.keep_only(reader.touched)
        self._fixed_requests = reader.requests

    def publish(self) -> None:
        """Publish the last reading; see `works.Backend`."""
        self.history.publish(
            tuple(self._view.devices.values()), self._hosts(), unread=self._view.unread.keys()
        )

    def judge(self, request: judgement.Request) -> judgement.Stay | judgement.Begin:
        """Return the decision on a request; see `works.Backend`."""
        hosts = {host.id: host for host in self._hosts()}
        devices, busy = self.history.devices, self.pending.keys()
        self._check_read(request.device_id)
        match request:
            case contract.AttachRequest():
                self._check_followed(request)
                return judgement.attach(
                    request,
                    devices,
                    hosts,
                    busy=busy,
                    choose_port=judgement.free_port,
                    fabric_chooses=self._constrained is not None,
                )
            case contract.DetachRequest():
                return judgement.detach(request, devices, hosts, busy=busy)
            case contract.CreateSliceRequest():
                return judgement.create_slice(request, devices, busy=busy)
            case contract.DeleteSliceRequest():
                return judgement.delete_slice(request, devices, busy=busy)

    def _check_read(self, device_id: str | None) -> None:
        """Refuse to judge a device that is not shown while a part of the service cannot be read.

        Raises:
            Unavailable: it may be there, and attached.
        """
        view = self._method.view()
        if device_id is not None and view.unread and device_id not in view.devices:
            raise errors.Unavailable(
                f"device {device_id} is not listed, and the Redfish service cannot show all of its parts "
                f"({next(iter(view.unread.values()))}); look at the service",
                reason="NOT_READ",
            )

    @property
    def carves(self) -> bool:
        """Return whether slices can be made of some memory."""
        return self._carving is not None and self._carving.carves

    async def hold(self) -> tuple[tasks.Change, ...]:
        """Make the devices of changes that run already pending, and return these changes; each is to be `release`d."""
        for change in await tasks.changes(reading.Reader(self._client)):
            device_ids = self._method.device_ids(change.uris)
            if device_ids or self._constrained is not None:
                self._foreign[change] = device_ids
                self.pending |= dict.fromkeys(device_ids)
        return tuple(self._foreign)

    def _check_followed(self, request: contract.AttachRequest) -> None:
        """Refuse an attach while an earlier client's change of the host runs, whose device is not known yet."""
        if self._constrained is None:
            return
        if any(self._constrained.is_at(change.uris, request.host_id) for change in self._foreign):
            raise errors.Aborted(
                f"the service is still changing host {request.host_id}; wait for the end of its task",
                reason=errors.Reason.OPERATION_PENDING,
            )

    async def release(self, change: tasks.Change) -> None:
        """Wait for the end of a change, but no longer than one may take; its devices are not pending any more then."""
        try:
            async with asyncio.timeout(self._task_seconds):
                await self._client.task_ended(change.task_uri)
            async with self.looking():
                self._released(change)
                self.publish()
        except (errors.FabricError, TimeoutError) as error:
            _logger.warning("a change in the Redfish service is not followed", extra={"error": str(error)})
            self._released(change)

    def _released(self, change: tasks.Change) -> None:
        self.is_changed |= self.carves
        device_ids = self._foreign.pop(change, frozenset())
        for device_id in device_ids.difference(*self._foreign.values()):
            self.pending.pop(device_id, None)

    async def carry_out(
        self, request: judgement.Request, begun: judgement.Begin, report: Report
    ) -> str | None:
        """Make the change of a request; see `works.Backend`."""
        match request:
            case contract.AttachRequest() if self._constrained is not None:
                return await self._attach_any(self._constrained, request, begun.device_id, report)
            case contract.AttachRequest():
                await self._attach(request, begun.device_id, begun.port_id, report)
            case contract.DetachRequest():
                await self._detach(request, begun.device_id, report)
            case contract.CreateSliceRequest() | contract.DeleteSliceRequest():
                await self._change_slices(request, report)
        return None

    async def _attach(
        self, request: contract.AttachRequest, device_id: str, port_id: str, report: Report
    ) -> None:
        def plan() -> methods.Call:
            current = self._method.view().devices.get(device_id)
            if current is None or current.connection is not None:
                raise errors.Aborted(
                    f"device {device_id} was attached or removed meanwhile; read the fabric again"
                )
            return self._method.attach(request, device_id, port_id)

        await self._carry_out(request.host_id, self._is_about(device_id), plan, report, meant=device_id)

    async def _attach_any(
        self, method: constrained.Constrained, request: contract.AttachRequest, device_id: str, report: Report
    ) -> str:
        """Ask the service to attach a device like this one; return the id of the attached device."""
        host_id = request.host_id
        before: frozenset[str] = frozenset()
        came: str | None = None

        def attached() -> frozenset[str]:
            return frozenset(
                device.id
                for device in method.view().devices.values()
                if device.connection is not None and device.connection.host_id == host_id
            )

        def plan() -> methods.Call:
            nonlocal before
            before = attached()
            return method.attach(request, device_id, "")

        async def conclude() -> bool:
            nonlocal came
            async with self._lock:
                await method.read_connections(reading.Reader(self._client))
                devices = method.view().devices
                new = {new_id for new_id in attached() - before if devices[new_id].model == request.model}
            came = min(new, default=None)
            return came is not None

        def is_at_host(uris: Set[str]) -> bool:
            return method.is_at(uris, host_id)

        await self._carry_out(host_id, is_at_host, plan, report, conclude)
        if came is None:
            raise errors.Unavailable(
                f"the service accepted the request for a device on host {host_id} and shows none; read the fabric again",
                reason="NOT_SHOWN",
                side_effects_unknown=True,
            )
        return came

    def _is_about(self, device_id: str) -> Callable[[Set[str]], bool]:
        return lambda uris: device_id in self._method.device_ids(uris)

    async def _detach(self, request: contract.DetachRequest, device_id: str, report: Report) -> None:
        def plan() -> methods.Call | None:
            self._check_read(device_id)
            return self._method.detach(request, device_id)

        await self._carry_out(request.host_id, self._is_about(device_id), plan, report, meant=device_id)

    async def _change_slices(self, request: judgement.Slicing, report: Report) -> None:
        """Make or delete a slice."""
        method = self._carving
        if method is None:
            raise errors.Unimplemented("the Redfish service makes no slices of devices")

        def plan() -> methods.Call | None:
            if isinstance(request, contract.CreateSliceRequest):
                return method.create_slice(request)
            return method.delete_slice(request)

        self.is_changed = True
        try:
            await self._carry_out("", self._is_about(request.device_id), plan, report)
        finally:
            self.is_changed = True

    async def _carry_out(
        self,
        turn: str,
        concerns: Callable[[Set[str]], bool],
        plan: Callable[[], methods.Call | None],
        report: Report,
        conclude: Callable[[], Awaitable[bool]] | None = None,
        *,
        meant: str = "",
    ) -> None:
        """Send what the plan makes of a new reading: again where another client changed the resource in between.

        One at a time for a host: its connections may be one resource of the service.

        Args:
            turn: the id of the host; empty for slices.
            concerns: whether a change of these URIs may be this one.
            plan: returns the request, from a new reading.
            report: called with the progress.
            conclude: called once the change may be made; returns whether it is.
            meant: the device that is attached or detached; the host's others have to stay.
        """

        def progressed(progress: client.Progress) -> None:
            report(progress.percent, progress.retry_after_seconds)

        try:
            async with asyncio.timeout(self._task_seconds), self._turns.setdefault(turn, asyncio.Lock()):
                stale = ""
                for attempt in range(1, ATTEMPTS + 1):
                    async with self._lock:
                        await self._reread()
                        call = plan()
                        kept = self._connections() if call is not None and call.is_shared else {}
                    if call is None:
                        return
                    etag = await self._usable_etag(call, stale)
                    try:
                        answer = await self._sent(call, etag, progressed)
                    except errors.Aborted as error:
                        if attempt == ATTEMPTS or error.reason != errors.Reason.STALE_ETAG:
                            _suggest_etags(error, is_unchanged=bool(etag) and call.etag == stale)
                            raise
                        stale = call.etag or ""
                    except errors.FabricError as error:
                        if error.side_effects_unknown:
                            await self._settled(concerns)
                            await self._check_kept(kept, replace(call, change=None), turn, meant)
                            with contextlib.suppress(errors.FabricError):
                                if conclude is not None and await conclude():
                                    return
                        raise
                    else:
                        if conclude is not None:
                            await conclude()
                        await self._check_kept(kept, call, turn, meant, answer)
                        return
        except TimeoutError as error:
            raise errors.DeadlineExceeded(
                f"the Redfish service has not made the change in {self._task_seconds:.0f} s; look at its tasks"
            ) from error

    async def _sent(
        self, call: methods.Call, etag: str | None, progressed: Callable[[client.Progress], None]
    ) -> documents.Document | None:
        """Send a request; return the resource that the answer shows, or None.

        Raises:
            FabricError: it was refused, or failed; a refusal has the request's hint.
        """
        body, if_match = call.with_etag(etag)
        try:
            return await self._client.change(
                call.method, call.uri, body, etag=if_match, on_progress=progressed
            )
        except errors.Refused as error:
            if call.hint:
                error.message = errors.cut(f"{error.message}; {call.hint}", errors.MESSAGE_BYTES)
            raise

    async def _usable_etag(self, call: methods.Call, stale: str) -> str | None:
        """Return the ETag that a change carries; None if it carries none.

        If the service has refused it although the resource is unchanged, this is the ETag of the property: some services quote
        that of the header twice.
        """
        if not self._uses_etags or call.etag is None:
            return None
        if call.etag != stale:
            return call.etag
        document = await self._client.get(call.uri if call.action is None else call.action.resource_uri)
        shown = document.value(documents.ETAG)
        return shown if document.etag == stale and isinstance(shown, str) and shown else call.etag

    def _connections(self) -> dict[str, str]:
        """Return by the id of each attached device its host."""
        listed = self._method.view().devices.values()
        return {device.id: device.connection.host_id for device in listed if device.connection is not None}

    async def _check_kept(
        self,
        before: Mapping[str, str],
        call: methods.Call,
        host_id: str,
        meant: str,
        answer: documents.Document | None = None,
    ) -> None:
        """Verify that a change of a resource which other devices share has left them where they were; else put them back.

        Raises:
            FailedPrecondition: it has not; also if they are back.
        """
        kept = sorted(name for name, owner in before.items() if owner == host_id and name != meant)
        try:
            lost = await self._lost(kept, call, host_id)
        except errors.FabricError as error:
            # The look at the end of the operation meets the same trouble.
            _logger.warning("what a change left is not verified", extra={"error": error.message})
            return
        if not lost:
            return
        _logger.error("a change took others from their host", extra={"uri": call.uri, "lost": lost})
        reason, remedy = await self._restore(call, answer, host_id)
        remains = lost
        with contextlib.suppress(errors.FabricError):
            remains = await self._lost(kept, call, host_id)
        restored = [name for name in lost if name not in remains]
        text = (
            f"the Redfish service answered {call.method} {call.uri} and took others from host {host_id} with it "
            f"({methods.name_some(lost)})"
        )
        if restored:
            text += f"; put back: {methods.name_some(restored)}"
        if remains:
            why = f", since {reason}" if reason else ""
            text += f"; not put back: {methods.name_some(remains)}{why}; attach them again at the service"
        text += f"; {remedy or 'look at `profile` and `zoneBody`'} before the next change"
        raise errors.FailedPrecondition(text, reason=errors.Reason.OTHERS_LOST, host_id=host_id)

    async def _lost(self, kept: list[str], call: methods.Call, host_id: str) -> list[str]:
        """Return those of the devices that are not at the host any more, and its own members that left the array.

        Raises:
            FabricError: the service cannot be read.
        """
        own = call.change.own if call.change is not None else frozenset()
        left = (await self._client.get(call.uri)).links("Links", call.change.name) if call.change else ()
        missing = sorted(f"the host's own {uri.rpartition('/')[2]}" for uri in own.difference(left))
        if not kept:
            return missing
        async with self._lock:
            await self._method.read_connections(reading.Reader(self._client))
            devices = self._method.view().devices
        lost = [
            name
            for name in kept
            if name in devices and getattr(devices[name].connection, "host_id", None) != host_id
        ]
        return [*lost, *missing]

    async def _restore(
        self, call: methods.Call, answer: documents.Document | None, host_id: str
    ) -> tuple[str, str]:
        """Put back, in one request, the members of an array that its change took with it.

        Returns why they are not put back, and what to set, each as a part of a sentence; empty where there is nothing to say.
        """
        change = call.change
        if change is None:
            return "the request sets no array, or what became of it is not known", ""
        remedy = ""
        try:
            after = await self._client.get(call.uri)
            if (form := restoring.other_form(change, after)) is not None:
                remedy = f"set zoneBody: {form}"
            decision = restoring.plan(change, answer, after, self._taken(change.wanted, host_id))
            if isinstance(decision, restoring.Leave):
                return decision.reason, remedy
            etag = decision.etag if self._uses_etags else None
            await self._client.change("PATCH", call.uri, decision.body(), etag=etag)
        except errors.FabricError as error:
            return error.message, remedy
        return "", remedy

    def _taken(self, uris: tuple[str, ...], host_id: str) -> frozenset[str]:
        """Return the members that are devices of another host by now, or not listed any more."""
        devices = self._method.view().devices

        def is_taken(name: str) -> bool:
            connection = devices[name].connection if name in devices else None
            return name not in devices or (connection is not None and connection.host_id != host_id)

        return frozenset(uri for uri in uris if any(map(is_taken, self._method.device_ids({uri}))))

    async def _settled(self, concerns: Callable[[Set[str]], bool]) -> None:
        """Wait for the ends of the service's changes that may be the caller's: one may be a task whose monitor was in a lost reply."""
        with contextlib.suppress(errors.FabricError):
            for change in await tasks.changes(reading.Reader(self._client)):
                if concerns(change.uris):
                    await self._client.task_ended(change.task_uri)

    def _hosts(self) -> tuple[contract.Host, ...]:
        """Return the hosts with the ports of attaches in flight in use."""
        hosts = dict(self._view.hosts)
        for device_id, place in self.pending.items():
            if place is None or place[0] not in hosts:
                continue
            host = hosts[place[0]]
            ports = tuple(
                replace(port, state=contract.PortState.USED, device_id=device_id)
                if port.id == place[1] and port.state is contract.PortState.FREE
                else port
                for port in host.ports
            )
            hosts[host.id] = replace(host, ports=ports)
        return tuple(hosts.values())


class RedfishAdapter(contract.FabricAdapter):
    """One Redfish service; made by `connect`. `close` it in the task that connected."""

    _client: client.Client

    def __init__(self, config: contract.AdapterConfig, recorder: transcripts.Recorder | None = None) -> None:
        self._config = config
        self._recorder = recorder
        self._parameters = parameters.parse(config)
        self._lifetime = AsyncExitStack()
        self._closed = False
        self._poke = asyncio.Event()
        # Until when, on the loop's clock, the first listing is the reading of `connect`: it is as old as its own would be.
        self._handed_until = 0.0
        # Which other profile would list something; None until that is looked for.
        self._suggested: str | None = None

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

        With a recorder it keeps what is sent and received, but events.
        """
        adapter = cls(config, recorder)
        try:
            async with adapter._bounded():
                adapter._client = await client.Client.connect(
                    adapter._config, recorder, requests_at_once=adapter._parameters.requests_at_once
                )
            adapter._lifetime.push_async_callback(adapter._client.close)
            async with adapter._bounded():
                await adapter._connect()
        except BaseException:
            await adapter.close()
            raise
        return adapter

    async def _connect(self) -> None:
        clock = asyncio.get_running_loop().time
        began = clock()
        name = self._parameters.profile or await self._profile_name()
        profile = profiles.PROFILES[name]
        if self._parameters.ports:
            profile = replace(profile, ports=self._parameters.ports)
        if self._parameters.zone_body is not None:
            profile = replace(profile, zone_body=self._parameters.zone_body)
        self._profile = profile
        self._service = _Service(
            self._client,
            _method(profile, self._parameters.fabrics),
            task_seconds=self._parameters.task_seconds,
            uses_etags=self._parameters.uses_etags,
        )
        try:
            async with self._service.looking(whole=True):
                changes = await self._service.hold()
        except errors.Unimplemented as error:
            if suggestion := await self._suggestion():
                raise errors.Unimplemented(f"{error.message}; {suggestion}") from error
            raise
        self._handed_until = clock() + max(clock() - began, HANDED_SECONDS_MIN)
        group = await self._lifetime.enter_async_context(asyncio.TaskGroup())
        self._works = Works(self._service, group, prefix=NAME, on_finished=self._poke.set)
        keepers = [
            group.create_task(self._keep(), name="keep the Redfish fabric"),
            group.create_task(self._listen(), name="listen to the Redfish service"),
            *(
                group.create_task(self._service.release(change), name=f"follow {change.task_uri}")
                for change in changes
            ),
        ]
        self._lifetime.callback(self._works.stop)
        for keeper in keepers:
            self._lifetime.callback(keeper.cancel)
        _logger.info("connected to a Redfish service", extra={"fabric": self._config.name, "profile": name})

    async def _profile_name(self) -> str:
        """Return the name of the profile that the service root shows, or else its fabrics."""
        name = profiles.by_root(self._client.root)
        if name != profiles.GENERIC or self._client.root.link("Fabrics") is None:
            return name
        wanted, reader = self._parameters.fabrics, reading.Reader(self._client)
        try:
            fabrics = await reading.read_linked(reader.root, "Fabrics", reader.members)
        except errors.Unimplemented:
            # The first reading reports it, with a profile that lists something.
            return name
        return profiles.by_fabrics(
            fabric for fabric in fabrics if (fabric.id in wanted if wanted else entities.has_devices(fabric))
        )

    async def _suggestion(self) -> str:
        """Return which other profile would list something, in a sentence; empty if none would.

        Each method reads the service once, for a connection at most once, and changes nothing.
        """
        if self._suggested is None:
            self._suggested = ""
            counts: dict[str, profiles.Counts] = {}
            read = {self._profile.method}
            with contextlib.suppress(errors.FabricError):
                async with self._bounded():
                    for name, profile in profiles.PROFILES.items():
                        if profile.method not in read:
                            read.add(profile.method)
                            counts[name] = await self._count(profile)
            self._suggested = profiles.suggest(counts)
        return self._suggested

    async def _count(self, profile: profiles.Profile) -> profiles.Counts:
        """Return what the service lists, read by a profile: nothing if it cannot be read so."""
        method = _method(profile, self._parameters.fabrics)
        try:
            await method.read(reading.Reader(self._client))
        except errors.FabricError as error:
            _logger.debug("a profile is not suggested", extra={"error": error.message})
            return profiles.Counts(devices=0, hosts=0)
        view = method.view()
        return profiles.Counts(devices=len(view.devices), hosts=len(view.hosts))

    async def capabilities(self) -> contract.Capabilities:
        """Return the capabilities, as the contract says; there is no force and no cancelling."""
        self._check_open()
        return contract.Capabilities(
            exact_device=self._profile.method is not profiles.MethodName.CONSTRAINED,
            select_by_model=True,
            slices=self._service.carves,
            watch=True,
            marks=bool(self._profile.note_place),
            serialization_scope=contract.SerializationScope.DEVICE,
        )

    async def hosts(self) -> tuple[contract.Host, ...]:
        """Return all hosts, as the contract says; from the connections as they are now, and the hosts as they were read last."""
        async with self._bounded(), self._service.looking():
            self._check_limits()
            return self._service.history.hosts

    async def devices(self) -> contract.Inventory:
        """Return all devices, as the contract says."""
        is_handed = asyncio.get_running_loop().time() < self._handed_until
        self._handed_until = 0.0
        async with self._bounded(), self._service.looking(whole=not is_handed):
            self._check_limits()
            history = self._service.history
            inventory = contract.Inventory(
                version=history.version,
                devices=tuple(history.devices.values()),
                unread=contract.bound_sentences(self._service.unread.values()),
                oddities=contract.bound_sentences(
                    (*filter(None, (self._profile.unverified,)), *self._service.oddities)
                ),
            )
        suggestion = "" if inventory.devices else await self._suggestion()
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
        return await self._slicing(request)

    async def delete_slice(self, request: contract.DeleteSliceRequest) -> contract.Operation:
        """Begin to delete a slice, as the contract says."""
        return await self._slicing(request)

    async def _slicing(self, request: judgement.Slicing) -> contract.Operation:
        self._check_open()
        if not self._service.carves:
            raise errors.Unimplemented("the Redfish service makes no slices of devices")
        # Judged by a look at the slices too: one that is not listed is one that is gone.
        self._service.is_changed = True
        return await self._begin(request)

    async def operation(
        self, *, operation_id: str | None = None, request_id: str | None = None
    ) -> contract.Operation:
        """Return one operation, as the contract says; the attach of an earlier adapter is found while its connection shows the request."""
        async with self._bounded():
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
        async with self._bounded(changes=True):
            patience = min(PATIENCE_SECONDS, self._config.timeout_seconds / 4)
            return await self._works.begin(request, patience_seconds=patience)

    @asynccontextmanager
    async def _bounded(self, *, changes: bool = False) -> AsyncIterator[None]:
        """Apply the contract's deadline to one call; each answer of the service extends it."""
        self._check_open()
        clock = asyncio.get_running_loop().time
        connected: client.Client | None = getattr(self, "_client", None)
        began, before = clock(), connected.answers if connected is not None else 0
        try:
            async with asyncio.timeout(self._config.timeout_seconds) as deadline:
                with connected.extending(deadline) if connected is not None else contextlib.nullcontext():
                    yield
        except TimeoutError as error:
            read = connected.answers - before if connected is not None else 0
            text = (
                f'the Redfish service of "{self._config.name}" has not answered in time: {read} answers came in '
                f"{clock() - began:.0f} s; raise spec.timeoutSeconds, or look at the service"
            )
            raise errors.DeadlineExceeded(text, side_effects_unknown=changes) from error

    async def _keep(self) -> None:
        """Read everything after each event, and every so often by turns while there are watchers.

        A service that takes long is left alone for as long as it took, and one that lists too much for longer each time.
        """
        clock = asyncio.get_running_loop().time
        due = clock() + self._parameters.poll_seconds
        pauses = backoff.Backoff(self._parameters.poll_seconds, LIMIT_BACKOFF_SECONDS_MAX)
        while True:
            turns: int | None = None
            try:
                async with asyncio.timeout_at(due):
                    await self._poke.wait()
                await asyncio.sleep(EVENTS_PACE_SECONDS)
            except TimeoutError:
                if not self._service.history.watchers:
                    due = clock() + self._parameters.poll_seconds
                    continue
                turns = self._service.plan_poll(self._parameters.poll_seconds).turns
            self._poke.clear()
            began = clock()
            is_exceeded = False
            try:
                async with self._bounded(), self._service.looking(whole=True, turns=turns):
                    is_exceeded = bool(self._service.excess)
            except errors.FabricError as error:
                # Also where the deadline came before an answer, which no look has seen as an error.
                self._service.history.interrupt(error)
                is_exceeded = budget.is_exceeded(error)
                _logger.debug("the Redfish service cannot be read now", extra={"error": error.message})
            took = clock() - began
            poll = self._service.plan_poll(self._parameters.poll_seconds)
            # As early as what changes during this reading is to be shown by the end of the next one; by turns, as the budget says.
            due = began + max(poll.seconds - (0.0 if poll.turns else took), 2 * took)
            if is_exceeded:
                await asyncio.sleep(pauses.count_failure())
            else:
                pauses.reset()

    async def _listen(self) -> None:
        """Take every event of the service for a hint that something changed; close a stream that brings a flood of them."""
        clock = asyncio.get_running_loop().time
        pauses = backoff.Backoff(EVENTS_BACKOFF_SECONDS_MIN, EVENTS_BACKOFF_SECONDS_MAX)
        flood_pauses = backoff.Backoff(2 * EVENTS_BACKOFF_SECONDS_MIN, LIMIT_BACKOFF_SECONDS_MAX)
        while True:
            opened = clock()
            try:
                # The first comes with the stream: what happened before is not known.
                async with aclosing(self._client.events()) as events:
                    async for _ in events:
                        pauses.reset()
                        if clock() - opened > EVENTS_GOOD_SECONDS:
                            flood_pauses.reset()
                            self._service.history.exceed("events", "")
                        self._poke.set()
            except errors.Unimplemented:
                _logger.info("the Redfish service sends no events, so it is read every so often")
                return
            except errors.FabricError as error:
                _logger.debug("no events of the Redfish service", extra={"error": error.message})
                if budget.is_exceeded(error):
                    self._service.history.exceed("events", error.message)
                    await asyncio.sleep(flood_pauses.count_failure())
                    continue
            await asyncio.sleep(pauses.count_failure())

    def _check_limits(self) -> None:
        if self._service.excess:
            raise errors.Unavailable(self._service.excess, reason=errors.Reason.LIMIT_EXCEEDED)

    def _check_open(self) -> None:
        if self._closed:
            raise errors.Unavailable("the connection to the Redfish service is closed")


def _suggest_etags(error: errors.FabricError, *, is_unchanged: bool) -> None:
    """Add the remedy to the refusal of an ETag that the resource still shows after several attempts."""
    if error.reason == errors.Reason.STALE_ETAG and is_unchanged:
        remedy = "the resource still shows the refused ETag; if this lasts, set the parameter `etags: no`"
        error.message = errors.cut(f"{error.message.rstrip('.')}; {remedy}", errors.MESSAGE_BYTES)


def _method(profile: profiles.Profile, fabrics: frozenset[str]) -> methods.Method:
    """Return the method of a profile, which has read nothing."""
    match profile.method:
        case profiles.MethodName.ZONES:
            return zones.Zones(profile, fabrics=fabrics)
        case profiles.MethodName.CONNECTIONS:
            return connections.Connections(profile, fabrics=fabrics)
        case profiles.MethodName.APPLIANCE:
            return appliance.Appliance(profile, fabrics=fabrics)
        case profiles.MethodName.CONSTRAINED:
            return constrained.Constrained(profile)
        case profiles.MethodName.COMPOSITION:
            return composition.Composition(profile)
