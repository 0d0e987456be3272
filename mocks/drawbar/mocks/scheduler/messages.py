"""The scheduler's messages in events and in the pod's condition, in the real scheduler's words. Pure.

`kubectl describe pod` shows them while a pod waits. Preemption never helps here: devices are not preempted, and the
double has no other resource.

Source: events of a 1.36 control plane; pkg/scheduler/framework of Kubernetes, FitError.
"""

import json
from collections import Counter
from collections.abc import Iterable

DEALLOCATED = "deallocation of ResourceClaim completed"
STALE = "cannot schedule extended resource claim"
DELETED = "deletion of ResourceClaim completed"
NOTHING_TO_DEALLOCATE = "no new claims to deallocate"
STILL_NOT_SCHEDULABLE = "still not schedulable"


def describe_refusals(refusals: Iterable[str], after: str) -> str:
    """Return the message for a pod without a fitting node.

    Args:
        refusals: one reason per node.
        after: the plugin's reaction.
    """
    counted = Counter(refusals)
    reasons = ", ".join(sorted(f"{count} {reason}" for reason, count in counted.items()))
    return _no_nodes(counted.total(), reasons, after)


def describe_unready(nodes: int, problem: str) -> str:
    """Return the message for a pod with a problem that excludes all nodes."""
    return _no_nodes(nodes, problem, NOTHING_TO_DEALLOCATE)


def describe_broken(problem: str) -> str:
    """Return the message for a faulty request of the pod."""
    return f'running "DynamicResources" filter plugin: {problem}'


def describe_unbound(problem: str) -> str:
    """Return the message for a pod that lost its node before the binding."""
    return f'running PreBind plugin "DynamicResources": {problem}'


def binding_failed(claim: str, reason: str, message: str, *, before_1_36: bool) -> str:
    """Return the message for a true binding failure condition of the claim."""
    quoted = json.dumps(message, ensure_ascii=False)
    if before_1_36:
        return f"claim {claim} binding failed: reason={reason}, message={quoted}"
    return f"device binding failed: claim={claim}, reason={reason}, message={quoted}"


def binding_timeout(claim: str, *, before_1_36: bool) -> str:
    """Return the message for a claim whose binding conditions did not all become true in time."""
    return f"claim {claim} binding timeout" if before_1_36 else f"device binding timeout: claim={claim}"


def describe_waiting(node: str) -> str:
    """Return the message for a pod that waits for its devices."""
    return f"waiting for binding conditions for device on node {node}"


def describe_held_up(reason: str) -> str:
    """Return the message for a pod that waits for another component, with a node in sight (classic DRA)."""
    return f"0/1 nodes are available: 1 {reason}."


def _no_nodes(count: int, reasons: str, after: str) -> str:
    nodes = f"0/{count} nodes are available"
    return (
        f"{nodes}: {reasons}. {after}, preemption: {nodes}: {count} Preemption is not helpful for scheduling."
    )
