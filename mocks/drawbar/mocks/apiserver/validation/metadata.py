"""Rules of ``metadata``, common to every kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from drawbar.mocks.apiserver import errors
from drawbar.mocks.apiserver.errors import Cause
from drawbar.mocks.apiserver.resources import RBAC_GROUP, ResourceType
from drawbar.mocks.apiserver.validation import names

Json = dict[str, Any]
ANNOTATIONS_LIMIT = 256 * 1024  # bytes of all keys and values together
_IMMUTABLE = ("name", "namespace", "uid", "creationTimestamp")


def validate(metadata: Json, resource: ResourceType) -> Iterator[Cause]:
    """Yield every rule broken by an object's metadata itself."""
    name = metadata.get("name", "")
    if resource.group == RBAC_GROUP:
        yield from names.path_segment(name, "metadata.name")
    elif resource.plural == "namespaces" and not resource.group:
        yield from names.dns_label(name, "metadata.name")
    else:
        yield from names.subdomain(name, "metadata.name")
    for key, value in (metadata.get("labels") or {}).items():
        yield from names.label_name(key, "metadata.labels")
        yield from names.label_value(value, "metadata.labels")
    total = 0
    for key, value in (metadata.get("annotations") or {}).items():
        yield from names.label_name(key.lower(), "metadata.annotations")
        total += len(key) + len(str(value))
    if total > ANNOTATIONS_LIMIT:
        yield errors.too_long("metadata.annotations", ANNOTATIONS_LIMIT)
    for finalizer in metadata.get("finalizers") or ():
        yield from names.label_name(finalizer, "metadata.finalizers")
    yield from _owners(metadata.get("ownerReferences") or [])


def _owners(references: list[Json]) -> Iterator[Cause]:
    """Yield a problem for each incomplete owner, and for a second controller."""
    for owner in references:
        for key, text in (
            ("apiVersion", "version must not be empty"),
            ("kind", "kind must not be empty"),
            ("name", "name must not be empty"),
            ("uid", "uid must not be empty"),
        ):
            if not owner.get(key):
                yield errors.invalid_value(f"metadata.ownerReferences.{key}", owner.get(key, ""), text)
    controllers = [owner.get("name") for owner in references if owner.get("controller")]
    if len(controllers) > 1:
        text = (
            'Only one reference can have Controller set to true. Found "true" in references for '
            f"{controllers[0]} and {controllers[1]}"
        )
        yield errors.invalid_value("metadata.ownerReferences", "object", text)


def validate_update(metadata: Json, old: Json) -> Iterator[Cause]:
    """Yield every rule broken by a change of metadata."""
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
