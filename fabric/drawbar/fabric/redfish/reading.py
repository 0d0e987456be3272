"""One reading of a Redfish service: its collections and resources, counted against the budget of the fabric.

All answers of one reading count together, across all collections, pages and links, also if several requests run at
the same time.

One faulty part does not fail the whole reading: a member that the service cannot show is omitted and noted in
`Reader.unread`. Its devices are then in doubt, not gone.
"""

import asyncio
import contextlib
import functools
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Set
from typing import TypeVar

from drawbar.fabric import budget, errors
from drawbar.fabric.redfish import documents, messages, pages
from drawbar.fabric.redfish.client import Client
from drawbar.fabric.redfish.documents import Document
from drawbar.fabric.redfish.failures import BROKEN_OFF, MALFORMED, NO_ANSWER
from drawbar.fabric.redfish.remembered import SECONDS_MAX, Remembered
from drawbar.fabric.redfish.transport import PARALLEL

_logger = logging.getLogger(__name__)
_OVER = str(errors.Reason.LIMIT_EXCEEDED)
# The least count of a further page, so that endless pages soon exceed the limit.
PAGE_RESOURCES = 32
# Refusals of a busy service after which a listing asks for a resource again.
BUSY_TRIES = 8
BUSY_SECONDS = 0.5

Item = TypeVar("Item")
Result = TypeVar("Result")


class Reader:
    """The reader of one listing's resources; make another one for the next listing.

    Attributes:
        root: the service root.
        listing: the count of this reading.
        unread: by URI, a sentence for each resource that the service failed to show.
        dangling: the URIs of links to missing resources.
        touched: the URIs of resources that are remembered, or may be.
        requests: the number of requests for resources that are not remembered.
        expands: whether the members of a collection are read with it.
    """

    def __init__(
        self,
        client: Client,
        remembered: Remembered | None = None,
        *,
        rereads: int | None = None,
        is_expanded: bool = True,
    ) -> None:
        """Begin a listing.

        Args:
            client: of the service.
            remembered: resources that need not be read; None to read each.
            rereads: the number of remembered resources to read again, the oldest first. None reads the outdated ones,
                and all members of collections.
            is_expanded: whether collections may be expanded.
        """
        self.expands = is_expanded and pages.expands(client.root)
        self.root = client.root
        self.touched: set[str] = set()
        self.requests = 0
        self._remembered = remembered
        self._rereads = remembered.oldest(rereads) if remembered is not None and rereads is not None else None
        self._busy_tries = BUSY_TRIES
        self.listing = client.begin_listing()
        self.unread: dict[str, str] = {}
        self.dangling: set[str] = set()
        self._client = client

    async def get(self, uri: str, *, query: str = "") -> Document:
        """Read a resource and return it.

        Raises:
            FabricError: it cannot be read; NotFound if there is none.
        """
        self.listing.count(budget.Counted.RESOURCES)
        self.requests += 1
        return await self._client.patience.read(
            f"{uri}{query}",
            lambda seconds: self._client.get(uri, query=query, listing=self.listing, seconds=seconds),
        )

    async def get_detail(self, uri: str) -> Document:
        """Return a resource that seldom changes, from memory if possible.

        Raises:
            FabricError: it cannot be read; NotFound if there is none.
        """
        return await self._get_remembered(uri, seconds=SECONDS_MAX)

    async def _get_remembered(self, uri: str, *, seconds: float) -> Document:
        """Return a resource from memory, unless it is too old or its turn has come."""
        known = self._remembered
        if known is None:
            return await self._get_again(uri)
        self.touched.add(uri)
        if uri in known and (
            uri not in self._rereads if self._rereads is not None else known.age(uri) < seconds
        ):
            self.listing.count(budget.Counted.RESOURCES)
            return known.find(uri)
        try:
            document = await self._get_again(uri)
        except errors.FabricError:
            # It is asked for in each listing until it can be read.
            known.forget(uri)
            raise
        self.requests -= 1
        known.note(uri, document)
        return document

    def note_unread(self, uri: str, error: errors.FabricError) -> None:
        """Note that the service failed to show a resource, and continue without it.

        Raises:
            FabricError: the error, if it concerns more than this resource.
        """
        if not is_of_resource(error):
            raise error
        _logger.debug("a resource of the Redfish service is left out", extra={"error": error.message})
        self.note(uri, f"{uri} cannot be read: {_shorten(error)}")

    def note(self, uri: str, sentence: str) -> None:
        """Note in a sentence that a resource is not shown, or not whole."""
        self.unread.setdefault(uri, sentence)

    @contextlib.contextmanager
    def noticing(self) -> Iterator[Callable[[], Set[str]]]:
        """Yield a function that returns the URIs of the resources that could not be read since then."""
        before = frozenset(self.unread)
        yield lambda: self.unread.keys() - before

    def forget_unread(self, uris: Iterable[str]) -> None:
        """Remove these resources from the unread ones, because nothing depends on them."""
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

    async def current_members(
        self, uri: str, *, levels: int = 1, may_be_remembered: bool = False, needs: str = ""
    ) -> tuple[Document, ...]:
        """Read all members of a collection as `members` does; one that stays listed and is not found is noted in `unread`.

        Raises:
            FabricError: the collection, or the service, cannot be read.
        """
        before = frozenset(self.dangling)
        listed = await self.members(uri, levels=levels, may_be_remembered=may_be_remembered, needs=needs)
        if missing := self.dangling - before:
            # One that was deleted in between is not listed any more.
            for each in await self._read_members(uri, 1):
                if each.uri in missing:
                    self.note(each.uri, f"{each.uri} cannot be read: {uri} lists it, and it is not found")
        return listed

    async def members(
        self, uri: str, *, levels: int = 1, may_be_remembered: bool = False, needs: str = ""
    ) -> tuple[Document, ...]:
        """Read the members of a collection, expanded if the service can, without those that it fails to show.

        If the service counts more members than it shows, the collection is noted in `unread`.

        Args:
            uri: of the collection.
            levels: the wanted levels below the collection, if the service expands several.
            may_be_remembered: whether remembered members suffice in a listing that reads by turns.
            needs: the property without which an expanded member is read by itself.

        Raises:
            FabricError: the collection, or the service, cannot be read, or none of the counted members is shown.
        """
        listed = await self._read_members(uri, levels)
        by_age = functools.partial(self._get_remembered, seconds=0.0)
        return await self._resolve(listed, by_age if may_be_remembered else self._get_again, needs)

    async def newest(self, uri: str, most: int) -> tuple[Document, ...]:
        """Read up to `most` members at the end of a collection, where services add them.

        Raises:
            FabricError: the collection, or the service, cannot be read.
        """
        return await self.resolve((await self._read_members(uri, 1))[-most:])

    async def _read_members(self, uri: str, levels: int) -> tuple[Document, ...]:
        """Read a collection, and return its members as they stand in it: links, or resources where the service expands."""
        if query := pages.build_query(self.root, levels) if self.expands else "":
            try:
                return await self._pages(uri, query)
            except errors.FabricError as error:
                if isinstance(error, errors.Unauthenticated) or error.reason == _OVER:
                    raise
                # Some services announce expansion and refuse it for a collection, or fail at one sick member.
                _logger.debug(
                    "a collection is read member by member", extra={"uri": uri, "error": error.message}
                )
        return await self._pages(uri, "")

    async def _pages(self, uri: str, query: str) -> tuple[Document, ...]:
        """Read all pages of a collection, and return its members as they stand in it.

        Raises:
            FabricError: a page cannot be read, or contradicts itself.
        """
        listed: list[Document] = []
        read: set[str] = set()
        following: str | None = uri
        is_expanded, counted = bool(query), 0
        while following is not None:
            page = await self._page(uri, following, query)
            read.add(following)
            entries = pages.find_members(page)
            if entries is None:
                raise _build_contradiction(uri, "sent it without its array Members")
            if nameless := sum(not entry.uri for entry in entries):
                self._note_partial(uri, f"shows {nameless} members without a URI", is_raised=is_expanded)
            if is_expanded and len({entry.uri for entry in entries}) < len(entries):
                raise _build_contradiction(uri, "shows several members with one URI")
            self.listing.count(budget.Counted.RESOURCES, len(entries))
            listed += entries
            # The link carries the query of its own.
            following, query = pages.find_next(page), ""
            counted = page.number(pages.COUNT)
            if following in read:
                following = None
                if not counted:
                    self.note(
                        uri,
                        f"{uri} cannot be read whole ({MALFORMED}): its pages lead back to an earlier one",
                    )
            if following is not None:
                self.listing.count(budget.Counted.RESOURCES, PAGE_RESOURCES)
        # A member may move to the next page while this one is read.
        distinct = pages.drop_repeated(listed)
        if counted > len(distinct):
            did = f"counts {counted} members and shows {len(distinct)}"
            self._note_partial(uri, did, is_raised=is_expanded or not distinct)
        return tuple(distinct)

    async def _page(self, uri: str, following: str, query: str) -> Document:
        """Return a page of a collection.

        Raises:
            NotFound: there is no collection.
            FabricError: the page cannot be read.
        """
        if not following:
            raise _build_contradiction(uri, "named its next page by something that is no URI")
        try:
            return await self._get_again(following, query=query)
        except errors.NotFound as error:
            if following == uri:
                raise
            raise _build_contradiction(uri, f"has no page {following}, which it named") from error

    def _note_partial(self, uri: str, did: str, *, is_raised: bool) -> None:
        """Note that a collection does not show all of its members.

        Raises:
            Unavailable: if the error `is_raised`, since the collection without its expansion may show more.
        """
        if is_raised:
            raise _build_contradiction(uri, did)
        self.note(uri, f"{uri} cannot be read whole ({MALFORMED}): it {did}")

    async def resolve(self, listed: tuple[Document, ...]) -> tuple[Document, ...]:
        """Return the resources, those read that are links only; one that is gone or cannot be shown is left out and noted.

        Raises:
            FabricError: the service cannot be read for now.
        """
        return await self._resolve(listed, self._get_again)

    async def details(self, uris: Iterable[str]) -> tuple[Document, ...]:
        """Return resources that seldom change, as they are remembered where that will do; else as `resolve` does.

        Raises:
            FabricError: the service cannot be read for now.
        """
        links = tuple(Document(uri=uri, body={documents.ID: uri}) for uri in sorted(uris))
        return await self._resolve(links, self.get_detail)

    async def _resolve(
        self, listed: tuple[Document, ...], read: Callable[[str], Awaitable[Document]], needs: str = ""
    ) -> tuple[Document, ...]:
        async def resource(document: Document) -> Document | None:
            is_whole = not document.is_stub and (not needs or document.value(needs) is not None)
            return document if is_whole else await self._resource(document, read)

        resources = await read_in_parallel((document for document in listed if document.uri), resource)
        return tuple(resource for resource in resources if resource is not None)

    async def _resource(
        self, document: Document, read: Callable[[str], Awaitable[Document]]
    ) -> Document | None:
        try:
            resource = await read(document.uri)
        except errors.NotFound:
            self.dangling.add(document.uri)
            return None
        except errors.FabricError as error:
            self.note_unread(document.uri, error)
            return None
        if resource.is_reference or messages.is_refusal(resource.body):
            self.note_unread(
                document.uri, _build_contradiction(document.uri, "sent nothing of it", what="resource")
            )
            return None
        return resource

    async def _get_again(self, uri: str, *, query: str = "") -> Document:
        """Read a resource, once more if the service breaks off its answer, or is busy for the first times."""
        try:
            return await self.get(uri, query=query)
        except errors.Unavailable as error:
            if error.reason == messages.BUSY and self._busy_tries:
                self._busy_tries -= 1
                await asyncio.sleep(BUSY_SECONDS)
            elif error.reason != BROKEN_OFF:
                raise
        return await self.get(uri, query=query)


async def read_linked(owner: Document, name: str, read: Callable[[str], Awaitable[Result]]) -> Result:
    """Return the result of `read` for the linked resource, or else for the schema's place of it.

    Raises:
        Unimplemented: the service has it in neither place.
        FabricError: it cannot be read.
    """
    schema_uri = f"{owner.uri}/{name}"
    linked = owner.link(name) or schema_uri
    for uri in dict.fromkeys((linked, schema_uri)):
        try:
            return await read(uri)
        except errors.NotFound:
            continue
    raise errors.Unimplemented(
        f"{owner.uri} of the Redfish service links to {linked} as its {name}, where the service has nothing (404); look at "
        f"the endpoint and at `profile`, or tell the vendor"
    )


def is_of_resource(error: errors.FabricError) -> bool:
    """Return whether only this resource failed, and the service answered: the rest of the listing is good."""
    if isinstance(error, errors.Unavailable):
        return error.reason in (MALFORMED, BROKEN_OFF) or "status" in error.vendor
    return error.reason == NO_ANSWER or isinstance(error, errors.Refused | errors.PermissionDenied)


def _shorten(error: errors.FabricError) -> str:
    """Return the fault of a resource in a clause, without words that change between readings."""
    status = error.vendor.get("status", "")
    if status:
        return f"the service answers with {status}"
    clauses = {
        BROKEN_OFF: "the service breaks off its answer",
        MALFORMED: "its answer is malformed",
        NO_ANSWER: "the service does not answer in time",
    }
    return clauses.get(error.reason, error.reason)


def _build_contradiction(uri: str, did: str, *, what: str = "collection") -> errors.Unavailable:
    """Return the error of an inconsistent collection: its missing devices are in doubt, not gone."""
    return errors.Unavailable(
        f"the Redfish service was asked for the {what} {uri} and {did}; read it again, then look at the service",
        reason=MALFORMED,
    )


async def read_in_parallel(
    items: Iterable[Item], read: Callable[[Item], Awaitable[Result]]
) -> tuple[Result, ...]:
    """Return the results of all items in their order, reading a few at a time.

    Raises:
        FabricError: the error of an item; the following items are not begun.
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
