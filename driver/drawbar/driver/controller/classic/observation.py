"""The observed state for one round of the negotiation, and its requesters; pure.

Requesters are pods with their claims, and claims that are allocated at once. A context belongs to a pod only while its
owner, the pod, exists; others are orphans, which the garbage collector removes.
"""

import datetime
from collections.abc import Iterator, Mapping

import msgspec

from drawbar.driver.api import attachments, claims, classic, core
from drawbar.driver.controller.allocation import matching
from drawbar.driver.controller.classic import claim_requests


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """The claims, pods, nodes and devices of one round of the negotiation.

    Attributes:
        claims: this driver's claims, by name.
        requests: the requests of each claim, by UID.
        contexts: the contexts by UID.
        pods: the existing pods, with the waiting ones.
        nodes: the nodes by name.
        gone_at: by the name of an attachment, the time from which its missing node counts as gone.
        attachments: this driver's attachments.
        inventory: the inventory of all fabrics.
        judge: decides whether a device meets an expression.
        patience: the time from the first sight of an attempt to its failure.
        seen: by the name of an attachment, the time when it was first seen to be for its claim.
        date: the time of day, for the allocations of this round; all other times are on the steady clock.
    """

    claims: Mapping[classic.Name, classic.Claim]
    requests: Mapping[str, claim_requests.ClaimRequests]
    contexts: Mapping[str, classic.Context]
    pods: Mapping[classic.Name, classic.Pod]
    nodes: Mapping[str, core.Node]
    gone_at: Mapping[str, datetime.datetime]
    attachments: tuple[attachments.DeviceAttachment, ...]
    inventory: matching.Inventory
    judge: matching.Judge
    patience: datetime.timedelta
    seen: Mapping[str, datetime.datetime]
    date: datetime.datetime


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A claim that a requester waits for.

    Attributes:
        entry: the claim's name in the pod's spec; empty for an immediate claim.
    """

    entry: str
    claim: classic.Claim
    requests: claim_requests.ClaimRequests


class Requester(msgspec.Struct, frozen=True, kw_only=True):
    """A pod, or an immediate claim, with everything that it still waits for from this driver.

    Attributes:
        uid: the UID of the pod, or of the claim.
        nodes: the candidates, the likeliest first.
        context: None for an immediate claim.
    """

    uid: str
    created: str
    waiting: tuple[Waiting, ...]
    nodes: tuple[str, ...]
    context: classic.Context | None = None
    pod: classic.Pod | None = None

    @property
    def selected_node(self) -> str:
        """Return the node that the scheduler selected; empty while there is none."""
        return self.context.selected_node if self.context is not None else ""

    @property
    def is_fixed(self) -> bool:
        """Return whether the node is final, so that the other suitable nodes do not matter."""
        return self.context is not None and not self.context.potential_nodes


def requesters(observed: Round) -> Iterator[Requester]:
    """Yield the pods that wait for a claim, and the claims to be allocated at once."""
    for context in observed.contexts.values():
        pod = observed.pods.get(context.name)
        if pod is None or pod.over or pod.uid not in context.pod_uids:
            continue
        waiting = tuple(_list_waiting(pod, observed))
        if waiting:
            yield Requester(
                uid=pod.uid,
                created=pod.created,
                waiting=waiting,
                nodes=_candidates(context, waiting),
                context=context,
                pod=pod,
            )
    for claim in observed.claims.values():
        if claim.immediate and claim.allocation is None and not claim.deleting:
            wanted = observed.requests[claim.uid]
            suitable = (
                name
                for name, node in observed.nodes.items()
                if all(selects(selector, node) for selector in wanted.suitable_nodes)
            )
            yield Requester(
                uid=claim.uid,
                created=claim.created,
                waiting=(Waiting(entry="", claim=claim, requests=wanted),),
                nodes=tuple(sorted(suitable)),
            )


def _list_waiting(pod: classic.Pod, observed: Round) -> Iterator[Waiting]:
    """Yield the pod's claims without an allocation; a claim under two entries counts for both."""
    for entry, name in pod.claims.items():
        claim = observed.claims.get(classic.Name(namespace=pod.name.namespace, name=name)) if name else None
        if claim is None or claim.allocation is not None or claim.deleting or claim.immediate:
            continue
        if entry not in pod.from_template or pod.uid in claim.owner_uids:
            yield Waiting(entry=entry, claim=claim, requests=observed.requests[claim.uid])


def _candidates(context: classic.Context, waiting: tuple[Waiting, ...]) -> tuple[str, ...]:
    """Return the selected node, the potential ones, and the earlier unsuitable ones, which are not listed again."""
    earlier = [node for claim in waiting for node in context.entries.get(claim.entry, ())]
    selected = [context.selected_node] if context.selected_node else []
    return tuple(dict.fromkeys((*selected, *context.potential_nodes, *earlier)))


def selects(selector: claims.NodeSelector, node: core.Node) -> bool:
    """Return whether some term of the selector matches the node.

    Source: core `v1` NodeSelector: any term, and in a term all requirements; a term without requirements matches
    nothing.
    """
    fields = {"metadata.name": node.metadata.name}
    return any(
        (term.match_fields or term.match_expressions)
        and all(_holds(requirement, fields) for requirement in term.match_fields)
        and all(_holds(requirement, node.metadata.labels) for requirement in term.match_expressions)
        for term in selector.node_selector_terms
    )


def _holds(requirement: claims.FieldRequirement, values: Mapping[str, str]) -> bool:
    value = values.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            try:
                left, right = int(value or ""), int(requirement.values[0])
            except (ValueError, IndexError):
                return False
            return left > right if operator == "Gt" else left < right
        case _:
            return False
