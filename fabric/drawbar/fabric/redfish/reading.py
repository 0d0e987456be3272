"""One reading of a Redfish service: its collections and resources, counted against the budget of the fabric.

All answers of one reading count together, however many collections, pages and links they are spread over, and also where
several are on their way at the same time.

One sick part does not fail the whole: a member that the service cannot show is left out and noted in `Reader.unread`. Its
devices are in doubt then, and not gone.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Set
from typing import TypeVar

from drawbar.fabric import budget, errors
from drawbar.fabric.redfish import documents
from drawbar.fabric.redfish.client import BROKEN_OFF, MALFORMED, PARALLEL, Client
from drawbar.fabric.redfish.documents import Document

_logger = logging.getLogger(__name__)
_OVER = str(errors.Reason.LIMIT_EXCEEDED)
# What a further page counts as, however few members it has: pages without end are noticed soon.
PAGE_RESOURCES = 32

Item = TypeVar("Item")
Result = TypeVar("Result")


class Reader:
    """Reads the resources of one listing; make another one for the next.

    Attributes:
        root: the service root.
        listing: what was read so far.
        unread: by URI, a sentence for each resource that the service failed to show.
        dangling: the URIs that resources link to and the service does not have.
    """

    def __init__(self, client: Client) -> None:
        self.root = client.root
        self.listing = client.listing()
        self.unread: dict[str, str] = {}
        self.dangling: set[str] = set()
        self._client = client

    async def get(self, uri: str, *, query: str = "") -> Document:
        """Read a resource.

        Raises:
            FabricError: it cannot be read; NotFound where there is none.
        """
        self.listing.count(budget.Counted.RESOURCES)
        return await self._client.get(uri, query=query, listing=self.listing)

    def note_unread(self, uri: str, error: errors.FabricError) -> None:
        """Note that the service failed to show a resource, and go on without it.

        Raises:
            FabricError: the error, if it is not about this resource alone.
        """
        if not is_of_resource(error):
            raise error
        if uri not in self.unread:
            _logger.warning("a resource of the Redfish service is left out: %s", error.message)
            self.unread[uri] = f"{uri} cannot be read: {_shorten(error)}"

    @contextlib.contextmanager
    def noticing(self) -> Iterator[Callable[[], Set[str]]]:
        """Yield a function that returns the URIs of what could not be read since then."""
        before = frozenset(self.unread)
        yield lambda: self.unread.keys() - before

    def forget_unread(self, uris: Iterable[str]) -> None:
        """Take back that these resources could not be read: nothing depends on them."""
        for uri in uris:
            self.unread.pop(uri, None)

    async def available_members(self, uri: str, *, levels: int = 1) -> tuple[Document, ...]:
        """Read all members of a collection as `members` does; none, noted in `unread`, if it cannot be read itself.

        Raises:
            FabricError: the service cannot be read for now.
        """
        try:
            return await self.members(uri, levels=levels)
        except errors.FabricError as error:
            self.note_unread(uri, error)
            return ()

    async def members(self, uri: str, *, levels: int = 1) -> tuple[Document, ...]:
        """Read the members of a collection, expanded by the service where it offers that; without those that it cannot show.

        Args:
            uri: of the collection.
            levels: how many levels below the collection are wanted, where the service expands several.

        Raises:
            FabricError: the collection, or the service, cannot be read.
        """
        if query := self._expand(levels):
            try:
                return await self._pages(uri, query)
            except errors.FabricError as error:
                if isinstance(error, errors.NotFound | errors.Misconfigured) or error.reason == _OVER:
                    raise
                # Some services announce expansion and refuse it for a collection, or fail at one sick member.
                _logger.debug(
                    "a collection is read member by member", extra={"uri": uri, "error": error.message}
                )
        return await self._pages(uri, "")

    async def _pages(self, uri: str, query: str) -> tuple[Document, ...]:
        listed: list[Document] = []
        following: str | None = uri
        is_expanded = bool(query)
        while following is not None:
            page = await self.get(following, query=query)
            entries = page.objects("Members")
            if not isinstance(page.value("Members"), list):
                raise _contradicted(uri, "sent it without its array Members")
            self.listing.count(budget.Counted.RESOURCES, len(entries))
            listed += map(Document.from_json, entries)
            link = page.value("Members@odata.nextLink")
            # The link carries the query of its own.
            following, query = (link, "") if isinstance(link, str) and link else (None, "")
            if following is not None:
                self.listing.count(budget.Counted.RESOURCES, PAGE_RESOURCES)
            elif (counted := page.number("Members@odata.count")) > len(listed):
                did = f"sent {len(listed)} of the {counted} members that it counts"
                if is_expanded or not listed:
                    raise _contradicted(uri, did)
                self.unread.setdefault(uri, f"{uri} is incomplete: the service {did}")
        return await self.resolved(tuple(listed))

    async def newest(self, uri: str, most: int) -> tuple[Document, ...]:
        """Read so many members at the end of the first page of a collection, which is where services add them.

        Raises:
            FabricError: the collection, or a member that still exists, cannot be read.
        """
        page = await self.get(uri, query=self._expand(1))
        return await self.resolved(tuple(map(Document.from_json, page.objects("Members")[-most:])))

    async def resolved(self, listed: tuple[Document, ...]) -> tuple[Document, ...]:
        """Return the resources, those read that are links only; one that is gone or cannot be shown is left out and noted.

        Raises:
            FabricError: the service cannot be read for now.
        """
        resources = await in_parallel((document for document in listed if document.uri), self._resource)
        return tuple(resource for resource in resources if resource is not None)

    async def _resource(self, document: Document) -> Document | None:
        if not document.is_reference:
            return document
        try:
            resource = await self._get_again(document.uri)
        except errors.NotFound:
            self.dangling.add(document.uri)
            return None
        except errors.FabricError as error:
            self.note_unread(document.uri, error)
            return None
        if resource.is_reference or resource.body.keys() <= {"error"}:
            self.note_unread(document.uri, _contradicted(document.uri, "sent nothing of it", what="resource"))
            return None
        return resource

    async def _get_again(self, uri: str) -> Document:
        """Read a resource, once more if the service breaks off its answer."""
        try:
            return await self.get(uri)
        except errors.Unavailable as error:
            if error.reason != BROKEN_OFF:
                raise
        return await self.get(uri)

    @property
    def expands(self) -> bool:
        """Whether the service expands the members of a collection."""
        return documents.value(self.root.body, "ProtocolFeaturesSupported", "ExpandQuery", "NoLinks") is True

    def _expand(self, levels: int) -> str:
        """Return the query that expands a collection (DSP0266, "$expand"), or an empty one."""
        offered = documents.value(self.root.body, "ProtocolFeaturesSupported", "ExpandQuery")
        if not self.expands or not isinstance(offered, dict):
            return ""
        if offered.get("Levels") is not True:
            return "$expand=."
        most = offered.get("MaxLevels")
        return f"$expand=.($levels={min(levels, most) if isinstance(most, int) and most > 0 else 1})"


def is_of_resource(error: errors.FabricError) -> bool:
    """Return whether the service answered, and has trouble with this resource alone: the rest of the listing is good."""
    if isinstance(error, errors.Unavailable):
        return error.reason in (MALFORMED, BROKEN_OFF) or "status" in error.vendor
    return isinstance(error, errors.Refused | errors.PermissionDenied)


def _shorten(error: errors.FabricError) -> str:
    """Return what is wrong with a resource in a clause, without words that differ from time to time."""
    status = error.vendor.get("status", "")
    if status:
        return f"the service answers with {status}"
    if error.reason == BROKEN_OFF:
        return "the service breaks off its answer"
    return "its answer is malformed" if error.reason == MALFORMED else error.reason


def _contradicted(uri: str, did: str, *, what: str = "collection") -> errors.Unavailable:
    """Return the error of a collection that contradicts itself: devices that are missing in it are in doubt, and not gone."""
    return errors.Unavailable(
        f"the Redfish service was asked for the {what} {uri} and {did}; read it again, then look at the service",
        reason=MALFORMED,
    )


async def in_parallel(items: Iterable[Item], read: Callable[[Item], Awaitable[Result]]) -> tuple[Result, ...]:
    """Return the results of all items in their order, reading a few at a time.

    Raises:
        FabricError: of an item; the following ones are not begun then.
    """
    results: dict[int, Result] = {}
    failures: list[errors.FabricError] = []
    numbered = tuple(enumerate(items))
    left = iter(numbered)

    async def read_remaining() -> None:
        # Raised in the group, the error would be wrapped.
        try:
            for number, item in left:
                if failures:
                    return
                results[number] = await read(item)
        except errors.FabricError as error:
            failures.append(error)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(min(PARALLEL, len(numbered))):
            tasks.create_task(read_remaining())
    if failures:
        raise failures[0]
    return tuple(results[number] for number in sorted(results))
