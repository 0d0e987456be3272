"""Listings in pages that all show one moment.

A listing longer than a page is kept for its further pages. Only a few are kept; whoever comes back too late is
told to begin again.
"""

import itertools
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from drawbar.fabric import errors

PAGE_ITEMS = 250
"""A host or device is at most some 8 KiB, so that a page stays below the 4 MiB that gRPC takes unasked."""
KEPT_LISTINGS = 8

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[Item]):
    """A part of a listing; an empty token says that it is the last."""

    items: Sequence[Item]
    token: str
    version: str


class Listings(Generic[Item]):
    """The listings that are being read."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._kept: OrderedDict[int, tuple[Sequence[Item], str]] = OrderedDict()

    def first(self, items: Sequence[Item], *, version: str = "", size: int = 0) -> Page[Item]:
        """Begins a listing; `size` 0 leaves the choice to the server."""
        number = next(self._numbers)
        self._kept[number] = (items, version)
        while len(self._kept) > KEPT_LISTINGS:
            self._kept.popitem(last=False)
        return self._page(number, 0, size)

    def further(self, token: str, *, size: int = 0) -> Page[Item]:
        """Continues a listing.

        Raises:
            InvalidArgument: the token was not made here.
            Aborted: the listing is no longer kept.
        """
        number, _, offset = token.partition(":")
        if not (number.isascii() and number.isdigit() and offset.isascii() and offset.isdigit()):
            raise errors.InvalidArgument(f'the page token "{errors.cut(token, 40)}" was not given out here')
        if int(number) not in self._kept:
            raise errors.Aborted("the listing is too old to be continued; begin again at the first page")
        return self._page(int(number), int(offset), size)

    def _page(self, number: int, offset: int, size: int) -> Page[Item]:
        items, version = self._kept[number]
        end = offset + min(size or PAGE_ITEMS, PAGE_ITEMS)
        if end >= len(items):
            # The last page may be asked for again after a lost answer, so only single-page listings go at once.
            if offset == 0:
                del self._kept[number]
            return Page(items=items[offset:], token="", version=version)
        return Page(items=items[offset:end], token=f"{number}:{end}", version=version)
