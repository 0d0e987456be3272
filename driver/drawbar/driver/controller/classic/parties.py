"""Who waits for devices: pods with their claims, and claims that are allocated at once; pure.

A context is a pod's only while the pod it names as its owner is there; others are orphans, which somebody else removes.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from drawbar.driver.api import classic, nodes
from drawbar.driver.controller.classic import claim_requests, selectors


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A claim that somebody waits for.

    Attributes:
        entry: its name in the pod's spec; empty for an immediate claim.
    """

    entry: str
    claim: classic.Claim
    wanted: claim_requests.Wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Party:
    """A pod, or an immediate claim, with all that it still waits for from this driver.

    Attributes:
        uid: of the pod, or of the claim.
        context: None for an immediate claim.
        nodes: that come into question, the likeliest first.
    """

    uid: str
    created: str
    waiting: tuple[Waiting, ...]
    nodes: tuple[str, ...]
    context: classic.Context | None = None
    pod: classic.Pod | None = None

    @property
    def selected(self) -> str:
        """The node that the scheduler decided on; empty while it did not."""
        return self.context.selected_node if self.context is not None else ""

    @property
    def is_fixed(self) -> bool:
        """Whether the node is decided for good: nobody wants to hear which others would do."""
        return self.context is not None and not self.context.potential_nodes

    @property
    def order(self) -> tuple[str, str]:
        """Who came first."""
        return self.created, self.uid


def of_pods(
    contexts: Mapping[str, classic.Context],
    pods: Mapping[classic.Name, classic.Pod],
    claims: Mapping[classic.Name, classic.Claim],
    wanted: Mapping[str, claim_requests.Wanted],
) -> tuple[Party, ...]:
    """The pods that wait.

    Args:
        contexts: by uid.
        pods: those that are there.
        claims: of this driver.
        wanted: what each claim asks for, by uid.
    """
    found = []
    for context in contexts.values():
        pod = pods.get(context.name)
        if pod is None or pod.over or pod.uid not in context.pod_uids:
            continue
        waiting = _waiting(pod, claims, wanted)
        if waiting:
            found.append(
                Party(
                    uid=pod.uid,
                    created=pod.created,
                    waiting=waiting,
                    nodes=_nodes(context, waiting),
                    context=context,
                    pod=pod,
                )
            )
    return tuple(found)


def immediate(
    claims: Mapping[classic.Name, classic.Claim],
    wanted: Mapping[str, claim_requests.Wanted],
    known: Mapping[str, nodes.Node],
) -> tuple[Party, ...]:
    """The claims that are allocated at once; any node will do that their class allows."""
    found = []
    for claim in claims.values():
        if not claim.immediate or claim.allocation is not None or claim.deleting:
            continue
        asked = wanted[claim.uid]
        found.append(
            Party(
                uid=claim.uid,
                created=claim.created,
                waiting=(Waiting(entry="", claim=claim, wanted=asked),),
                nodes=tuple(
                    sorted(
                        name
                        for name, node in known.items()
                        if all(selectors.matches(one, node) for one in asked.suitable_nodes)
                    )
                ),
            )
        )
    return tuple(found)


def _waiting(
    pod: classic.Pod,
    claims: Mapping[classic.Name, classic.Claim],
    wanted: Mapping[str, claim_requests.Wanted],
) -> tuple[Waiting, ...]:
    """The pod's claims that are not allocated; one that two entries name counts for both."""
    found = []
    for entry, name in pod.claims.items():
        claim = claims.get(classic.Name(namespace=pod.name.namespace, name=name)) if name else None
        if claim is None or claim.allocation is not None or claim.deleting or claim.immediate:
            continue
        if entry in pod.from_template and pod.uid not in claim.owner_uids:
            continue
        found.append(Waiting(entry=entry, claim=claim, wanted=wanted[claim.uid]))
    return tuple(found)


def _nodes(context: classic.Context, waiting: tuple[Waiting, ...]) -> tuple[str, ...]:
    """The selected node, the potential ones, and those that were called unsuitable: they are not listed again."""
    earlier = [node for one in waiting for node in context.entries.get(one.entry, ())]
    selected = [context.selected_node] if context.selected_node else []
    return tuple(dict.fromkeys((*selected, *context.potential_nodes, *earlier)))
