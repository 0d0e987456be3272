"""Nodes as the scheduler sees them: what kubectl shows as Ready, cordoned, tainted. Pure.

A node that is not ready counts as tainted, as the node lifecycle controller of a real cluster sees to; so does one whose
taints cannot be read.
"""

import msgspec

from drawbar.mocks.claims import documents
from drawbar.mocks.scheduler import matching, objects

CORDONED = "node(s) were unschedulable"
TAINTED = "node(s) had untolerated taint(s)"


def view(node: documents.Document) -> matching.Node:
    """The node as the plan wants it; equal views make no difference to any pod."""
    conditions = node.status.get("conditions") or ()
    ready = any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)
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
