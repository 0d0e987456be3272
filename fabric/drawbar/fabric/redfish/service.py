"""The fabric behind the adapter: its readings, the judgement of requests, and the changes of earlier clients."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from drawbar.fabric import contract, errors, judgement
from drawbar.fabric.history import History
from drawbar.fabric.redfish import (
    changing,
    client,
    connections,
    constrained,
    methods,
    observing,
    polling,
    tasks,
    views,
)
from drawbar.fabric.works import Report

_logger = logging.getLogger(__name__)


class Service:
    """The fabric behind the adapter; `works.Backend`.

    Attributes:
        oddities: see `views.View`.
        unread: see `views.View`.
        excess: a sentence if the service lists more than it may; then the known devices and hosts stay as they were.
    """

    def __init__(
        self, connection: client.Client, method: methods.Method, *, task_seconds: float, uses_etags: bool
    ) -> None:
        self.history = History()
        self.pending: dict[str, tuple[str, str] | None] = {}
        self.oddities: tuple[str, ...] = ()
        self.unread: Mapping[str, str] = {}
        self.excess = ""
        self._client = connection
        self._method = method
        self._observer = observing.Observer(connection, method)
        self._changer = changing.Changer(
            connection, self._observer, task_seconds=task_seconds, uses_etags=uses_etags
        )
        # Where the service chooses the device.
        self._constrained = method if isinstance(method, constrained.Constrained) else None
        # Where slices of devices can be made.
        self._carving = method if isinstance(method, connections.Connections) else None
        self._task_seconds = task_seconds
        # Changes of earlier clients that still run, with their devices.
        self._foreign: dict[tasks.Change, frozenset[str]] = {}
        self._view = views.View()

    def plan_poll(self, poll_seconds: float) -> polling.Poll:
        """Return when the service is polled next, and how much of it is read then."""
        return self._observer.plan_poll(poll_seconds)

    @asynccontextmanager
    async def looking(self, *, whole: bool = False, rereads: int | None = None) -> AsyncIterator[None]:
        """Read the connections, and everything else if necessary; see `works.Backend` and `observing.Observer`."""
        async with self._observer.lock:
            try:
                await self._observer.read(whole=whole, rereads=rereads)
            except errors.FabricError as trouble:
                self.history.interrupt(trouble)
                raise
            self._take(self._method.view())
            self.publish()
            yield

    def _take(self, view: views.View) -> None:
        """Keep a view; without its new devices and hosts if it exceeds the limits."""
        self.excess = views.find_excess(view, self._client.begin_listing())
        self.history.exceed("listing", self.excess)
        if self.excess:
            known = {host.id for host in self.history.hosts}
            view = views.keep_known(view, self.history.devices, known)
        for uri in view.unread.keys() - self.unread.keys():
            _logger.warning("a part of the Redfish service is left out: %s", view.unread[uri])
        self._view, self.unread = view, view.unread
        if view.oddities != self.oddities:
            self.oddities = view.oddities
            for sentence in self.oddities:
                _logger.warning("something in the Redfish service is odd: %s", sentence)

    def check_limits(self) -> None:
        """Refuse to show a service that lists more than it may.

        Raises:
            Unavailable: it does.
        """
        if self.excess:
            raise errors.Unavailable(self.excess, reason=errors.Reason.LIMIT_EXCEEDED)

    def publish(self) -> None:
        """Publish the last reading; see `works.Backend`."""
        self.history.publish(
            tuple(self._view.devices.values()), self._hosts(), unread=self._view.unread.keys()
        )

    def _hosts(self) -> tuple[contract.Host, ...]:
        """Return the hosts; the ports of attaches in flight are in use."""
        return views.reserve_ports(self._view.hosts, self.pending)

    def judge(self, request: judgement.Request) -> judgement.Stay | judgement.Begin:
        """Return the decision on a request; see `works.Backend`."""
        hosts = {host.id: host for host in self._hosts()}
        devices, busy = self.history.devices, self.pending.keys()
        views.check_read(self._method.view(), request.device_id)
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

    @property
    def carves(self) -> bool:
        """Return whether slices can be made of some memory."""
        return self._carving is not None and self._carving.carves

    def prepare_slicing(self) -> None:
        """Let the next reading show the slices too: one that is not listed is one that is gone.

        Raises:
            Unimplemented: the service makes no slices.
        """
        if not self.carves:
            raise errors.Unimplemented("the Redfish service makes no slices of devices")
        self._observer.is_changed = True

    async def adopt_changes(self) -> tuple[tasks.Change, ...]:
        """Make the devices of changes that run already pending, and return these changes; each is to be `release`d."""
        for change in await self._observer.read_changes():
            device_ids = self._method.device_ids(change.uris)
            if device_ids or self._constrained is not None:
                self._foreign[change] = device_ids
                self.pending |= dict.fromkeys(device_ids)
        return tuple(self._foreign)

    def _check_followed(self, request: contract.AttachRequest) -> None:
        """Refuse an attach while an earlier client's change of the host runs, whose device is not known yet.

        Raises:
            Aborted: such a change runs.
        """
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
                self._forget(change)
                self.publish()
        except (errors.FabricError, TimeoutError) as error:
            _logger.warning("a change in the Redfish service is not followed", extra={"error": str(error)})
            self._forget(change)

    def _forget(self, change: tasks.Change) -> None:
        """Remove the devices of a change from the pending ones, except those of other changes."""
        self._observer.is_changed |= self.carves
        device_ids = self._foreign.pop(change, frozenset())
        for device_id in device_ids.difference(*self._foreign.values()):
            self.pending.pop(device_id, None)

    async def carry_out(
        self, request: judgement.Request, begun: judgement.Begin, report: Report
    ) -> str | None:
        """Make the change of a request; see `works.Backend`."""
        match request:
            case contract.AttachRequest() if self._constrained is not None:
                return await self._changer.attach_any(self._constrained, request, begun.device_id, report)
            case contract.AttachRequest():
                await self._changer.attach(request, begun.device_id, begun.port_id, report)
            case contract.DetachRequest():
                await self._changer.detach(request, begun.device_id, report)
            case contract.CreateSliceRequest() | contract.DeleteSliceRequest():
                if self._carving is None:
                    raise errors.Unimplemented("the Redfish service makes no slices of devices")
                await self._changer.change_slices(self._carving, request, report)
        return None
