"""The readers of a page that serves many: each has a page of his own, read with his own bearer token.

The server has no rights, so a page never shows more than its reader may read. A reader is admitted if the API server knows
the token, and lets it list some kind of the page in the whole cluster. Every `REVIEW_SECONDS` the API server is asked again: the
page ends once the token is refused or a right is lost. It also ends if it is not open for `IDLE_SECONDS`, and after
`SESSION_SECONDS`. Tokens are kept in memory only, are never logged, and go to the API server alone.

Source: Kubernetes "Authenticating" (SelfSubjectReview), "Authorization Overview" (SelfSubjectAccessReview).
"""

import asyncio
import contextlib
import hashlib
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from drawbar.driver import containment, errors
from drawbar.driver.catalogue import permissions
from drawbar.driver.cli.ui import explaining, following, server
from drawbar.driver.kube import client, reviews, sessions
from drawbar.driver.kube import errors as kube_errors

log = logging.getLogger(__name__)

READERS_LIMIT = 16
ARRIVING_LIMIT = 4
ARRIVAL_SECONDS = 90.0
REVIEW_SECONDS = 60.0
IDLE_SECONDS = 600.0
SESSION_SECONDS = 8 * 3600.0
_SHOWN = tuple(
    (rule.group, rule.resource)
    for rule in permissions.VIEWER.permissions
    if {"list", "watch"} <= set(rule.verbs.split())
)
Connect = Callable[[str], sessions.Connection]
"""A function that returns the connection to the API server with a bearer token."""


class Refused(errors.DrawbarError):
    """The reader is not admitted; `status` is that of HTTP."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


@dataclass(kw_only=True)
class Reader:
    """A reader with a page.

    Attributes:
        secret: the value of his cookie.
        name: his user name.
        pages: the answers to his requests.
        since: when he was admitted, by a monotonic clock.
        used: the time of his last request.
        ended: set to end the page.
    """

    secret: str
    name: str
    pages: server.Pages
    since: float
    used: float
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class Readers:
    """The admitted readers, at most `READERS_LIMIT`.

    Args:
        tasks: a group for one task for each reader.
        connect: see `Connect`.
        driver: the DRA driver's name.
        namespace: the daemons' namespace.
        cluster_name: the name for people.
        clock: seconds of a monotonic clock.
    """

    def __init__(
        self,
        tasks: asyncio.TaskGroup,
        connect: Connect,
        *,
        driver: str,
        namespace: str,
        cluster_name: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tasks = tasks
        self._connect = connect
        self._driver = driver
        self._namespace = namespace
        self._cluster_name = cluster_name
        self._clock = clock
        self._contained = containment.Containment(clock)
        self._by_secret: dict[bytes, Reader] = {}
        self._by_token: dict[bytes, Reader] = {}
        self._arriving = 0

    def find(self, secret: str) -> Reader | None:
        """Return the reader with this cookie."""
        reader = self._by_secret.get(_digest(secret))
        if reader is not None:
            reader.used = self._clock()
        return reader

    async def admit(self, token: str) -> Reader:
        """Return the reader with this token once his page has been read.

        Raises:
            Refused: the token is refused or has no rights, there are too many readers, or the API server does not answer.
        """
        if not reviews.TOKEN.fullmatch(token):
            raise Refused(401, "this is no bearer token")
        known = self._by_token.get(_digest(token))
        if known is not None:
            known.used = self._clock()
            return known
        if self._arriving >= ARRIVING_LIMIT:
            raise Refused(503, f"{self._arriving} other readers log in; try again in a minute")
        if len(self._by_secret) + self._arriving >= READERS_LIMIT and not self._end_oldest():
            raise Refused(503, f"{READERS_LIMIT} readers have a page open; try again later")
        self._arriving += 1
        try:
            arrival: asyncio.Future[Reader] = asyncio.get_running_loop().create_future()
            self._tasks.create_task(self._serve(token, arrival), name="reader")
            async with asyncio.timeout(ARRIVAL_SECONDS):
                return await arrival
        except TimeoutError as error:
            raise Refused(503, f"the API server has not answered within {ARRIVAL_SECONDS:g} s") from error
        finally:
            self._arriving -= 1

    def _end_oldest(self) -> bool:
        """End the page that was not open for the longest time; return False if all are open."""
        closed = [reader for reader in self._by_secret.values() if not reader.pages.streams]
        if not closed:
            return False
        self._forget(min(closed, key=lambda reader: reader.used))
        return True

    def _forget(self, reader: Reader) -> None:
        for listed in (self._by_secret, self._by_token):
            for key in [key for key, each in listed.items() if each is reader]:
                del listed[key]
        reader.ended.set()
        reader.pages.close()

    def leave(self, reader: Reader) -> None:
        """End a reader's page."""
        self._forget(reader)

    def leave_all(self) -> None:
        """End all pages."""
        for reader in list(self._by_secret.values()):
            self._forget(reader)

    async def _serve(self, token: str, arrival: asyncio.Future[Reader]) -> None:
        """Serve one reader until his page ends."""
        refusal = Refused(500, "unexpected error; the log of the page's pod has the details")
        with self._contained.attempt("reader"):
            try:
                await self._follow(token, arrival)
            except Refused as error:
                refusal = error
            except kube_errors.Unauthenticated:
                refusal = Refused(401, "the API server does not know the token, or it has expired")
            except errors.DrawbarError as error:
                refusal = Refused(503, str(error))
        if not arrival.done():
            arrival.set_exception(refusal)

    async def _follow(self, token: str, arrival: asyncio.Future[Reader]) -> None:
        async with client.connecting(self._connect(token)) as api:
            name = await reviews.find_username(api) or "a reader without a name"
            rights = await _find_rights(api)
            if not rights:
                raise Refused(
                    403, f"{name} may list nothing of the page: ask for the ClusterRole drawbar-viewer"
                )
            about = following.following(
                api, driver=self._driver, cluster_name=self._cluster_name, reader=name
            )
            async with about as latest:
                explain = explaining.Explainer(api, driver=self._driver, namespace=self._namespace).explain
                now = self._clock()
                reader = Reader(
                    secret=secrets.token_urlsafe(32),
                    name=name,
                    pages=server.Pages(latest, explain),
                    since=now,
                    used=now,
                )
                self._by_secret[_digest(reader.secret)] = self._by_token[_digest(token)] = reader
                log.info("a reader has come", extra={"user": name})
                if not arrival.done():
                    arrival.set_result(reader)
                try:
                    await self._review(api, reader, rights)
                finally:
                    self._forget(reader)
                    log.info("a reader has gone", extra={"user": name})

    async def _review(self, api: client.Client, reader: Reader, rights: frozenset[tuple[str, str]]) -> None:
        """Return once the page has to end."""
        while not reader.ended.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REVIEW_SECONDS):
                    await reader.ended.wait()
            now = self._clock()
            is_idle = not reader.pages.streams and now - reader.used >= IDLE_SECONDS
            if is_idle or now - reader.since >= SESSION_SECONDS:
                return
            try:
                if not rights <= await _find_rights(api):
                    return
            except (kube_errors.Unauthenticated, kube_errors.Denied):
                return
            except errors.DrawbarError as error:
                # Without an API server, nothing new is shown either.
                log.warning(
                    "a reader's rights are not reviewed", extra={"user": reader.name, "reason": str(error)}
                )


@contextlib.asynccontextmanager
async def receiving(connect: Connect, **options: Any) -> AsyncIterator[Readers]:
    """Yield the readers, and end all of their pages after the block.

    Args:
        connect: see `Connect`.
        options: those of `Readers`.
    """
    async with asyncio.TaskGroup() as tasks:
        readers = Readers(tasks, connect, **options)
        try:
            yield readers
        finally:
            readers.leave_all()


async def _find_rights(api: client.Client) -> frozenset[tuple[str, str]]:
    """Return group and resource of the page's kinds that may be listed in the whole cluster."""
    allowed = await asyncio.gather(
        *(
            reviews.may(api, {"group": group, "resource": resource, "verb": "list"})
            for group, resource in _SHOWN
        )
    )
    return frozenset(kind for kind, is_allowed in zip(_SHOWN, allowed, strict=True) if is_allowed)


def _digest(content: str) -> bytes:
    return hashlib.sha256(content.encode(errors="surrogateescape")).digest()
