"""Tables: the output of ``kubectl get``, made by the server.

Built-in kinds have the columns of the real server, as far as their cells follow from the object itself. Custom
resources use their printer columns. Everything else gets NAME and AGE.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from drawbar.mocks.apiserver import jsonpath
from drawbar.mocks.apiserver.resources import ResourceType

Json = dict[str, Any]
Cell = Callable[[Json, str], Any]
Columns = list[tuple[Json, Cell]]


def table(
    resource: ResourceType, version: str, items: list[Json], *, now: str, include: str, metadata: Json
) -> Json:
    """Return a Table of stored objects.

    Args:
        resource: the resource of the items.
        version: the served version.
        items: the stored objects.
        now: the present time for ages.
        include: the part of the object in its row: ``Metadata``, ``Object`` or ``None``.
        metadata: the list's metadata.
    """
    columns = _columns(resource, version)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [definition for definition, _ in columns],
        "rows": [
            {
                "cells": [cell(item, now) for _, cell in columns],
                **_row_object(resource, version, item, include),
            }
            for item in items
        ],
    }


def age(stamp: str | None, now: str) -> str:
    """Return the time since a stamp in kubectl's format: 5s, 3m10s, 47m, 5h12m, 3d, 2y30d."""
    if not stamp:
        return "<unknown>"
    then, current = (datetime.fromisoformat(text) for text in (stamp, now))
    seconds = max(0, int((current - then).total_seconds()))
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if days < 730:
        return f"{days}d"
    return f"{days // 365}y{days % 365}d"


def _row_object(resource: ResourceType, version: str, item: Json, include: str) -> Json:
    if include == "None":
        return {}
    if include == "Object":
        return {"object": resource.convert_to_version(item, version)}
    partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": item["metadata"]}
    return {"object": partial}


def _definition(name: str, kind: str = "string", *, wide: bool = False, description: str = "") -> Json:
    return {
        "name": name,
        "type": kind,
        "format": "name" if name == "Name" else "",
        "description": description or name,
        "priority": 1 if wide else 0,
    }


def _name(item: Json, _: str) -> Any:
    return item["metadata"]["name"]


def _compute_age(item: Json, now: str) -> Any:
    return age(item["metadata"].get("creationTimestamp"), now)


def _make_cell(*path: str, absent: str = "<none>") -> Cell:
    def cell(item: Json, _: str) -> Any:
        value: Any = item
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return absent if value is None else value

    return cell


_NAME = (_definition("Name"), _name)
_AGE = (_definition("Age"), _compute_age)


def _pod_ready(item: Json, _: str) -> str:
    statuses = (item.get("status") or {}).get("containerStatuses") or []
    ready = sum(bool(status.get("ready")) for status in statuses)
    return f"{ready}/{len((item.get('spec') or {}).get('containers') or ())}"


def _pod_status(item: Json, _: str) -> str:
    status = item.get("status") or {}
    if item["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for container in status.get("containerStatuses") or ():
        for phase in ("waiting", "terminated"):
            reason = ((container.get("state") or {}).get(phase) or {}).get("reason")
            if reason:
                return str(reason)
    return str(status.get("reason") or status.get("phase") or "Unknown")


def _pod_restarts(item: Json, _: str) -> str:
    statuses = (item.get("status") or {}).get("containerStatuses") or []
    return str(sum(status.get("restartCount", 0) for status in statuses))


def _node_status(item: Json, _: str) -> str:
    conditions = (item.get("status") or {}).get("conditions") or []
    ready = next((c for c in conditions if c.get("type") == "Ready"), None)
    words = ["Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"]
    if (item.get("spec") or {}).get("unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words)


def _node_roles(item: Json, _: str) -> str:
    prefix = "node-role.kubernetes.io/"
    roles = sorted(
        k.removeprefix(prefix) for k in item["metadata"].get("labels") or {} if k.startswith(prefix)
    )
    return ",".join(roles) or "<none>"


def _claim_state(item: Json, _: str) -> str:
    status = item.get("status") or {}
    states = []
    if status.get("allocation") is not None:
        states.append("allocated")
    if status.get("reservedFor"):
        states.append("reserved")
    elif status.get("deallocationRequested"):
        states.append("deallocating")
    if item["metadata"].get("deletionTimestamp"):
        states.insert(0, "deleted")
    return ",".join(states) or "pending"


def _event_object(item: Json, _: str) -> str:
    target = item.get("involvedObject") or {}
    return f"{str(target.get('kind', '')).lower()}/{target.get('name', '')}"


def _compute_last_seen(item: Json, now: str) -> str:
    stamp = (
        (item.get("series") or {}).get("lastObservedTime")
        or item.get("lastTimestamp")
        or item.get("eventTime")
    )
    return age(stamp or item["metadata"].get("creationTimestamp"), now)


def _slice_node(item: Json, _: str) -> str:
    return str((item.get("spec") or {}).get("nodeName") or "")


_BUILT_IN: dict[tuple[str, str], Columns] = {
    ("", "pods"): [
        _NAME,
        (_definition("Ready"), _pod_ready),
        (_definition("Status"), _pod_status),
        (_definition("Restarts"), _pod_restarts),
        _AGE,
        (_definition("IP", wide=True), _make_cell("status", "podIP")),
        (_definition("Node", wide=True), _make_cell("spec", "nodeName")),
        (_definition("Nominated Node", wide=True), _make_cell("status", "nominatedNodeName")),
    ],
    ("", "nodes"): [
        _NAME,
        (_definition("Status"), _node_status),
        (_definition("Roles"), _node_roles),
        _AGE,
        (_definition("Version"), _make_cell("status", "nodeInfo", "kubeletVersion", absent="")),
    ],
    ("", "namespaces"): [_NAME, (_definition("Status"), _make_cell("status", "phase")), _AGE],
    ("", "events"): [
        (_definition("Last Seen"), _compute_last_seen),
        (_definition("Type"), _make_cell("type", absent="")),
        (_definition("Reason"), _make_cell("reason", absent="")),
        (_definition("Object"), _event_object),
        (_definition("Source", wide=True), _make_cell("source", "component", absent="")),
        (_definition("Message"), _make_cell("message", absent="")),
        (_definition("Name", wide=True), _name),
    ],
    ("", "secrets"): [
        _NAME,
        (_definition("Type"), _make_cell("type")),
        (_definition("Data"), lambda item, _: str(len(item.get("data") or {}))),
        _AGE,
    ],
    ("", "configmaps"): [
        _NAME,
        (_definition("Data"), lambda item, _: str(len(item.get("data") or {}))),
        _AGE,
    ],
    ("coordination.k8s.io", "leases"): [
        _NAME,
        (_definition("Holder"), _make_cell("spec", "holderIdentity", absent="")),
        _AGE,
    ],
    ("resource.k8s.io", "resourceclaims"): [_NAME, (_definition("State"), _claim_state), _AGE],
    ("resource.k8s.io", "resourceslices"): [
        _NAME,
        (_definition("Node"), _slice_node),
        (_definition("Driver"), _make_cell("spec", "driver", absent="")),
        (_definition("Pool"), _make_cell("spec", "pool", "name", absent="")),
        _AGE,
    ],
    ("resource.k8s.io", "podschedulingcontexts"): [
        _NAME,
        (_definition("SelectedNode"), _make_cell("spec", "selectedNode", absent="")),
        _AGE,
    ],
    ("apiextensions.k8s.io", "customresourcedefinitions"): [
        _NAME,
        (_definition("Created At"), _make_cell("metadata", "creationTimestamp")),
    ],
}


_ALPHA_CLAIM: Columns = [
    (_definition("ResourceClassName"), _make_cell("spec", "resourceClassName", absent="")),
    (_definition("AllocationMode"), _make_cell("spec", "allocationMode", absent="")),
]
_ALPHA: dict[str, Columns] = {  # tables of v1alpha2 that differ from later versions, and removed kinds
    "resourceclaims": [_NAME, *_ALPHA_CLAIM, (_definition("State"), _claim_state), _AGE],
    "resourceclasses": [_NAME, (_definition("DriverName"), _make_cell("driverName", absent="")), _AGE],
}


def _columns(resource: ResourceType, version: str) -> Columns:
    if resource.custom:
        declared = resource.columns.get(version)
        if declared is None:
            return [_NAME, _AGE]
        return [_NAME, *(_make_column(column) for column in declared)]
    if version == "v1alpha2" and resource.plural in _ALPHA:
        return _ALPHA[resource.plural]
    return _BUILT_IN.get(resource.where, [_NAME, _AGE])


def _make_column(column: Json) -> tuple[Json, Cell]:
    definition = {
        "name": column["name"],
        "type": column["type"],
        "format": column.get("format", ""),
        "description": column.get("description", ""),
        "priority": column.get("priority", 0),
    }

    def cell(item: Json, now: str) -> Any:
        values = jsonpath.values(item, column["jsonPath"])
        if not values:
            return None
        if column["type"] == "date":
            return age(values[0], now) if isinstance(values[0], str) else None
        if column["type"] == "string":
            return ",".join("true" if v is True else "false" if v is False else str(v) for v in values)
        return values[0]

    return definition, cell
