"""Field managers: the content of ``metadata.managedFields``.

An update gives its manager every changed field, and removes the removed fields from all managers. An owner without
fields disappears.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from drawbar.mocks.apiserver import fieldsets
from drawbar.mocks.apiserver.schemas import Schema

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manager:
    """A writer: the client's chosen name, the operation (``Apply`` or ``Update``), and the subresource."""

    name: str
    operation: str
    subresource: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """One entry of ``managedFields``."""

    manager: Manager
    api_version: str
    time: str
    fields: fieldsets.FieldSet


Owners = tuple[Owner, ...]


def read(entries: Iterable[Json] | None) -> Owners:
    """Return the owners in ``metadata.managedFields``."""
    return tuple(
        Owner(
            manager=Manager(
                name=entry.get("manager", ""),
                operation=entry.get("operation", "Update"),
                subresource=entry.get("subresource", ""),
            ),
            api_version=entry.get("apiVersion", ""),
            time=entry.get("time", ""),
            fields=fieldsets.decode(entry.get("fieldsV1") or {}),
        )
        for entry in entries or ()
    )


def make_managed_fields(owners: Owners) -> list[Json]:
    """Return the owners as ``metadata.managedFields``."""
    entries: list[Json] = []
    for owner in owners:
        entry: Json = {
            "manager": owner.manager.name,
            "operation": owner.manager.operation,
            "apiVersion": owner.api_version,
            "time": owner.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": fieldsets.encode(owner.fields),
        }
        if owner.manager.subresource:
            entry["subresource"] = owner.manager.subresource
        entries.append(entry)
    return entries


def find(owners: Owners, manager: Manager) -> Owner | None:
    """Return the entry of one manager, or None."""
    return next((owner for owner in owners if owner.manager == manager), None)


def remove_fields(owners: Owners, removed: fieldsets.FieldSet) -> Owners:
    """Return the owners without the removed fields."""
    if not removed:
        return owners
    kept = (replace(owner, fields=owner.fields - removed) for owner in owners)
    return tuple(owner for owner in kept if owner.fields)


def after_update(
    owners: Owners, old: Json, new: Json, schema: Schema, *, manager: Manager, api_version: str, now: str
) -> Owners:
    """Return the owners after ``manager`` replaced ``old`` by ``new``.

    Raises:
        fieldsets.KeylessItemError: a keyed list has an item without keys.
    """
    changed, removed = fieldsets.changes(old, new, schema)
    if not changed and not removed:
        return owners
    kept = tuple(
        replace(owner, fields=owner.fields - changed) if owner.manager != manager else owner
        for owner in owners
    )
    current = remove_fields(kept, removed)
    mine = find(current, manager)
    fields = (mine.fields if mine else frozenset()) | changed
    rest = tuple(owner for owner in current if owner.manager != manager and owner.fields)
    if not fields:
        return rest
    return (*rest, Owner(manager=manager, api_version=api_version, time=now, fields=fields))
