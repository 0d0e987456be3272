"""What one scheduling cycle decides for a pod whose claims a driver's controller allocates; pure.

Invariants, each a rule of the real scheduler that a driver has to live with:

- No node is selected while several claims are pending and one of them has no answer; for a single one it is done at once.
- Of more than 128 fitting nodes a random subset is offered, and another one each time; the selected node need not be in it.
- Every attempt picks anew among the nodes that fit, so the selection may change while a driver allocates. What is allocated
  for another node then is given back only when no node fits, one claim at a time, picked at random.
- A selection is withdrawn before deallocation is asked for; else the driver would allocate for the same node again.

Source: KEP-3063; pkg/scheduler/framework/plugins/dynamicresources of Kubernetes 1.30 and 1.31.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import msgspec

from drawbar.mocks.claims import dialects, documents
from drawbar.mocks.scheduler import matching, messages, nodes
from drawbar.mocks.scheduler import objects as common
from drawbar.mocks.scheduler import plan as modern
from drawbar.mocks.scheduler.classic import objects

UNSUITABLE = "resourceclaim cannot be allocated for the node (unsuitable)"
UNAVAILABLE = "resourceclaim not available on the node"
T = TypeVar("T")


class Chance(Protocol):
    """What `random.Random` has of it; a seeded one makes the same choices again."""

    def choice(self, seq: Sequence[T], /) -> T:
        """One of them."""
        ...

    def sample(self, population: Sequence[T], k: int) -> list[T]:
        """So many of them, in random order."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """An entry of the pod's `spec.resourceClaims`, and the claim behind it."""

    entry: str
    claim: documents.Document


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What a cycle looks at besides the pod.

    Attributes:
        nodes: all nodes.
        pods_on: how many pods a node has; the pod goes where there are fewest.
        classes: the classes by name.
        dialect: the version of the API.
        chance: what decides where nothing else does.
    """

    nodes: Sequence[matching.Node]
    pods_on: Callable[[str], int]
    classes: Mapping[str, objects.Class]
    dialect: dialects.Dialect
    chance: Chance


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish:
    """Tell the drivers, by these changes of the context's spec, and wait for them."""

    changes: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """The drivers know all there is to know; wait for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deallocate:
    """The pod fits nowhere because of this claim, which it may give back.

    Attributes:
        claim: the claim.
        deselect: whether the context's selection is to be withdrawn first.
        by_driver: whether its driver must do it; else the scheduler itself clears the allocation.
        reason: for people.
    """

    claim: documents.Document
    deselect: bool
    by_driver: bool
    reason: str


Decision = modern.Placement | Publish | Wait | Deallocate | modern.Unschedulable | modern.Broken


@dataclass(frozen=True, slots=True, kw_only=True)
class _Need:
    """One claim as it is held against nodes."""

    use: Use
    allocated: bool
    selectors: tuple[common.NodeSelector, ...] = ()
    unsuitable: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sieve:
    """The nodes that fit, why the others do not, and the claims that could be given back to change that."""

    fitting: Sequence[str]
    refusals: Sequence[str]
    blocking: Sequence[Use]
    needs: int


def decide(
    pod: documents.Document, uses: Sequence[Use], context: documents.Document | None, world: World
) -> Decision:
    """What to do for the pod next.

    Args:
        pod: a pod without a node.
        uses: its claims, in its order.
        context: its PodSchedulingContext, if there is one.
        world: everything else.

    Raises:
        msgspec.ValidationError: the pod, a claim or the context is not what the API allows.
    """
    if not world.nodes:
        return modern.Unschedulable(reason="no nodes available to schedule pods")
    if uses and context is not None and not documents.is_owned_by(context, pod):
        problem = (
            f"PodSchedulingContext object with UID {context.metadata.uid} is not owned by Pod {pod.full_name}"
        )
        return modern.Broken(reason=f'running PreFilter plugin "DynamicResources": {problem}')
    for use in uses:
        if problem := _problem(pod, use.claim, world):
            return modern.Unschedulable(reason=messages.unready(len(world.nodes), problem))
    answers = objects.answers(context)
    needs = [_need(use, answers, world) for use in uses]
    sieve = _held_against_nodes(pod, needs, world)
    if not sieve.fitting:
        return _unfit(pod, sieve, context, world)
    pending = [need.use.entry for need in needs if not need.allocated]
    if pending:
        return _asked(pending, context, sieve.fitting, world)
    return modern.Placement(node=_pick(sieve.fitting, world))


def _problem(pod: documents.Document, claim: documents.Document, world: World) -> str:
    """Why no node need be looked at, as far as this claim goes; empty when there is no such reason."""
    if dialects.is_to_be_deallocated(claim):
        return "resourceclaim must be reallocated"
    if documents.allocation(claim) is not None:
        taken = not dialects.is_open(claim, world.dialect) and not documents.is_reserved_for(claim, pod)
        return "resourceclaim in use" if taken else ""
    structured = world.dialect.version == "v1alpha3" and not claim.spec.get("controller")
    for request, name in dialects.classes_of(claim):
        device_class = world.classes.get(name)
        if device_class is None:
            prefix = f"request {request}: " if request else ""
            return f"{prefix}{world.dialect.class_words} {name} does not exist"
        structured = structured or bool(device_class.structured_parameters)
    if structured:
        return f"no controller allocates resource claim {claim.full_name}, and this scheduler does not"
    return "" if dialects.is_delayed(claim) else "unallocated immediate resourceclaim"


def _need(use: Use, answers: Mapping[str, frozenset[str]], world: World) -> _Need:
    if documents.allocation(use.claim) is not None:
        selector = dialects.usable_on(use.claim)
        selectors = () if selector is None else (msgspec.convert(selector, common.NodeSelector),)
        return _Need(use=use, allocated=True, selectors=selectors)
    classes = (world.classes[name].nodes for _, name in dialects.classes_of(use.claim))
    return _Need(
        use=use,
        allocated=False,
        selectors=tuple(selector for selector in classes if selector is not None),
        unsuitable=answers.get(use.entry, frozenset()),
    )


def _held_against_nodes(pod: documents.Document, needs: Sequence[_Need], world: World) -> _Sieve:
    fitting: list[str] = []
    refusals: list[str] = []
    blocking: dict[str, Use] = {}
    for node in world.nodes:
        refusal = node.closed or nodes.objection(node, pod) or _exclusion(node, needs, world.dialect)
        if refusal:
            refusals.append(refusal)
            continue
        unavailable = [need.use for need in needs if not _is_selected(node, need)]
        # An immediate claim would be allocated again just as blindly.
        blocking |= {use.claim.metadata.uid: use for use in unavailable if dialects.is_delayed(use.claim)}
        if unavailable:
            refusals.append(UNAVAILABLE)
        else:
            fitting.append(node.name)
    return _Sieve(fitting=fitting, refusals=refusals, blocking=tuple(blocking.values()), needs=len(needs))


def _exclusion(node: matching.Node, needs: Sequence[_Need], dialect: dialects.Dialect) -> str:
    """Why a pending claim cannot be allocated for the node; empty when it might be."""
    for need in needs:
        if not need.allocated and not _is_selected(node, need):
            return f"excluded by {dialect.class_words} node filter"
        if node.name in need.unsuitable:
            return UNSUITABLE
    return ""


def _is_selected(node: matching.Node, need: _Need) -> bool:
    return all(matching.selects(selector, node) for selector in need.selectors)


def _unfit(
    pod: documents.Document, sieve: _Sieve, context: documents.Document | None, world: World
) -> Deallocate | modern.Unschedulable:
    """One claim of those that keep the pod from a node goes back, if there is one that no other pod has."""
    claim = _given_back(pod, sieve.blocking, world)
    if claim is None:
        after = messages.STILL_NOT_SCHEDULABLE if sieve.needs else messages.NOTHING_TO_DEALLOCATE
        return modern.Unschedulable(reason=messages.unfit(sieve.refusals, after))
    by_driver = not dialects.is_allocated_by_scheduler(claim, world.dialect)
    return Deallocate(
        claim=claim,
        deselect=by_driver and bool(objects.selected_node(context)),
        by_driver=by_driver,
        reason=messages.unfit(sieve.refusals, messages.DEALLOCATED),
    )


def _given_back(pod: documents.Document, blocking: Sequence[Use], world: World) -> documents.Document | None:
    for use in world.chance.sample(blocking, len(blocking)):
        if all(consumer.get("uid") == pod.metadata.uid for consumer in documents.reserved_for(use.claim)):
            return use.claim
    return None


def _pick(fitting: Sequence[str], world: World) -> str:
    pods = {name: world.pods_on(name) for name in fitting}
    fewest = min(pods.values())
    return world.chance.choice([name for name in fitting if pods[name] == fewest])


def _asked(
    pending: Sequence[str], context: documents.Document | None, fitting: Sequence[str], world: World
) -> Publish | Wait:
    """What to tell the drivers about the pending entries; there are some, and nodes that fit."""
    chosen = _pick(fitting, world)
    changes: dict[str, Any] = {}
    if not set(fitting) <= set(objects.potential_nodes(context)):
        number = min(len(fitting), objects.NODES_LIMIT)
        changes["potentialNodes"] = sorted(world.chance.sample(fitting, number))
    answered = objects.answers(context)
    confident = len(pending) == 1 or all(entry in answered for entry in pending)
    if confident and objects.selected_node(context) != chosen:
        changes["selectedNode"] = chosen
    return Publish(changes=changes) if changes else Wait()
