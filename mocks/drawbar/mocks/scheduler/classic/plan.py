"""The decision of one scheduling cycle for a pod with claims of a driver's controller; pure.

These are rules of the real scheduler that affect a driver:

- No node is selected while several claims are pending and one has no answer. With a single one, a node is selected at
  once.
- If more than 128 nodes fit, a random subset is offered, different each time; the selected node need not be in it.
- Every attempt picks again among the fitting nodes, so the selection may change while a driver allocates. An
  allocation for another node is deallocated only when no node fits, one random claim at a time.
- A selection is withdrawn before a request for deallocation. Otherwise the driver would allocate for the same node
  again.

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
    """The used part of `random.Random`; a seeded one repeats its choices."""

    def choice(self, seq: Sequence[T], /) -> T:
        """Return one of the items."""
        ...

    def sample(self, population: Sequence[T], k: int) -> list[T]:
        """Return `k` of the items, in random order."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """An entry of the pod's `spec.resourceClaims`, and the claim behind it."""

    entry: str
    claim: documents.Document


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The input of a cycle in addition to the pod.

    Attributes:
        nodes: all nodes.
        pods_on: returns a node's number of pods; the node with the fewest is chosen.
        classes: the classes by name.
        dialect: the version of the API.
        chance: the source of random choices.
    """

    nodes: Sequence[matching.Node]
    pods_on: Callable[[str], int]
    classes: Mapping[str, objects.Class]
    dialect: dialects.Dialect
    chance: Chance


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish:
    """Publish these changes of the context's spec for the drivers, and wait."""

    changes: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Wait for the drivers, which decide alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deallocate:
    """Deallocate this claim, because of which the pod fits nowhere.

    Attributes:
        claim: the claim.
        deselect: true to withdraw the context's selection first.
        by_driver: true if its driver must do it; false if the scheduler clears the allocation.
        reason: the reason for people.
    """

    claim: documents.Document
    deselect: bool
    by_driver: bool
    reason: str


Decision = modern.Placement | Publish | Wait | Deallocate | modern.Unschedulable | modern.Broken


@dataclass(frozen=True, slots=True, kw_only=True)
class _Need:
    """One claim's requirements of nodes."""

    use: Use
    allocated: bool
    selectors: tuple[common.NodeSelector, ...] = ()
    unsuitable: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sieve:
    """The fitting nodes, the reasons against the others, and the claims that could be deallocated to change that."""

    fitting: Sequence[str]
    refusals: Sequence[str]
    blocking: Sequence[Use]
    needs: int


def decide(
    pod: documents.Document, uses: Sequence[Use], context: documents.Document | None, world: World
) -> Decision:
    """Return the next decision for the pod.

    Args:
        pod: a pod without a node.
        uses: its claims, in its order.
        context: its PodSchedulingContext, or None.
        world: everything else.

    Raises:
        msgspec.ValidationError: the pod, a claim or the context violates the API.
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
            return modern.Unschedulable(reason=messages.describe_unready(len(world.nodes), problem))
    answers = objects.answers(context)
    needs = [_need(use, answers, world) for use in uses]
    sieve = _held_against_nodes(pod, needs, world)
    if not sieve.fitting:
        return _decide_without_node(pod, sieve, context, world)
    pending = [need.use.entry for need in needs if not need.allocated]
    if pending:
        return _ask_drivers(pending, context, sieve.fitting, world)
    return modern.Placement(node=_pick(sieve.fitting, world))


def _problem(pod: documents.Document, claim: documents.Document, world: World) -> str:
    """Return the claim's reason against all nodes; empty if there is none."""
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
        # An immediate claim would be allocated again without regard to the pod.
        blocking |= {use.claim.metadata.uid: use for use in unavailable if dialects.is_delayed(use.claim)}
        if unavailable:
            refusals.append(UNAVAILABLE)
        else:
            fitting.append(node.name)
    return _Sieve(fitting=fitting, refusals=refusals, blocking=tuple(blocking.values()), needs=len(needs))


def _exclusion(node: matching.Node, needs: Sequence[_Need], dialect: dialects.Dialect) -> str:
    """Return the reason against allocating a pending claim for the node; empty if there is none."""
    for need in needs:
        if not need.allocated and not _is_selected(node, need):
            return f"excluded by {dialect.class_words} node filter"
        if node.name in need.unsuitable:
            return UNSUITABLE
    return ""


def _is_selected(node: matching.Node, need: _Need) -> bool:
    return all(matching.selects(selector, node) for selector in need.selectors)


def _decide_without_node(
    pod: documents.Document, sieve: _Sieve, context: documents.Document | None, world: World
) -> Deallocate | modern.Unschedulable:
    """Decide for a pod without a fitting node: deallocate a blocking claim unused by other pods, if there is one."""
    claim = _find_unshared_claim(pod, sieve.blocking, world)
    if claim is None:
        after = messages.STILL_NOT_SCHEDULABLE if sieve.needs else messages.NOTHING_TO_DEALLOCATE
        return modern.Unschedulable(reason=messages.describe_refusals(sieve.refusals, after))
    by_driver = not dialects.is_allocated_by_scheduler(claim, world.dialect)
    return Deallocate(
        claim=claim,
        deselect=by_driver and bool(objects.selected_node(context)),
        by_driver=by_driver,
        reason=messages.describe_refusals(sieve.refusals, messages.DEALLOCATED),
    )


def _find_unshared_claim(
    pod: documents.Document, blocking: Sequence[Use], world: World
) -> documents.Document | None:
    for use in world.chance.sample(blocking, len(blocking)):
        if all(consumer.get("uid") == pod.metadata.uid for consumer in documents.reserved_for(use.claim)):
            return use.claim
    return None


def _pick(fitting: Sequence[str], world: World) -> str:
    pods = {name: world.pods_on(name) for name in fitting}
    fewest = min(pods.values())
    return world.chance.choice([name for name in fitting if pods[name] == fewest])


def _ask_drivers(
    pending: Sequence[str], context: documents.Document | None, fitting: Sequence[str], world: World
) -> Publish | Wait:
    """Decide about the pending entries: publish changes for the drivers, or wait. Some nodes fit."""
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
