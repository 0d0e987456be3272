"""Bounded reads of one API server: each has a deadline, few run at once, and a failure is a finding.

The clock is read from the `Date` header of every answer (RFC 9110, 6.6.1). The usual client does not return headers, so
this is a request of its own. `CannotCheck` ends the doctor without a report.
"""

import asyncio
import datetime
import email.utils
from collections.abc import Awaitable, Callable
from typing import TypeVar

import aiohttp

from drawbar.driver import errors
from drawbar.driver.cli import remedies
from drawbar.driver.cli.doctor import observed
from drawbar.driver.cli.doctor.findings import Unread
from drawbar.driver.kube import client, exclusions, kinds, sessions
from drawbar.driver.kube import errors as kube_errors


class CannotCheck(errors.DrawbarError):
    """The API server does not answer, or rejects our credentials."""

    exit_code = errors.ExitStatus.UNREAD


CLOCK_TIMEOUT_SECONDS = 10.0
_CLOCK_PATH = "/version"


async def read_clock(connection: sessions.Connection) -> observed.Clock:
    """Return the API server's clock between two readings of ours.

    Raises:
        errors.CannotCheck: the API server does not answer.
        kube.errors.ConfigError: the token cannot be read.
    """
    headers = await sessions.headers(connection)
    timeout = aiohttp.ClientTimeout(total=CLOCK_TIMEOUT_SECONDS)
    before = _now()
    try:
        async with (
            sessions.opening(connection, 0) as (session,),
            session.get(connection.server + _CLOCK_PATH, headers=headers, timeout=timeout) as response,
        ):
            return observed.Clock(before=before, date=_date(response.headers.get("Date", "")), after=_now())
    except (aiohttp.ClientError, TimeoutError) as error:
        raise CannotCheck(
            f"nothing can be looked at: {connection.server} (from {connection.origin}) does not answer: {sessions.words(error)}: "
            f"{remedies.find_cause_remedy(error)}"
        ) from error


def _date(header: str) -> datetime.datetime | None:
    try:
        date = email.utils.parsedate_to_datetime(header)
    except (ValueError, OverflowError):
        return None
    return date if date.tzinfo is not None else None


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


T = TypeVar("T")

AT_ONCE = 8
DEADLINE_SECONDS = 60.0
"""For one object or a whole list: thousands of nodes are tens of megabytes."""


class Reader:
    """A reader of one API server; it returns failures as `Unread`.

    Attributes:
        unreadable: the objects left out of the lists so far.
    """

    def __init__(self, api: client.Client, *, deadline_seconds: float = DEADLINE_SECONDS) -> None:
        self.api = api
        self._deadline = deadline_seconds
        self._room = asyncio.Semaphore(AT_ONCE)
        self.unreadable: list[exclusions.Unreadable] = []

    async def attempt(
        self, what: str, permission: str, ask: Callable[[], Awaitable[T]], *, absent: T | None = None
    ) -> observed.Reading[T]:
        """Return the result of `ask`, or the reason why there is none.

        Args:
            what: the name for the finding, such as `nodes`.
            permission: the needed permission, such as `list nodes`.
            ask: one request, or the pages of one list.
            absent: the result if the API server has no such thing; None if that is a failure too.
        """
        async with self._room:
            try:
                async with asyncio.timeout(self._deadline):
                    return await ask()
            except kube_errors.NotFound as error:
                return absent if absent is not None else Unread(what=what, why=str(error))
            except kube_errors.Denied as error:
                is_known = not isinstance(error, kube_errors.Unauthenticated)
                return Unread(
                    what=what,
                    why=str(error),
                    permission=permission if is_known else "",
                    remedy=remedies.find_remedy(error),
                )
            except kube_errors.KubeError as error:
                return Unread(what=what, why=str(error), remedy=remedies.find_remedy(error))
            except TimeoutError as error:
                why, remedy = f"no answer within {self._deadline:g} s", remedies.find_cause_remedy(error)
                return Unread(what=what, why=why, remedy=remedy)

    async def find(
        self, kind: kinds.Kind, name: str, *, into: type[T], namespace: str | None = None
    ) -> observed.Reading[T | None]:
        """Return one object, or None if there is none of that name."""

        async def ask() -> tuple[T, ...]:
            return (await self.api.read(kind, name, into=into, namespace=namespace),)

        where = f"{namespace}/{name}" if namespace else name
        objects = await self.attempt(
            f"{kind.kind} {where}", f"get {kind.plural}", ask, absent=tuple[T, ...]()
        )
        if isinstance(objects, Unread):
            return objects
        return objects[0] if objects else None

    async def list_all(
        self, kind: kinds.Kind, *, into: type[T], namespace: str | None = None, fields: str = ""
    ) -> observed.Reading[tuple[T, ...]]:
        """Return all objects of a kind, read in pages; empty if the kind is not served."""

        async def ask() -> tuple[T, ...]:
            listing = await self.api.list_all(kind, into=into, namespace=namespace, fields=fields)
            self.unreadable += listing.unreadable
            return listing.items

        inside = f" in namespace {namespace}" if namespace else ""
        return await self.attempt(
            f"{kind.plural}{inside}", f"list {kind.plural}{inside}", ask, absent=tuple[T, ...]()
        )
