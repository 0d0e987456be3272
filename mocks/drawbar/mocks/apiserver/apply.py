"""Server-side apply as a pure function over JSON values.

``apply`` merges a manager's configuration into the live object.  The rules, in the order in which they are
carried out (https://kubernetes.io/docs/reference/using-api/server-side-apply/):

1. The fields of the configuration become this manager's own; values it shares with others are no conflict.
2. A field of another manager whose value would change is a conflict, unless forced; then that manager
   loses the field.
3. A field that this manager applied before and now leaves out is removed, if no other manager owns it or
   anything below it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from drawbar.mocks.apiserver import fieldsets, ownership
from drawbar.mocks.apiserver.schemas import OPEN, Schema

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """One field that another manager owns with another value."""

    owner: ownership.Owner
    path: fieldsets.Path

    def owner_text(self) -> str:
        """Return the other manager's name in conflict messages."""
        if self.owner.manager.operation == "Apply":
            return f'"{self.owner.manager.name}"'
        using = (
            f' with subresource "{self.owner.manager.subresource}"' if self.owner.manager.subresource else ""
        )
        return f'"{self.owner.manager.name}"{using} using {self.owner.api_version}'


class ConflictError(Exception):
    """The configuration changes fields of other managers without force."""

    def __init__(self, conflicts: tuple[Conflict, ...]) -> None:
        """Keep the conflicts, ordered by owner and path."""
        super().__init__(describe(conflicts))
        self.conflicts = conflicts


class UndeclaredFieldError(ValueError):
    """The configuration has a field outside the schema."""


def apply(
    live: Json,
    config: Json,
    schema: Schema,
    owners: ownership.Owners,
    *,
    manager: ownership.Manager,
    api_version: str,
    now: str,
    force: bool = False,
) -> tuple[Json, ownership.Owners]:
    """Return the object and its owners after an apply; the arguments are not changed.

    Args:
        live: the stored object, or an empty map for one that does not exist yet.
        config: the manager's configuration, without ``null`` values.
        schema: the merge structure.
        owners: the owners of the live object.
        manager: the applying manager.
        api_version: the version of the configuration.
        now: the time stamp of a changed entry.
        force: true to take over conflicting fields.

    Raises:
        ConflictError: other managers own fields that would change, and ``force`` is off.
        UndeclaredFieldError: the schema is closed and does not know a field.
        fieldsets.KeylessItemError: an item of a keyed list has no key.
    """
    check_declared(config, schema)
    wanted = fieldsets.from_value(config, schema)
    merged = merge(live, config, schema)
    changed, replaced = fieldsets.changes(live, merged, schema)
    remaining = tuple(owner for owner in owners if owner.manager != manager)
    conflicts = _conflicts(remaining, changed)
    if conflicts and not force:
        raise ConflictError(conflicts)
    remaining = (
        ownership.remove_fields(remaining, changed | replaced)
        if force
        else ownership.remove_fields(remaining, replaced)
    )
    before = ownership.find(owners, manager)
    if before is not None:
        merged, remaining = _drop_abandoned(merged, schema, before.fields - wanted, remaining, wanted)
    if not wanted:
        return merged, remaining
    unchanged = before is not None and before.fields == wanted and before.api_version == api_version
    mine = (
        before
        if before is not None and unchanged
        else ownership.Owner(manager=manager, api_version=api_version, time=now, fields=wanted)
    )
    return merged, (*remaining, mine)


def merge(live: Any, config: Any, schema: Schema) -> Any:
    """Merge the configuration into the live value and return it; list order stays, new items come last."""
    if schema.kind == "map" and isinstance(config, dict) and isinstance(live, dict):
        result = dict(live)
        for key, value in config.items():
            inner = schema.child(key, value)
            result[key] = merge(live[key], value, inner) if key in live else value
        return result
    if schema.kind == "list-map" and isinstance(config, list) and isinstance(live, list):
        return _merge_items(live, config, schema)
    if schema.kind == "set" and isinstance(config, list) and isinstance(live, list):
        return [*live, *(item for item in config if item not in live)]
    return config


def check_declared(config: Any, schema: Schema, path: str = "") -> None:
    """Refuse fields that a closed schema does not declare.

    Raises:
        UndeclaredFieldError: names the first such field.
    """
    if schema.kind == "map" and isinstance(config, dict):
        for key, value in config.items():
            if schema.closed and key not in schema.fields:
                raise UndeclaredFieldError(f"{path}.{key}: field not declared in schema")
            check_declared(value, schema.child(key, value), f"{path}.{key}")
    elif schema.kind == "list-map" and isinstance(config, list):
        for item in config:
            check_declared(item, schema.item or OPEN, f"{path}[]")


def describe(conflicts: tuple[Conflict, ...]) -> str:
    """Return the conflicts in the words of the real server."""
    count = len(conflicts)
    if count == 1:
        only = conflicts[0]
        text = f"conflict with {only.owner_text()}: {fieldsets.format_path(only.path)}"
        return f"Apply failed with 1 conflict: {text}"
    names = list(dict.fromkeys(conflict.owner_text() for conflict in conflicts))
    parts = [
        f"conflicts with {name}:\n"
        + "\n".join(f"- {fieldsets.format_path(c.path)}" for c in conflicts if c.owner_text() == name)
        for name in names
    ]
    return f"Apply failed with {count} conflicts: " + "\n".join(parts)


def _merge_items(live: list[Any], config: list[Any], schema: Schema) -> list[Any]:
    inner = schema.item or OPEN
    wanted = {fieldsets.item_element(schema, item): item for item in config}
    result = []
    for item in live:
        mine = wanted.pop(fieldsets.item_element(schema, item), None)
        result.append(item if mine is None else merge(item, mine, inner))
    return [*result, *wanted.values()]


def _conflicts(owners: ownership.Owners, changed: fieldsets.FieldSet) -> tuple[Conflict, ...]:
    return tuple(
        Conflict(owner=owner, path=path) for owner in owners for path in sorted(owner.fields & changed)
    )


def _drop_abandoned(
    merged: Json,
    schema: Schema,
    abandoned: fieldsets.FieldSet,
    owners: ownership.Owners,
    wanted: fieldsets.FieldSet,
) -> tuple[Json, ownership.Owners]:
    """Remove fields that the manager no longer applies; an item stays while any manager owns a field in it."""
    held = fieldsets.with_parents(wanted.union(*(owner.fields for owner in owners)))
    gone = abandoned - held
    if not gone:
        return merged, owners
    pruned = fieldsets.remove(merged, schema, gone)
    _, removed = fieldsets.changes(merged, pruned, schema)
    return pruned, tuple(
        replace(owner, fields=owner.fields - removed) for owner in owners if owner.fields - removed
    )
