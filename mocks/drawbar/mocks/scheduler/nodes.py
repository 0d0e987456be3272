"""Nodes as the scheduler sees them: what kubectl shows as Ready, cordoned, tainted. Pure.

A node that is not ready counts as tainted, as the node lifecycle controller of a real cluster sees to; so does one whose
taints cannot be read.
"""

from typing import Any

import msgspec

from drawbar.mocks.claims import documents
from drawbar.mocks.scheduler import matching, objects

CORDONED = "node(s) were unschedulable"
TAINTED = "node(s) had untolerated taint(s)"
UNSELECTED = "node(s) didn't match Pod's node affinity/selector"


def view(node: documents.Document) -> matching.Node:
    """The node as the plan wants it; equal views make no difference to any pod."""
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
    """Why the node is not for the pod, whatever its claims; empty when it is.

    Raises:
        msgspec.ValidationError: the pod is not what the API allows.
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
