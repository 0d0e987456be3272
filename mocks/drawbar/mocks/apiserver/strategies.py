"""What each kind does before it is stored: which part a request may change, defaults, and rules.

``Strategy`` is the common behaviour (status separate from the rest where there is a status subresource);
subclasses in ``corekinds``, ``dynamickinds`` and ``customkinds`` add one kind's own rules, and ``kinds`` finds
the one for a resource.  A strategy works on stored objects (without apiVersion and kind) and never changes
its arguments.
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
    """One request, as far as writing an object depends on it.

    ``verb`` is that of the request (``create``, ``update``, ``patch``...), ``now`` an RFC 3339 time stamp;
    ``warnings`` collects what the answer warns of.
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
        """Imitate ``profile``; ``authorizer`` answers rules that ask for extra permissions."""
        self.profile = profile
        self.authorizer = authorizer
        self._store = store

    def prepare_create(self, item: Json, call: Call) -> Json:
        """The object as it goes to validation on a creation."""
        if "status" in call.resource.subresources and "status" in item:
            return {key: value for key, value in item.items() if key != "status"}
        return item

    def rewritten_by_apply(self, item: Json) -> Json:
        """The object as server-side apply writes it, which reads and writes all of it anew."""
        return item

    def prepare_update(self, item: Json, old: Json, call: Call) -> Json:
        """The object as it goes to validation on an update: what the request may not change is put back."""
        if call.subresource == "status":
            kept = {**old, "metadata": self._status_metadata(item["metadata"], old["metadata"], call)}
            return _with(kept, "status", item.get("status"))
        if "status" in call.resource.subresources:
            return _with(item, "status", old.get("status"))
        return item

    def validate_create(self, item: Json, call: Call) -> Iterator[Cause]:
        """Rules that a new object breaks."""
        yield from ()

    def validate_update(self, item: Json, old: Json, call: Call) -> Iterator[Cause]:
        """Rules that an update breaks."""
        yield from ()

    def namespace_labels(self, call: Call) -> Mapping[str, str]:
        """The labels of the request's namespace."""
        namespace = self._store.collection(("", "namespaces")).items.get(("", call.namespace))
        return ((namespace or {}).get("metadata") or {}).get("labels") or {}

    def _status_metadata(self, new: Json, old: Json, call: Call) -> Json:
        """A status update changes no metadata, but its uid and resourceVersion still are preconditions."""
        kept = dict(old)
        for key in ("uid", "resourceVersion", "name", "namespace"):
            if new.get(key) is not None:
                kept[key] = new[key]
        if call.resource.group != RESOURCE_GROUP and not call.resource.custom:
            for key in ("labels", "annotations"):  # built-in kinds let a status update change these
                kept = _with(kept, key, new.get(key))
        return kept


def _with(item: Json, key: str, value: Any) -> Json:
    rest = {name: held for name, held in item.items() if name != key}
    return rest if value is None else {**rest, key: value}
