"""Rules of PodSchedulingContexts, and of a claim's status, in 1.30 and 1.31, where a driver's controller allocates and deallocates.

Source: pkg/apis/resource/validation of Kubernetes 1.30 and 1.31.  The two differ in what an allocation says, which
their own modules check (``resourceclasses``, ``alpharequests``).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any

from drawbar.mocks.apiserver import errors
from drawbar.mocks.apiserver.errors import Cause
from drawbar.mocks.apiserver.validation import lists, names

Json = dict[str, Any]
MAX_RESERVED = 32
MAX_NODES = 128  # of the potential nodes, and of each claim's unsuitable ones
_CLOSED = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"


def at_most(items: list[Any], path: str, check: lists.Check, *, limit: int) -> Iterator[Cause]:
    """Yield the rules that items break, and also a list's length when it is over the limit."""
    yield from lists.each(items, path, check)
    if len(items) > limit:
        yield errors.longer_than(path, limit)


def distinct(
    items: list[Any],
    path: str,
    check: lists.Check,
    key: Callable[[Any], Hashable],
    *,
    limit: int,
    field: str = "",
) -> Iterator[Cause]:
    """The same, of a list in which no key may stand twice; ``field`` is the key's field in an item."""
    yield from at_most(items, path, check, limit=limit)
    seen: set[Hashable] = set()
    for index, item in enumerate(items):
        held = key(item)
        if held in seen:
            yield errors.duplicate(f"{path}[{index}]{field}", held)
        seen.add(held)


def status(new: Json, old: Json, allocation: Iterator[Cause], *, deleted: bool) -> Iterator[Cause]:
    """Every rule that a new status breaks.

    Args:
        new: the status to be.
        old: the status that is.
        allocation: what is wrong with the new allocation itself.
        deleted: the claim is being deleted.
    """
    yield from allocation
    yield from distinct(
        new.get("reservedFor") or [],
        "status.reservedFor",
        _consumer,
        lambda consumer: consumer.get("uid") or "",
        limit=MAX_RESERVED,
        field=".uid",
    )
    yield from _reservations(new, old, deleted=deleted)
    held, before = new.get("allocation"), old.get("allocation")
    if held is not None and before is not None and held != before:
        yield errors.invalid_value("status.allocation", "object", "field is immutable")
    yield from _deallocation(new, old)


def _consumer(consumer: Json, path: str) -> Iterator[Cause]:
    for key in ("resource", "name", "uid"):
        if not consumer.get(key):
            yield errors.required(f"{path}.{key}")


def _reservations(new: Json, old: Json, *, deleted: bool) -> Iterator[Cause]:
    reserved = new.get("reservedFor") or []
    if not reserved:
        return
    path = "status.reservedFor"
    if new.get("allocation") is None:
        yield errors.forbidden_value(path, "may not be specified when `allocated` is not set")
        return
    closed = deleted or new.get("deallocationRequested")
    if closed and any(entry not in (old.get("reservedFor") or ()) for entry in reserved):
        yield errors.forbidden_value(path, _CLOSED)


def _deallocation(new: Json, old: Json) -> Iterator[Cause]:
    """Only an unused claim is asked back, and what was asked stays asked until the allocation is gone."""
    path, asked, before = (
        "status.deallocationRequested",
        new.get("deallocationRequested"),
        old.get("deallocationRequested"),
    )
    if asked and not before and new.get("reservedFor"):
        yield errors.forbidden_value(path, "deallocation cannot be requested while `reservedFor` is set")
    if asked and new.get("allocation") is None:
        yield errors.forbidden_value("status", "`allocation` must be set when `deallocationRequested` is set")
    if before and not asked and new.get("allocation") is not None:
        yield errors.forbidden_value(path, "may not be cleared when `allocation` is set")


def context_spec(value: Json) -> Iterator[Cause]:
    """Every rule that the spec of a PodSchedulingContext breaks; the selected node may be any."""
    yield from _nodes(value.get("potentialNodes") or [], "spec.potentialNodes")


def context_status(value: Json) -> Iterator[Cause]:
    """Every rule that the status of a PodSchedulingContext breaks; names are not compared with the pod's claims.

    The real server names the field ``claims``, which it is not.
    """
    entries = value.get("resourceClaims") or []
    yield from lists.distinct(entries, "status.claims", _answer, lambda entry: entry.get("name") or "")


def _answer(entry: Json, path: str) -> Iterator[Cause]:
    yield from _nodes(entry.get("unsuitableNodes") or [], f"{path}.unsuitableNodes")


def _nodes(items: list[str], path: str) -> Iterator[Cause]:
    yield from distinct(items, path, names.subdomain, str, limit=MAX_NODES)
