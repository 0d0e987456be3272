"""The server's own work after a write: garbage collection and the end of waiting deletions.

``settle`` works through the ledger's journal until it is empty. Every step deletes an object or removes a finalizer or
a reference, so it ends.
"""

from __future__ import annotations

from typing import Any

from drawbar.mocks.apiserver import garbage, lifecycle, rbac
from drawbar.mocks.apiserver.garbage import OwnerState
from drawbar.mocks.apiserver.ledger import Entry
from drawbar.mocks.apiserver.registry import Registry
from drawbar.mocks.apiserver.resources import ResourceType
from drawbar.mocks.apiserver.strategies import Call

Json = dict[str, Any]
COLLECTOR = rbac.service_account("kube-system", "generic-garbage-collector")


def settle(registry: Registry, now: str) -> None:
    """Carry out all consequences of the writes since the last call."""
    while registry.ledger.journal:
        entry = registry.ledger.journal.popleft()
        if entry.new is None:
            _handle_removal(registry, entry, now)
        else:
            _handle_write(registry, entry, now)


def _handle_removal(registry: Registry, entry: Entry, now: str) -> None:
    resource, item = entry.resource, entry.old or {}
    metadata = item["metadata"]
    for where, key in registry.ledger.graph.dependents(metadata["uid"]):
        _judge(registry, where, key, now)
    for uid in garbage.owner_uids(item):
        _finish_owner(registry, uid, item)
    if metadata.get("namespace"):
        lifecycle.finish_namespace(registry, metadata["namespace"])
    if resource.custom:
        lifecycle.finish_definition(registry, resource)


def _handle_write(registry: Registry, entry: Entry, now: str) -> None:
    resource, item = entry.resource, entry.new or {}
    key = (item["metadata"].get("namespace", ""), item["metadata"]["name"])
    current = registry.store.collection(resource.where).items.get(key)
    if current is None:
        return
    metadata = current["metadata"]
    finalizers = metadata.get("finalizers") or ()
    if metadata.get("deletionTimestamp") and garbage.ORPHAN in finalizers:
        _orphan(registry, resource, current)
    elif metadata.get("deletionTimestamp") and garbage.FOREGROUND in finalizers:
        for where, dependent in registry.ledger.graph.dependents(metadata["uid"]):
            _judge(registry, where, dependent, now)
        _finish_foreground(registry, resource, key)
    if garbage.references(current):
        _judge(registry, resource.where, key, now)


def _judge(registry: Registry, where: tuple[str, str], key: tuple[str, str], now: str) -> None:
    """Delete an object without a live owner; otherwise remove its dead references."""
    item = registry.store.collection(where).items.get(key)
    resource = registry.catalogue.stored_at(where)
    if item is None or resource is None:
        return
    references = garbage.references(item)
    states = [garbage.find_owner_state(r, item, registry.store, registry.catalogue) for r in references]
    if not references or OwnerState.UNKNOWN in states:
        return
    gone = {r["uid"] for r, state in zip(references, states, strict=True) if state is not OwnerState.SOLID}
    if OwnerState.SOLID in states:
        if gone:
            registry.write(resource, garbage.remove_owners(item, gone))
        return
    if not item["metadata"].get("deletionTimestamp"):
        waits = OwnerState.WAITING in states and _has_blockers(registry, item)
        policy = "Foreground" if waits else "Background"
        registry.remove_or_mark(_call(resource, key, now), item, policy=policy)


def _has_blockers(registry: Registry, item: Json) -> bool:
    uid = item["metadata"]["uid"]
    dependents = registry.ledger.graph.dependents(uid)
    return next(garbage.find_blocking_dependents(dependents, uid, registry.store), None) is not None


def _orphan(registry: Registry, resource: ResourceType, owner: Json) -> None:
    uid = owner["metadata"]["uid"]
    for where, key in registry.ledger.graph.dependents(uid):
        item = registry.store.collection(where).items.get(key)
        dependent = registry.catalogue.stored_at(where)
        if item is not None and dependent is not None:
            registry.write(dependent, garbage.remove_owners(item, {uid}))
    _take(registry, resource, owner, garbage.ORPHAN)


def _finish_owner(registry: Registry, uid: str, dependent: Json) -> None:
    """Finish an owner that waited for this removed dependent."""
    for reference in garbage.references(dependent):
        if reference.get("uid") != uid:
            continue
        state = garbage.find_owner_state(reference, dependent, registry.store, registry.catalogue)
        if state is OwnerState.WAITING:
            group = reference["apiVersion"].rpartition("/")[0]
            for resource in registry.catalogue.all():
                if resource.group == group and resource.kind == reference["kind"]:
                    namespace = dependent["metadata"].get("namespace", "") if resource.namespaced else ""
                    _finish_foreground(registry, resource, (namespace, reference["name"]))


def _finish_foreground(registry: Registry, resource: ResourceType, key: tuple[str, str]) -> None:
    owner = registry.store.collection(resource.where).items.get(key)
    if owner is not None and not _has_blockers(registry, owner):
        _take(registry, resource, owner, garbage.FOREGROUND)


def _take(registry: Registry, resource: ResourceType, item: Json, finalizer: str) -> None:
    """Remove a finalizer, and the object if no other finalizer is left."""
    held = list(item["metadata"].get("finalizers") or ())
    if finalizer not in held:
        return
    held.remove(finalizer)
    registry.release(resource, garbage.replace_finalizers(item, held))


def _call(resource: ResourceType, key: tuple[str, str], now: str) -> Call:
    return Call(
        resource=resource,
        version=resource.versions[0],
        user=COLLECTOR,
        verb="delete",
        now=now,
        namespace=key[0],
        name=key[1],
        manager="kube-controller-manager",
    )
