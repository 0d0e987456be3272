"""Reads whose failure is a finding, each with a deadline, few at once."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from drawbar.driver.cli.doctor import observed
from drawbar.driver.cli.doctor.findings import Unread
from drawbar.driver.kube import client, errors, kinds

T = TypeVar("T")

AT_ONCE = 8
DEADLINE_SECONDS = 60.0
"""Of one object or of a whole list: thousands of nodes are tens of megabytes."""


class Reader:
    """Reads from one API server; nothing here raises but what a programmer can mend."""

    def __init__(self, api: client.Client, *, deadline_seconds: float = DEADLINE_SECONDS) -> None:
        self.api = api
        self._deadline = deadline_seconds
        self._room = asyncio.Semaphore(AT_ONCE)

    async def attempt(
        self, what: str, permission: str, ask: Callable[[], Awaitable[T]], *, absent: T | None = None
    ) -> observed.Reading[T]:
        """What `ask` gives, or why it gave nothing.

        Args:
            what: for the finding, such as `nodes`.
            permission: what is needed for it, such as `list nodes`.
            ask: one request, or the pages of one list.
            absent: stands for the answer that there is no such thing; None where that is a failure too.
        """
        async with self._room:
            try:
                async with asyncio.timeout(self._deadline):
                    return await ask()
            except errors.NotFound as error:
                return absent if absent is not None else Unread(what=what, why=str(error))
            except errors.Denied as error:
                return Unread(what=what, why=str(error), permission=permission)
            except errors.KubeError as error:
                return Unread(what=what, why=str(error))
            except TimeoutError:
                return Unread(what=what, why=f"no answer within {self._deadline:g} s")

    async def find(
        self, kind: kinds.Kind, name: str, *, into: type[T], namespace: str | None = None
    ) -> observed.Reading[T | None]:
        """One object; None if there is none of that name."""

        async def ask() -> tuple[T, ...]:
            return (await self.api.read(kind, name, into=into, namespace=namespace),)

        where = f"{namespace}/{name}" if namespace else name
        found = await self.attempt(f"{kind.kind} {where}", f"get {kind.plural}", ask, absent=tuple[T, ...]())
        if isinstance(found, Unread):
            return found
        return found[0] if found else None

    async def list_all(
        self, kind: kinds.Kind, *, into: type[T], namespace: str | None = None, fields: str = ""
    ) -> observed.Reading[tuple[T, ...]]:
        """All objects of a kind, in pages; none where the kind is not served."""

        async def ask() -> tuple[T, ...]:
            listing = await self.api.list_all(kind, into=into, namespace=namespace, fields=fields)
            return listing.items

        inside = f" in namespace {namespace}" if namespace else ""
        return await self.attempt(
            f"{kind.plural}{inside}", f"list {kind.plural}{inside}", ask, absent=tuple[T, ...]()
        )
