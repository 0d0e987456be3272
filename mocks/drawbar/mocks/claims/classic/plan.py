"""What the claim controller does besides on a cluster with classic DRA, decided from one pod or one claim alone; pure.

Invariants: an allocation that a driver made is never cleared here, the driver is asked to (`deallocationRequested`); it is
asked only when the last consumer leaves, for a driver need not reserve what it allocates, so that an allocated claim
without a consumer may be about to be used.

Source: kubernetes/kubernetes pkg/controller/resourceclaim/controller.go of 1.30 and 1.31; KEP-3063.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from drawbar.driver.kube import kinds
from drawbar.mocks.claims import dialects, documents
from drawbar.mocks.claims import plan as modern


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


PodAction = MakeContext | SelectNode | modern.WriteStatus


def for_scheduled_pod(
    pod: documents.Document,
    claims: Sequence[documents.Document],
    context: documents.Document | None,
    dialect: dialects.Dialect,
) -> tuple[PodAction, ...]:
    """What a pod needs that got its node without the scheduler: reservations, and allocations for that very node.

    Args:
        pod: the pod.
        claims: its claims in its order, up to the first that is missing.
        context: its PodSchedulingContext, if there is one.
        dialect: the version of the API.
    """
    node = documents.node_name(pod)
    if not node or documents.is_deleting(pod) or documents.is_finished(pod):
        return ()
    actions: list[PodAction] = []
    for claim in claims:
        if documents.allocation(claim) is None:
            if _waits_for_pod(claim, dialect):
                # The claims behind it have their turn once it is allocated.
                return (*actions, *_selection(pod, node, context, dialect))
        elif _may_be_reserved(claim, pod, dialect):
            entry = {"resource": "pods", "name": pod.metadata.name, "uid": pod.metadata.uid}
            reserved = [*documents.reserved_for(claim), entry]
            actions.append(modern.WriteStatus(claim=documents.with_status(claim, reservedFor=reserved)))
    return tuple(actions)


def for_claim(
    claim: documents.Document, pods: Collection[documents.Document], *, owner_done: bool
) -> tuple[modern.ClaimAction, ...]:
    """What to do with a claim; the arguments are those of the modern plan."""
    if documents.PROTECTION_FINALIZER in claim.metadata.finalizers:
        # The scheduler allocated it.
        return modern.for_claim(claim, pods, owner_done=owner_done)
    actions: list[modern.ClaimAction] = []
    reserved = documents.reserved_for(claim)
    valid = modern.valid_consumers(reserved, pods)
    if len(valid) < len(reserved):
        changes: dict[str, Any] = {"reservedFor": valid or None}
        if not valid and dialects.is_delayed(claim):
            changes["deallocationRequested"] = True
        actions.append(modern.WriteStatus(claim=documents.with_status(claim, **changes)))
    if owner_done and not valid and not documents.is_deleting(claim):
        actions.append(modern.DeleteClaim())
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
) -> tuple[PodAction, ...]:
    kind = dialect.context
    if kind is None:
        return ()
    if context is None:
        return (MakeContext(kind=kind, body=dialects.context_body(pod, kind, {"selectedNode": node})),)
    if context.spec.get("selectedNode") == node:
        return ()
    spec = {**context.spec, "selectedNode": node}
    return (SelectNode(kind=kind, context=documents.with_spec(context, spec)),)
