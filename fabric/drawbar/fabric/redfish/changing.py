"""Changes of a fabric: each is planned from a new reading, sent once, and verified.

If another client has changed the resource since the reading, the change is planned again. Each host has one change at
a time, since its connections may be one resource of the service.
"""

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Sequence, Set
from dataclasses import dataclass, replace

from drawbar.fabric import contract, errors
from drawbar.fabric.redfish import (
    calls,
    client,
    connections,
    constrained,
    documents,
    guarding,
    losses,
    messages,
    monitors,
    observing,
    views,
)
from drawbar.fabric.works import Report

_WITHOUT_QUOTES = str.maketrans("", "", '"\\')
_COMPRESSED = re.compile(r"[-;]+(?:gzip|deflate|br)$")
# Of one change, each after another client has changed the same resource.
ATTEMPTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """One change that is to be made.

    Attributes:
        host_id: of the host, which has one change at a time; empty for slices.
        concerns: returns whether a running change of these URIs may be this one.
        plan: returns the request, from a new reading; None if there is nothing to do.
        conclude: called once the change may be made; returns whether it is.
        meant: the device that is attached or detached; the host's others have to stay.
    """

    host_id: str
    concerns: Callable[[Set[str]], bool]
    plan: Callable[[], calls.Call | None]
    conclude: Callable[[], Awaitable[bool]] | None = None
    meant: str = ""


class Changer:
    """The executor of attaches, detaches, and changes of slices."""

    def __init__(
        self,
        connection: client.Client,
        observer: observing.Observer,
        *,
        task_seconds: float,
        uses_etags: bool,
    ) -> None:
        self._client = connection
        self._observer = observer
        self._method = observer.method
        self._guard = guarding.Guard(connection, observer, uses_etags=uses_etags)
        self._task_seconds = task_seconds
        self._uses_etags = uses_etags
        # Whether the connections are read one by one before a change: an expanded collection shows no ETags of them.
        self._reads_singly = False
        # An action changes nothing but its own device, so it may go without the ETag that a service does not know as a parameter.
        self._marks_actions = uses_etags
        # By host id, and one for slices.
        self._locks: dict[str, asyncio.Lock] = {}

    async def attach(
        self, request: contract.AttachRequest, device_id: str, port_id: str, report: Report
    ) -> None:
        """Attach a device.

        Raises:
            FabricError: it is not attached, or may not be.
        """

        def plan() -> calls.Call:
            current = self._observer.devices.get(device_id)
            if current is None or current.connection is not None:
                raise errors.Aborted(
                    f"device {device_id} was attached or removed meanwhile; read the fabric again"
                )
            return self._method.attach(request, device_id, port_id)

        intent = Intent(
            host_id=request.host_id, concerns=self._build_filter(device_id), plan=plan, meant=device_id
        )
        await self._carry_out(intent, report)

    async def attach_any(
        self, method: constrained.Constrained, request: contract.AttachRequest, device_id: str, report: Report
    ) -> str:
        """Ask the service to attach a device like this one; return the id of the attached device.

        Raises:
            FabricError: none is attached, or may not be.
        """
        host_id = request.host_id
        before: frozenset[str] = frozenset()
        came: str | None = None

        def plan() -> calls.Call:
            nonlocal before
            before = losses.find_attached(losses.find_owners(self._observer.devices), host_id)
            return method.attach(request, device_id, "")

        async def conclude() -> bool:
            nonlocal came
            devices = await self._observer.read_connections()
            new = losses.find_attached(losses.find_owners(devices), host_id) - before
            came = min((name for name in new if devices[name].model == request.model), default=None)
            return came is not None

        def is_at_host(uris: Set[str]) -> bool:
            return method.is_at(uris, host_id)

        await self._carry_out(
            Intent(host_id=host_id, concerns=is_at_host, plan=plan, conclude=conclude), report
        )
        if came is None:
            raise errors.Unavailable(
                f"the service accepted the request for a device on host {host_id} and shows none; read the fabric again",
                reason="NOT_SHOWN",
                side_effects_unknown=True,
            )
        return came

    async def detach(self, request: contract.DetachRequest, device_id: str, report: Report) -> None:
        """Detach a device.

        Raises:
            FabricError: it is still attached, or may be.
        """

        def plan() -> calls.Call | None:
            views.check_read(self._method.view(), device_id)
            return self._method.detach(request, device_id)

        intent = Intent(
            host_id=request.host_id, concerns=self._build_filter(device_id), plan=plan, meant=device_id
        )
        await self._carry_out(intent, report)

    async def change_slices(
        self,
        method: connections.Connections,
        request: contract.CreateSliceRequest | contract.DeleteSliceRequest,
        report: Report,
    ) -> None:
        """Make or delete a slice.

        Raises:
            FabricError: it is not made or deleted, or may not be.
        """

        def plan() -> calls.Call | None:
            if isinstance(request, contract.CreateSliceRequest):
                return method.create_slice(request)
            return method.delete_slice(request)

        self._observer.is_changed = True
        try:
            intent = Intent(host_id="", concerns=self._build_filter(request.device_id), plan=plan)
            await self._carry_out(intent, report)
        finally:
            self._observer.is_changed = True

    def _build_filter(self, device_id: str) -> Callable[[Set[str]], bool]:
        """Return a predicate for the URIs of changes of the device."""
        return lambda uris: device_id in self._method.device_ids(uris)

    async def _carry_out(self, intent: Intent, report: Report) -> None:
        """Make a change: again from a new reading if another client changed the resource in between.

        Raises:
            FabricError: it is not made, or may not be.
        """
        try:
            async with (
                asyncio.timeout(self._task_seconds),
                self._locks.setdefault(intent.host_id, asyncio.Lock()),
            ):
                refused: list[str] = []
                for attempt in range(1, ATTEMPTS + 1):
                    etag = await self._attempt(intent, refused, report, is_last=attempt == ATTEMPTS)
                    if etag is None:
                        return
                    refused.append(etag)
        except TimeoutError as error:
            raise errors.DeadlineExceeded(
                f"the Redfish service has not made the change in {self._task_seconds:.0f} s; look at its tasks"
            ) from error

    async def _attempt(
        self, intent: Intent, refused: Sequence[str], report: Report, *, is_last: bool
    ) -> str | None:
        """Plan and send a change once; return None at its end, or the ETag that the service refused; an empty one if it had none.

        Args:
            intent: the change.
            refused: the ETags that the service refused before.
            report: called with the progress.
            is_last: whether a refused ETag is an error.

        Raises:
            FabricError: the change is not made, or may not be.
        """
        async with self._observer.lock:
            await self._observer.read(is_expanded=not self._reads_singly)
            call = intent.plan()
            if call is None:
                return None
            watched = self._guard.watch(call, intent.host_id, intent.meant)
        etag = await self._find_etag(call, refused)
        try:
            answer = await self._send(call, etag, report)
        except errors.FabricError as error:
            if not is_last and self._may_repeat(error, call, etag):
                self._reads_singly |= call.etag is None
                self._marks_actions &= error.reason != messages.UNKNOWN_PARAMETER
                return etag or ""
            _suggest_etags(error, is_unchanged=bool(etag) and call.etag in refused)
            if error.side_effects_unknown and await self._is_made(intent, watched, call):
                return None
            raise
        if intent.conclude is not None:
            await intent.conclude()
        await self._guard.check(watched, call, answer)
        return None

    def _may_repeat(self, error: errors.FabricError, call: calls.Call, etag: str | None) -> bool:
        """Return whether a change was refused for its ETag, or for the lack of one that a single reading may show."""
        if error.reason == messages.UNKNOWN_PARAMETER:
            return call.action is not None and etag is not None
        is_required = error.reason == messages.ETAG_REQUIRED and self._uses_etags and call.etag is None
        return error.reason == errors.Reason.STALE_ETAG or (is_required and not self._reads_singly)

    async def _send(self, call: calls.Call, etag: str | None, report: Report) -> documents.Document | None:
        """Send a request; return the resource that the answer shows, or None.

        Raises:
            FabricError: it was refused, or failed; a refusal has the request's hint.
        """

        def on_progress(progress: monitors.Progress) -> None:
            report(progress.percent, progress.retry_after_seconds)

        body, if_match = call.prepare_change(etag)
        try:
            return await self._client.change(
                call.method, call.uri, body, etag=if_match, on_progress=on_progress
            )
        except errors.Refused as error:
            if call.hint:
                error.message = errors.cut(f"{error.message}; {call.hint}", errors.MESSAGE_BYTES)
            raise

    async def _is_made(self, intent: Intent, watched: guarding.Watched, call: calls.Call) -> bool:
        """Return whether a change with an unknown effect is known to be made.

        Raises:
            FailedPrecondition: it took other devices from their host.
        """
        with contextlib.suppress(errors.FabricError):
            # The lost reply may have named the monitor of a task.
            for change in await self._observer.read_changes():
                if intent.concerns(change.uris):
                    await self._client.task_ended(change.task_uri)
        await self._guard.check(watched, replace(call, change=None))
        with contextlib.suppress(errors.FabricError):
            return intent.conclude is not None and await intent.conclude()
        return False

    async def _find_etag(self, call: calls.Call, refused: Sequence[str]) -> str | None:
        """Return the ETag that a change carries; None if it carries none.

        If the service has refused it although the resource is unchanged, this is another form of it.
        """
        is_marked = self._uses_etags if call.action is None else self._marks_actions
        if not is_marked or call.etag is None:
            return None
        if call.etag not in refused:
            return call.etag
        document = await self._client.get(call.uri if call.action is None else call.action.resource_uri)
        if document.etag != call.etag:
            return call.etag
        return next((each for each in list_etags(document) if each not in refused), call.etag)


def list_etags(document: documents.Document) -> tuple[str, ...]:
    """Return the forms of a resource's ETag: of the header, of the property, as a strong one, and without quotes.

    Some services quote the ETag of the header twice. Some mark it as weak, or have a proxy that marks it so or adds `-gzip` when it
    compresses the answer, and compare it with the strong one (RFC 9110, section 13.1.1).
    """
    etag = document.etag or ""
    bare = _COMPRESSED.sub("", etag.removeprefix("W/").translate(_WITHOUT_QUOTES))
    forms = (etag, documents.as_text(document.value(documents.ETAG)), f'"{bare}"', bare)
    return tuple(dict.fromkeys(filter(None, forms)))


def _suggest_etags(error: errors.FabricError, *, is_unchanged: bool) -> None:
    """Add the remedy to the refusal of an ETag that the resource still shows after several attempts."""
    if error.reason == errors.Reason.STALE_ETAG and is_unchanged:
        remedy = "the resource still shows the refused ETag; if this lasts, set the parameter `etags: no`"
        error.message = errors.cut(f"{error.message.rstrip('.')}; {remedy}", errors.MESSAGE_BYTES)
