"""The actions of the claim controller for a pod that was bound without the scheduler; pure.

It reserves the pod's allocated claims, whether or not their devices are ready: binding conditions delay only the
scheduler. With classic DRA it also tells the drivers the pod's node.

Source: kubernetes/kubernetes pkg/controller/resourceclaim/controller.go, `syncPod` of 1.30 to 1.36.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from drawbar.mocks.claims import dialects, documents, plan
from drawbar.mocks.kube import kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeContext:
    """Tell the drivers for which node they must allocate; `body` is sent as it is."""

    kind: kinds.Kind
    body: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectNode:
    """Write the selected node into the context that exists already."""

    kind: kinds.Kind
    context: documents.Document


ScheduledPodAction = MakeContext | SelectNode | plan.WriteStatus


def for_pod(
    pod: documents.Document,
    claims: Sequence[documents.Document],
    context: documents.Document | None,
    dialect: dialects.Dialect,
) -> tuple[ScheduledPodAction, ...]:
    """Return the actions for a pod that was bound without the scheduler: reservations, and allocations for its node.

    Args:
        pod: the pod.
        claims: its claims in its order, up to the first that is missing.
        context: its PodSchedulingContext, if there is one.
        dialect: the version of the API.
    """
    node = documents.node_name(pod)
    if not node or documents.is_deleting(pod) or documents.is_finished(pod):
        return ()
    actions: list[ScheduledPodAction] = []
    for claim in claims:
        if documents.allocation(claim) is None:
            if _waits_for_pod(claim, dialect):
                # The claims after it are handled once it is allocated.
                return (*actions, *_selection(pod, node, context, dialect))
        elif _may_be_reserved(claim, pod, dialect):
            entry = {"resource": "pods", "name": pod.metadata.name, "uid": pod.metadata.uid}
            reserved = [*documents.reserved_for(claim), entry]
            actions.append(plan.WriteStatus(claim=documents.with_status(claim, reservedFor=reserved)))
    return tuple(actions)


def _waits_for_pod(claim: documents.Document, dialect: dialects.Dialect) -> bool:
    if dialect.version == "v1alpha2":
        return dialects.is_delayed(claim)
    return bool(claim.spec.get("controller"))


def _may_be_reserved(claim: documents.Document, pod: documents.Document, dialect: dialects.Dialect) -> bool:
    return (
        not documents.is_reserved_for(claim, pod)
        and dialects.is_open(claim, dialect)
        and not dialects.is_to_be_deallocated(claim)
        and not documents.is_deleting(claim)
    )


def _selection(
    pod: documents.Document, node: str, context: documents.Document | None, dialect: dialects.Dialect
) -> tuple[ScheduledPodAction, ...]:
    kind = dialect.context
    if kind is None:
        return ()
    if context is None:
        return (MakeContext(kind=kind, body=dialects.context_body(pod, kind, {"selectedNode": node})),)
    if context.spec.get("selectedNode") == node:
        return ()
    spec = {**context.spec, "selectedNode": node}
    return (SelectNode(kind=kind, context=documents.with_spec(context, spec)),)
