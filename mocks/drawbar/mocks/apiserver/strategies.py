"""The steps of each kind before storage: the changeable part, defaults, and rules.

``Strategy`` is the common behaviour: if there is a status subresource, the status is separate from the rest.
Subclasses in ``corekinds``, ``dynamickinds`` and ``customkinds`` add the rules of one kind, and ``kinds`` finds the
strategy of a resource. A strategy works on stored objects (without apiVersion and kind) and never changes its
arguments.
"""

# ruff: noqa: ARG002 - the methods of all strategies share one signature
from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from drawbar.mocks.apiserver import rbac
from drawbar.mocks.apiserver.errors import Cause
from drawbar.mocks.apiserver.profiles import Profile
from drawbar.mocks.apiserver.resources import RESOURCE_GROUP, ResourceType
from drawbar.mocks.apiserver.storage import Store

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The parts of a request that affect the write of an object.

    ``verb`` is that of the request (``create``, ``update``, ``patch``...), ``now`` an RFC 3339 time stamp;
    ``warnings`` collects the warnings of the answer.
    """

    resource: ResourceType
    version: str
    user: rbac.User
    verb: str
    now: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    manager: str = ""
    dry_run: bool = False
    warnings: list[str] = field(default_factory=list)


class Strategy:
    """The behaviour of a kind without rules of its own."""

    def __init__(self, profile: Profile, authorizer: rbac.Authorizer, store: Store) -> None:
        """Imitate ``profile``; ``authorizer`` decides about extra permissions."""
        self.profile = profile
        self.authorizer = authorizer
        self._store = store

    def prepare_create(self, item: Json, call: Call) -> Json:
        """Return the object for validation on a creation."""
        if "status" in call.resource.subresources and "status" in item:
            return {key: value for key, value in item.items() if key != "status"}
        return item

    def rewrite_applied(self, item: Json) -> Json:
        """Return the object after server-side apply, which decodes and encodes all of it."""
        return item

    def prepare_update(self, item: Json, old: Json, call: Call) -> Json:
        """Return the object for validation on an update: parts outside the request's scope get their old values."""
        if call.subresource == "status":
            kept = {**old, "metadata": self._status_metadata(item["metadata"], old["metadata"], call)}
            return _replace_key(kept, "status", item.get("status"))
        if "status" in call.resource.subresources:
            return _replace_key(item, "status", old.get("status"))
        return item

    def validate_create(self, item: Json, call: Call) -> Iterator[Cause]:
        """Yield the rules broken by a new object."""
        yield from ()

    def validate_update(self, item: Json, old: Json, call: Call) -> Iterator[Cause]:
        """Yield the rules broken by an update."""
        yield from ()

    def namespace_labels(self, call: Call) -> Mapping[str, str]:
        """Return the labels of the request's namespace."""
        namespace = self._store.collection(("", "namespaces")).items.get(("", call.namespace))
        return ((namespace or {}).get("metadata") or {}).get("labels") or {}

    def _status_metadata(self, new: Json, old: Json, call: Call) -> Json:
        """Return the metadata of a status update: the old one, but uid and resourceVersion stay as preconditions."""
        kept = dict(old)
        for key in ("uid", "resourceVersion", "name", "namespace"):
            if new.get(key) is not None:
                kept[key] = new[key]
        if call.resource.group != RESOURCE_GROUP and not call.resource.custom:
            for key in ("labels", "annotations"):  # built-in kinds let a status update change these
                kept = _replace_key(kept, key, new.get(key))
        return kept


def _replace_key(item: Json, key: str, value: Any) -> Json:
    rest = {name: held for name, held in item.items() if name != key}
    return rest if value is None else {**rest, key: value}
