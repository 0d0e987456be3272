"""The field managers of a request: server-side apply and updates, with errors in the API's words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from drawbar.mocks.apiserver import apply, errors, fieldsets, ownership, schemas
from drawbar.mocks.apiserver.strategies import Call

Json = dict[str, Any]
SERVER_FIELDS = (
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
)


def schema_of(call: Call) -> schemas.Schema:
    """Return the merge structure of the request's resource and version."""
    return call.resource.merge_schema(call.version)


def apply_configuration(
    call: Call, old: Json, config: Json, owners: ownership.Owners, *, force: bool
) -> tuple[Json, ownership.Owners]:
    """Return the stored object with a configuration applied, and its owners.

    Raises:
        ApiError: 409 (conflicts) or 500 (fields or items that the schema does not admit).
    """
    manager = ownership.Manager(name=call.manager, operation="Apply", subresource=call.subresource)
    try:
        return apply.apply(
            old,
            config,
            schema_of(call),
            owners,
            manager=manager,
            api_version=call.resource.api_version(call.version),
            now=call.now,
            force=force,
        )
    except apply.ConflictError as error:
        causes = [
            {
                "reason": "FieldManagerConflict",
                "message": f"conflict with {conflict.owner_text()}",
                "field": fieldsets.format_path(conflict.path),
            }
            for conflict in error.conflicts
        ]
        raise errors.ApiError(
            code=409, reason="Conflict", message=str(error), details={"causes": causes}
        ) from error
    except (apply.UndeclaredFieldError, fieldsets.KeylessItemError) as error:
        text = f"failed to create typed patch object ({call.namespace}/{call.name}): {error}"
        raise errors.internal_error(text) from error


def own_part(call: Call, config: Json) -> Json:
    """Return the part of a configuration that this endpoint can set; the rest is neither merged nor owned."""
    if call.subresource == "status":
        identity = {key: value for key, value in config["metadata"].items() if key in ("name", "namespace")}
        return {"metadata": identity, **({"status": config["status"]} if "status" in config else {})}
    metadata = {
        key: value
        for key, value in config["metadata"].items()
        if key not in (*SERVER_FIELDS, "uid", "resourceVersion", "managedFields")
    }
    reset = "status" if "status" in call.resource.subresources else None
    return {**{key: value for key, value in config.items() if key != reset}, "metadata": metadata}


def update_managed_fields(call: Call, old: Json, new: Json, owners: ownership.Owners | None) -> Json:
    """Return the object with up-to-date ``managedFields``."""
    schema = schema_of(call)
    try:
        if owners is None:
            manager = ownership.Manager(name=call.manager, operation="Update", subresource=call.subresource)
            owners = ownership.after_update(
                ownership.read(old["metadata"].get("managedFields")),
                old,
                _select_writable(call, old, new),
                schema,
                manager=manager,
                api_version=call.resource.api_version(call.version),
                now=call.now,
            )
        else:  # fields that the strategy restored or dropped are not owned
            present = fieldsets.with_parents(fieldsets.from_value(new, schema))
            kept = (replace(owner, fields=owner.fields & present) for owner in owners)
            owners = tuple(owner for owner in kept if owner.fields)
    except fieldsets.KeylessItemError as error:
        raise errors.invalid_error(
            call.resource.kind, call.resource.group, call.name, [errors.required_value("", str(error))]
        ) from error
    entries = ownership.make_managed_fields(owners)
    if not entries:
        return new
    return {**new, "metadata": {**new["metadata"], "managedFields": entries}}


def _select_writable(call: Call, old: Json, new: Json) -> Json:
    """Return the part of the new object that this endpoint can write. No manager then owns defaults of the status."""
    if call.subresource or "status" not in call.resource.subresources:
        return new
    kept = {"status": old["status"]} if "status" in old else {}
    return {key: value for key, value in new.items() if key != "status"} | kept
