"""The scheduler's view of nodes: Ready, cordoned or tainted, as kubectl shows them. Pure.

A node that is not ready counts as tainted, because a real cluster's node lifecycle controller taints it. So does one
with invalid taints.
"""

from typing import Any

import msgspec

from drawbar.mocks.claims import documents
from drawbar.mocks.scheduler import matching, objects

CORDONED = "node(s) were unschedulable"
TAINTED = "node(s) had untolerated taint(s)"
UNSELECTED = "node(s) didn't match Pod's node affinity/selector"


def view(node: documents.Document) -> matching.Node:
    """Return the plan's view of the node; equal views are the same for every pod."""
    conditions = node.status.get("conditions") or ()
    ready = any(
        condition.get("type") == "Ready" and condition.get("status") == "True" for condition in conditions
    )
    closed = ""
    if node.spec.get("unschedulable"):
        closed = CORDONED
    elif not ready or documents.is_deleting(node):
        closed = TAINTED
    taints: tuple[objects.Taint, ...] = ()
    try:
        taints = msgspec.convert(node.spec.get("taints") or (), tuple[objects.Taint, ...])
    except msgspec.ValidationError:
        closed = TAINTED
    return matching.Node(name=node.metadata.name, labels=node.metadata.labels, taints=taints, closed=closed)


def objection(node: matching.Node, pod: documents.Document) -> str:
    """Return the node's reason against the pod, regardless of its claims; empty if there is none.

    Raises:
        msgspec.ValidationError: the pod violates the API.
    """
    wanted: dict[str, Any] = pod.spec.get("nodeSelector") or {}
    affinity = ((pod.spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    tolerations = [
        msgspec.convert(toleration, objects.Toleration) for toleration in pod.spec.get("tolerations") or ()
    ]
    if not all(matching.is_tolerated(taint, tolerations) for taint in node.taints):
        return TAINTED
    if any(node.labels.get(key) != value for key, value in wanted.items()) or (
        affinity and not matching.selects(msgspec.convert(affinity, objects.NodeSelector), node)
    ):
        return UNSELECTED
    return ""
