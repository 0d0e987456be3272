"""Rules of ``metadata``, common to every kind."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from drawbar.mocks.apiserver import errors
from drawbar.mocks.apiserver.errors import Cause
from drawbar.mocks.apiserver.resources import RBAC_GROUP, ResourceType
from drawbar.mocks.apiserver.validation import names

Json = dict[str, Any]
_LABEL_VALUE = re.compile(r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")
ANNOTATIONS_LIMIT = 256 * 1024  # bytes of all keys and values together
_IMMUTABLE = ("name", "namespace", "uid", "creationTimestamp")


def validate(metadata: Json, resource: ResourceType) -> Iterator[Cause]:
    """Every rule that an object's metadata breaks by itself."""
    name = metadata.get("name", "")
    if resource.group == RBAC_GROUP:
        yield from names.path_segment(name, "metadata.name")
    elif resource.plural == "namespaces" and not resource.group:
        yield from names.dns_label(name, "metadata.name")
    else:
        yield from names.subdomain(name, "metadata.name")
    for key, value in (metadata.get("labels") or {}).items():
        yield from names.label_name(key, "metadata.labels")
        if not isinstance(value, str) or len(value) > 63 or not _LABEL_VALUE.match(value):
            text = (
                "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.'"
            )
            yield errors.invalid_value("metadata.labels", value, text)
    total = 0
    for key, value in (metadata.get("annotations") or {}).items():
        yield from names.label_name(key.lower(), "metadata.annotations")
        total += len(key) + len(str(value))
    if total > ANNOTATIONS_LIMIT:
        yield errors.too_long("metadata.annotations", ANNOTATIONS_LIMIT)
    for finalizer in metadata.get("finalizers") or ():
        yield from names.label_name(finalizer, "metadata.finalizers")
    for index, owner in enumerate(metadata.get("ownerReferences") or ()):
        for key in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(key):
                yield errors.invalid_value(
                    f"metadata.ownerReferences[{index}].{key}", "", "must not be empty"
                )


def validate_update(metadata: Json, old: Json) -> Iterator[Cause]:
    """Every rule that a change of metadata breaks."""
    for key in _IMMUTABLE:
        if metadata.get(key) != old.get(key):
            yield errors.invalid_value(f"metadata.{key}", metadata.get(key), "field is immutable")
    if old.get("deletionTimestamp"):
        added = [f for f in metadata.get("finalizers") or () if f not in (old.get("finalizers") or ())]
        if added:
            listed = ", ".join(f'"{finalizer}"' for finalizer in added)
            text = (
                "no new finalizers can be added if the object is being deleted, found new finalizers "
                f"[]string{{{listed}}}"
            )
            yield errors.forbidden_value("metadata.finalizers", text)


def malformed(metadata: Any) -> str | None:
    """Why metadata does not even have the right types, or None."""
    if not isinstance(metadata, dict):
        return "metadata must be an object"
    for key in ("name", "namespace", "generateName", "uid", "resourceVersion"):
        if metadata.get(key) is not None and not isinstance(metadata[key], str):
            return f"metadata.{key} must be a string"
    for key in ("labels", "annotations"):
        held = metadata.get(key)
        if held is not None and not (
            isinstance(held, dict) and all(isinstance(v, str) for v in held.values())
        ):
            return f"metadata.{key} must be a map of strings"
    held = metadata.get("finalizers")
    if held is not None and not (isinstance(held, list) and all(isinstance(v, str) for v in held)):
        return "metadata.finalizers must be a list of strings"
    held = metadata.get("ownerReferences")
    if held is not None and not (isinstance(held, list) and all(isinstance(v, dict) for v in held)):
        return "metadata.ownerReferences must be a list of objects"
    return None
