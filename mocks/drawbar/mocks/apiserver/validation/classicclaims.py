"""Rules of 1.30 and 1.31 for PodSchedulingContexts and a claim's status, with allocation by a driver's controller.

Source: pkg/apis/resource/validation of Kubernetes 1.30 and 1.31. The two differ in the allocation, which their own
modules check (``resourceclasses``, ``alpharequests``).
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


def check_at_most(items: list[Any], path: str, check: lists.Check, *, limit: int) -> Iterator[Cause]:
    """Yield the rules broken by items, and a problem if the list is over its limit."""
    yield from lists.check_each(items, path, check)
    if len(items) > limit:
        yield errors.longer_than(path, limit)


def check_distinct(
    items: list[Any],
    path: str,
    check: lists.Check,
    key: Callable[[Any], Hashable],
    *,
    limit: int,
    field: str = "",
) -> Iterator[Cause]:
    """Do the same for a list with unique keys; ``field`` is the key's field in an item."""
    yield from check_at_most(items, path, check, limit=limit)
    seen: set[Hashable] = set()
    for index, item in enumerate(items):
        held = key(item)
        if held in seen:
            yield errors.duplicate_value(f"{path}[{index}]{field}", held)
        seen.add(held)


def status(new: Json, old: Json, allocation: Iterator[Cause], *, deleted: bool) -> Iterator[Cause]:
    """Yield every rule broken by a new status.

    Args:
        new: the new status.
        old: the present status.
        allocation: the problems of the new allocation itself.
        deleted: true if the claim is being deleted.
    """
    yield from allocation
    yield from check_distinct(
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
            yield errors.required_value(f"{path}.{key}")


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
    """Yield a problem if deallocation is requested for a used claim, or if the request is withdrawn too early."""
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
    """Yield every rule broken by the spec of a PodSchedulingContext; the selected node is not checked."""
    yield from _nodes(value.get("potentialNodes") or [], "spec.potentialNodes")


def context_status(value: Json) -> Iterator[Cause]:
    """Yield every rule broken by the status of a PodSchedulingContext, without comparing names to the pod's claims.

    Like the real server, it calls the field ``claims`` in paths, although the name is ``resourceClaims``.
    """
    entries = value.get("resourceClaims") or []
    yield from lists.check_distinct(entries, "status.claims", _answer, lambda entry: entry.get("name") or "")


def _answer(entry: Json, path: str) -> Iterator[Cause]:
    yield from _nodes(entry.get("unsuitableNodes") or [], f"{path}.unsuitableNodes")


def _nodes(items: list[str], path: str) -> Iterator[Cause]:
    yield from check_distinct(items, path, names.subdomain, str, limit=MAX_NODES)
