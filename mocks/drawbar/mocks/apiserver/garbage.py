"""Owner references: the dependents of an owner, and their deletion after it.

The decisions are those of kube-controller-manager's garbage collector. A reference holds an object only if there is an
object of that kind, name and uid in the dependent's namespace, or cluster-wide. An object whose references all fail to
hold is deleted. If another owner still holds it, only the dead references are removed. A real cluster does this a
moment after the causing write; here it happens before the answer. No driver may rely on either.

``Orphan`` removes the references before the owner goes. ``Foreground`` keeps the owner until the dependents with
``blockOwnerDeletion`` are gone. A reference to an unserved kind, or from a cluster-wide object to a namespaced kind,
cannot be resolved. Such an object is never collected.

Limits: no permission check for ``blockOwnerDeletion`` (an admission plugin that is off by default), no Warning Event
about references across namespaces, and no cycles of foreground deletions.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any

from drawbar.mocks.apiserver.resources import Catalogue, ResourceType
from drawbar.mocks.apiserver.storage import Key, StorageKey, Store, key_of

Json = dict[str, Any]
ObjectKey = tuple[StorageKey, Key]

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"


class OwnerState(Enum):
    """The state of a reference's owner."""

    SOLID = "the owner exists"
    WAITING = "the owner exists and waits for its dependents to go"
    DANGLING = "the owner does not exist"
    UNKNOWN = "the server cannot determine whether the owner exists"


class Graph:
    """The dependents by their owner's uid."""

    def __init__(self) -> None:
        """Start without dependents."""
        self._dependents: dict[str, set[ObjectKey]] = {}

    def follow(self, where: StorageKey, old: Json | None, new: Json | None) -> None:
        """Record a write."""
        before, after = owner_uids(old), owner_uids(new)
        for uid in before - after:
            keys = self._dependents.get(uid, set())
            keys.discard((where, key_of(old or {})))
            if not keys:
                self._dependents.pop(uid, None)
        for uid in after - before:
            self._dependents.setdefault(uid, set()).add((where, key_of(new or {})))

    def dependents(self, uid: str) -> list[ObjectKey]:
        """Return the dependents of an owner, in a stable order."""
        return sorted(self._dependents.get(uid, ()))


def references(item: Json | None) -> list[Json]:
    """Return the owner references of an object."""
    return list(((item or {}).get("metadata") or {}).get("ownerReferences") or ())


def owner_uids(item: Json | None) -> set[str]:
    """Return the uids of an object's owners."""
    return {reference.get("uid", "") for reference in references(item)}


def find_owner_state(reference: Json, dependent: Json, store: Store, catalogue: Catalogue) -> OwnerState:
    """Return the state of the owner that a reference names."""
    group, _, version = reference.get("apiVersion", "").rpartition("/")
    resource = _kind(catalogue, group, version, reference.get("kind", ""))
    namespace = dependent["metadata"].get("namespace", "")
    if resource is None or (resource.namespaced and not namespace):
        return OwnerState.UNKNOWN
    key = (namespace if resource.namespaced else "", reference.get("name", ""))
    owner = store.collection(resource.where).items.get(key)
    if owner is None or owner["metadata"]["uid"] != reference.get("uid"):
        return OwnerState.DANGLING
    metadata = owner["metadata"]
    waits = metadata.get("deletionTimestamp") and FOREGROUND in (metadata.get("finalizers") or ())
    return OwnerState.WAITING if waits else OwnerState.SOLID


def _kind(catalogue: Catalogue, group: str, version: str, kind: str) -> ResourceType | None:
    for resource in catalogue.all():
        if resource.group == group and resource.kind == kind and version in resource.versions:
            return resource
    return None


def with_policy(item: Json, policy: str) -> Json:
    """Return the object with the finalizers of a propagation policy (empty: none given)."""
    metadata = item["metadata"]
    held = list(metadata.get("finalizers") or ())
    if not policy:
        return item
    wanted = {"Orphan": ORPHAN, "Foreground": FOREGROUND}.get(policy)
    kept = [name for name in held if name not in (ORPHAN, FOREGROUND) or name == wanted]
    if wanted and wanted not in kept:
        kept.append(wanted)
    return item if kept == held else replace_finalizers(item, kept)


def replace_finalizers(item: Json, finalizers: list[str]) -> Json:
    """Return the object with only these finalizers."""
    metadata = {key: value for key, value in item["metadata"].items() if key != "finalizers"}
    return {**item, "metadata": {**metadata, **({"finalizers": finalizers} if finalizers else {})}}


def remove_owners(item: Json, uids: set[str]) -> Json:
    """Return the object without its references to some owners."""
    kept = [reference for reference in references(item) if reference.get("uid") not in uids]
    metadata = {key: value for key, value in item["metadata"].items() if key != "ownerReferences"}
    return {**item, "metadata": {**metadata, **({"ownerReferences": kept} if kept else {})}}


def find_blocking_dependents(dependents: list[ObjectKey], uid: str, store: Store) -> Iterator[ObjectKey]:
    """Yield the dependents that block an owner in foreground deletion."""
    for where, key in dependents:
        item = store.collection(where).items.get(key)
        if any(r.get("uid") == uid and r.get("blockOwnerDeletion") for r in references(item)):
            yield where, key
