"""The client of a Redfish service (DSP0266): resources, changes with their tasks, and events.

The service is not trusted: an answer is bounded both by itself and as a part of a listing (`reading`). A change is sent
once. It is sent again only after a redirect or a refusal because of a missing session.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing
from typing import Self

import yarl

from drawbar.fabric import backoff, budget, contract, errors, judgement
from drawbar.fabric.redfish import (
    decoding,
    documents,
    messages,
    models,
    monitors,
    patience,
    polling,
    sessions,
    transcripts,
    transport,
)

_logger = logging.getLogger(__name__)

CLOSE_SECONDS = 2.0
DENIED_MAX = 1024


class Client:
    """One connection to one Redfish service; made by `connect`, ended by `close`.

    Attributes:
        patience: with the resources of the service.
    """

    def __init__(self, wire: transport.Transport, config: contract.AdapterConfig) -> None:
        self.root = documents.Document(uri=transport.ROOT)
        self.patience = patience.Patience(config.timeout_seconds, probe=wire.probe, put_off=wire.put_off)
        self._wire = wire
        self._session = sessions.Session(wire, config.credentials)
        self._closed = False
        # Resources that a new session may not read, and the token of the last session that may read another one: with
        # that, a further session would not help.
        self._denied: set[yarl.URL] = set()
        self._accepted_token = ""

    @classmethod
    async def connect(
        cls,
        config: contract.AdapterConfig,
        recorder: transcripts.Recorder | None = None,
        *,
        requests_at_once: int = polling.AT_ONCE,
    ) -> Self:
        """Read the service root and begin a session, if there are credentials; keep all but events with the recorder.

        Raises:
            InvalidConfiguration: a certificate of the configuration cannot be used.
            FabricError: the service cannot be reached, or refuses the credentials.
        """
        wire = transport.Transport(config, recorder, requests_at_once=requests_at_once)
        client = cls(wire, config)
        try:
            client.root = await client._read_root()
            await client._session.begin(client.root, "")
        except BaseException:
            await client.close()
            raise
        return client

    async def _read_root(self) -> documents.Document:
        """Return the service root, and from then on quote the service.

        Before that, an answer only shows that there is a web server. It could be any service that the controller
        reaches and the author of the endpoint does not, so only its status is shown, not its text.

        Raises:
            FabricError: it cannot be read, or is no service root.
        """
        try:
            root = await self._get_root(is_open=True)
        except errors.Unauthenticated as error:
            if not self._session.answers_challenge(error):
                raise
            root = await self._get_root(is_open=False)
        if models.schema(root) != "ServiceRoot" and not root.value("RedfishVersion"):
            raise self._wire.build_malformed(
                "to read the service root", "answered as no Redfish service does"
            )
        self._wire.is_proven = True
        return root

    async def _get_root(self, *, is_open: bool) -> documents.Document:
        try:
            return await self.get(f"{transport.ROOT}/", is_open=is_open)
        except (errors.NotFound, errors.Unimplemented):
            return await self.get(transport.ROOT, is_open=is_open)

    @property
    def answers(self) -> int:
        """Return the number of answered requests."""
        return self._wire.answers

    @contextlib.contextmanager
    def extending(self, deadline: asyncio.Timeout) -> Iterator[None]:
        """Put the deadline off with each answer; see `transport.Transport`."""
        with self._wire.extending(deadline):
            yield

    def begin_listing(self) -> budget.Listing:
        """Return the unused budget of one listing."""
        return self._wire.begin_listing()

    async def get(
        self,
        uri: str,
        *,
        query: str = "",
        is_open: bool = False,
        listing: budget.Listing | None = None,
        seconds: float | None = None,
    ) -> documents.Document:
        """Read a resource and return it.

        Args:
            uri: its path.
            query: such as `$expand=.($levels=1)`.
            is_open: whether the resource needs no credentials.
            listing: the budget of the answer; None for a budget of its own.
            seconds: the deadline of the request; None for the configured one.

        Raises:
            FabricError: it cannot be read; NotFound if there is none.
        """
        url, what = self._wire.resolve(uri), f"to read {uri}"
        if query:
            url = url.with_query(query)
        answer = await self._send("GET", url, what=what, is_open=is_open, listing=listing, seconds=seconds)
        # A proxy that changes the form of an answer says so by 203.
        if answer.status not in {200, 203}:
            raise self._wire.build_malformed(what, f"answered with the status {answer.status}")
        return documents.Document.from_json(answer.body, uri=uri, etag=answer.headers.get("ETag"))

    async def change(
        self,
        method: str,
        uri: str,
        body: documents.Json | None = None,
        *,
        etag: str | None = None,
        on_progress: Callable[[monitors.Progress], None] = lambda _: None,
    ) -> documents.Document | None:
        """Send a request that changes something, and wait for the end of its task, if there is one.

        Return the resource in the answer; None without one, and after a task. The caller sets the deadline, and reads
        the fabric again to see the outcome.

        Args:
            method: of HTTP.
            uri: that of the resource, collection or action.
            body: of the request.
            etag: the ETag of the reading; the resource must not have changed since.
            on_progress: called with each state of the task.

        Raises:
            FabricError: it was refused, or failed.
        """
        headers = {"If-Match": etag} if etag else {}
        what = f"{method} {uri}"
        answer = await self._send(
            method, self._wire.resolve(uri), body=body, headers=headers, what=what, changes=True
        )
        # Some services answer with the task and another status.
        is_task = answer.status == 202 or bool(monitors.find_state(answer.body))
        if is_task:
            await self._task_ended(answer, what, on_progress)
        elif answer.status not in {200, 201, 204}:
            raise self._wire.build_malformed(what, f"answered with the status {answer.status}", changes=True)
        elif messages.is_refusal(answer.body) or messages.is_objection(answer.body):
            refused = messages.refusal(
                answer.status, answer.body, what=what, changes=True, redacted=self._wire.redact
            )
            raise judgement.unknown(refused)
        is_shown = not is_task and (answer.body or "ETag" in answer.headers)
        if not is_shown:
            return None
        return documents.Document.from_json(answer.body, uri=uri, etag=answer.headers.get("ETag"))

    async def _task_ended(
        self, answer: transport.Answer, what: str, on_progress: Callable[[monitors.Progress], None]
    ) -> None:
        """Wait for the end of the task that an answer names.

        Raises:
            FabricError: it failed, or cannot be followed.
        """
        if not answer.locations:
            raise self._wire.build_malformed(what, "accepted it and names no task monitor", changes=True)
        where, pauses = self._wire.resolve(answer.locations[0]), _build_task_pauses()
        while True:
            state = monitors.judge(
                answer.status,
                answer.body,
                what=what,
                asked_seconds=decoding.retry_after_seconds(answer.headers.get("Retry-After")),
                pause=pauses.count_failure,
                redacted=self._wire.redact,
            )
            if isinstance(state, monitors.Ended):
                if state.error is not None:
                    raise state.error
                return
            on_progress(state.progress)
            await asyncio.sleep(state.progress.retry_after_seconds or 0.0)
            try:
                answer = await self._look_at_task(where, what)
            except errors.NotFound:
                # It ended, and its monitor is gone, or the service has forgotten it: the fabric shows which.
                return

    async def _look_at_task(self, where: yarl.URL, what: str) -> transport.Answer:
        """Return the answer of a task's monitor; that of a running task if it cannot be reached now.

        Raises:
            NotFound: it is gone.
            FabricError: the request failed, or its task cannot be followed.
        """
        try:
            return await self._send("GET", where, what=f"to follow the task of {what}", changes=True)
        except errors.NotFound:
            raise
        except errors.Misconfigured as error:
            raise judgement.unknown(error) from error
        except errors.Transient as error:
            if error.reason in messages.FINAL_REASONS:
                raise
            _logger.info(
                "a task of the Redfish service cannot be followed now", extra={"error": error.message}
            )
            return transport.Answer(status=202, headers={}, body={})

    async def task_ended(self, uri: str) -> None:
        """Wait until a task, begun by any client, has ended or is forgotten; the caller sets the deadline.

        Raises:
            FabricError: it cannot be read, for another reason than that the service is not reached now.
        """
        pauses = _build_task_pauses()
        while True:
            try:
                task = await self.get(uri)
            except errors.NotFound:
                return
            except errors.Transient as error:
                _logger.debug("a task of the Redfish service cannot be read", extra={"error": error.message})
            else:
                if monitors.has_ended(task.body):
                    return
            await asyncio.sleep(pauses.count_failure())

    async def events(self) -> AsyncGenerator[None, None]:
        """Yield once when the service's stream of server-sent events is open, and then for each event.

        The content is ignored: an event is only a hint. Use it with `contextlib.aclosing`.

        Raises:
            Unimplemented: the service offers no stream.
            FabricError: the stream cannot be opened, broke off, or exceeds its budget; then it is closed.
        """
        uri = self.root.link("EventService")
        service = await self.get(uri) if uri is not None else None
        stream = service.value("ServerSentEventUri") if service is not None else None
        if not isinstance(stream, str) or not stream:
            raise errors.Unimplemented("the Redfish service sends no events")
        headers = self._session.headers()
        async with aclosing(self._wire.stream(stream, headers, "to send its events")) as events:
            async for _ in events:
                yield

    async def close(self) -> None:
        """End the session on the service, within `CLOSE_SECONDS`, and close all connections; idempotent."""
        if self._closed:
            return
        self._closed = True
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._session.end()
        except (errors.FabricError, TimeoutError) as error:
            _logger.debug("the session on the Redfish service was not ended", extra={"error": str(error)})
        finally:
            await self._wire.close()

    async def _send(
        self,
        method: str,
        url: yarl.URL,
        *,
        what: str,
        body: documents.Json | None = None,
        headers: Mapping[str, str] | None = None,
        changes: bool = False,
        is_open: bool = False,
        listing: budget.Listing | None = None,
        seconds: float | None = None,
    ) -> transport.Answer:
        """Send a request and return the answer.

        If it is refused because the session is missing, and so had no effect, it is sent again with a new session.

        Raises:
            PermissionDenied: the new session is refused too.
            FabricError: the request was refused, or failed.
        """
        if self._closed:
            raise errors.Unavailable("the connection to the Redfish service is closed")

        def build(own: Mapping[str, str]) -> transport.Request:
            return transport.Request(
                method=method,
                url=url,
                what=what,
                body=body,
                headers={**(headers or {}), **own},
                changes=changes,
                listing=listing,
                seconds=seconds,
            )

        token = self._session.token
        try:
            answer = await self._wire.send(build({} if is_open else self._session.headers()))
        except errors.Unauthenticated as error:
            if self._session.refused_login is not None:
                raise self._session.refused_login from error
            if is_open or not token or error.reason == messages.EXPIRED_LOGIN:
                raise
            if url in self._denied and token == self._accepted_token:
                raise messages.explain_privilege(error) from error
        else:
            self._denied.discard(url)
            self._accepted_token = "" if is_open else token
            return answer
        await self._session.begin(self.root, token)
        token = self._session.token
        try:
            return await self._wire.send(build(self._session.headers()))
        except errors.Unauthenticated as error:
            if token != self._session.token:
                raise
            if len(self._denied) < DENIED_MAX:
                self._denied.add(url)
            raise messages.explain_privilege(error) from error


def _build_task_pauses() -> backoff.Backoff:
    """Return the pauses between two looks at a task."""
    return backoff.Backoff(monitors.PAUSE_SECONDS_MIN, monitors.PAUSE_SECONDS_MAX)
