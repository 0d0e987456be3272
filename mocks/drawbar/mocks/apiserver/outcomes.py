"""Rules about stored objects: names, generations, and the removal of deleted objects."""

from __future__ import annotations

import secrets
from collections.abc import Container
from datetime import datetime, timedelta
from typing import Any

from drawbar.mocks.apiserver.resources import ResourceType

Json = dict[str, Any]
_NAME_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # no vowels, so that no words arise
_NAME_BASE_LIMIT = 58
_NAME_ATTEMPTS = 8


def generated_name(base: str, namespace: str, taken: Container[tuple[str, str]]) -> str:
    """Return a name of ``base`` (cut to 58 characters) and five random characters."""
    name = base
    for _ in range(_NAME_ATTEMPTS):
        name = base[:_NAME_BASE_LIMIT] + "".join(secrets.choice(_NAME_ALPHABET) for _ in range(5))
        if (namespace, name) not in taken:
            break
    return name


def content(item: Json, resource: ResourceType) -> Json:
    """Return the part counted by generation: everything but metadata, and the status if it is a subresource."""
    ignored = {"metadata", "status"} if "status" in resource.subresources else {"metadata"}
    return {key: value for key, value in item.items() if key not in ignored}


def is_removable(resource: ResourceType, item: Json) -> bool:
    """Return true if a marked object can go: it has no finalizers, and no kubelet still runs it."""
    metadata = item["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    return resource.where != ("", "pods") or not metadata.get("deletionGracePeriodSeconds")


def grace_seconds(resource: ResourceType, item: Json, asked: int | None) -> int:
    """Return the grace period of a pod on a node, in seconds; 0 for everything else."""
    spec, status = item.get("spec") or {}, item.get("status") or {}
    if (
        resource.where != ("", "pods")
        or not spec.get("nodeName")
        or status.get("phase") in ("Succeeded", "Failed")
    ):
        return 0
    return int(spec.get("terminationGracePeriodSeconds", 30)) if asked is None else max(asked, 0)


def add_seconds(now: str, seconds: int) -> str:
    """Return a time stamp ``seconds`` after another."""
    moment = datetime.fromisoformat(now) + timedelta(seconds=seconds)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def without_nulls(value: Any) -> Any:
    """Return the value without ``null`` map keys, at any depth."""
    if isinstance(value, dict):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value
