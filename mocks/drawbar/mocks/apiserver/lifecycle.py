"""The server's own work after writes: terminating namespaces, and the start and end of custom resources.

In a real cluster the namespace controller and the CRD controllers do this a moment later; here it happens within the
causing write.
"""

from __future__ import annotations

from typing import Any

from drawbar.mocks.apiserver import definitions
from drawbar.mocks.apiserver.builtin import DEFINITIONS
from drawbar.mocks.apiserver.registry import Registry
from drawbar.mocks.apiserver.resources import ResourceType
from drawbar.mocks.apiserver.strategies import Call

Json = dict[str, Any]
_NAMESPACES = ("", "namespaces")


def establish(registry: Registry, name: str, now: str) -> Json:
    """Accept a written definition and serve its resource; return the present definition.

    The answer to a creation still shows the unaccepted definition. So does a real server, which accepts it a moment
    later.
    """
    item = registry.find(DEFINITIONS, "", name)
    if item["metadata"].get("deletionTimestamp"):
        return item
    status = definitions.make_established_status(item, now=now)
    if item.get("status") != status:
        item = registry.write(DEFINITIONS, {**item, "status": status})
    registry.catalogue.register(definitions.resource(item))
    return item


def empty_namespace(registry: Registry, call: Call) -> None:
    """Delete the content of a terminating namespace; the empty namespace goes too."""
    space = registry.store.collection(_NAMESPACES).items.get(("", call.name))
    if space is None or not space["metadata"].get("deletionTimestamp") or call.dry_run:
        return
    for resource in registry.catalogue.all():
        if not resource.namespaced or resource.storage is not None:
            continue
        held = registry.store.collection(resource.where).items
        for key in [key for key in held if key[0] == call.name]:
            registry.remove_or_mark(inner_call(call, resource, *key), held[key])
    finish_namespace(registry, call.name)


def finish_namespace(registry: Registry, name: str) -> None:
    """Remove a terminating namespace once it is empty."""
    space = registry.store.collection(_NAMESPACES).items.get(("", name))
    if space is None or not space["metadata"].get("deletionTimestamp"):
        return
    collections = registry.store.collections().values()
    if not any(key[0] == name for collection in collections for key in collection.items):
        registry.finish(registry.catalogue.get("", "namespaces"), space)


def empty_definition(registry: Registry, call: Call, definition: Json) -> None:
    """Delete the objects of a deleted definition, and stop serving it once none is left."""
    spec = definition["spec"]
    resource = registry.catalogue.get(spec["group"], spec["names"]["plural"])
    held = registry.store.collection(resource.where).items
    for key in list(held):
        registry.remove_or_mark(inner_call(call, resource, *key), held[key])
    finish_definition(registry, resource)


def finish_definition(registry: Registry, resource: ResourceType) -> None:
    """Remove a terminating definition once it has no objects."""
    name = f"{resource.plural}.{resource.group}"
    definition = registry.store.collection(DEFINITIONS.where).items.get(("", name))
    if definition is None or not definition["metadata"].get("deletionTimestamp"):
        return
    if not registry.store.collection(resource.where).items:
        registry.finish(DEFINITIONS, definition)
        registry.catalogue.unregister(resource.group, resource.plural)


def protect(item: Json) -> Json:
    """Return a definition with the finalizer that keeps it while objects exist."""
    metadata = item["metadata"]
    finalizers = metadata.get("finalizers") or []
    if definitions.CLEANUP_FINALIZER in finalizers:
        return item
    return {**item, "metadata": {**metadata, "finalizers": [*finalizers, definitions.CLEANUP_FINALIZER]}}


def inner_call(call: Call, resource: ResourceType, namespace: str, name: str) -> Call:
    """Return the same request for the deletion of another object."""
    return Call(
        resource=resource,
        version=resource.versions[0],
        user=call.user,
        verb="delete",
        now=call.now,
        namespace=namespace,
        name=name,
        manager=call.manager,
        dry_run=call.dry_run,
        warnings=call.warnings,
    )
