"""Which devices a pod's claims get on one node: first fit with backtracking, pure.

Guarantees: a device already taken is never given, nor one twice; all claims of the pod are served on the same node, or
none is; pools are looked at without binding conditions first, then with, each by driver and name; only a pool whose
newest generation is complete, and has no device name twice, gives anything.

Not emulated: consumable capacity, partitionable devices, DeviceTaintRules, `distinctAttribute`.

Source: the allocator of `k8s.io/dynamic-resource-allocation/structured`.
"""

import functools
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from drawbar.mocks.claims import documents
from drawbar.mocks.scheduler import matching, objects, selectors

# Bounds the search where many equal devices meet a request that cannot be met.
ATTEMPTS_LIMIT = 20_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidate:
    """One published device. Compared by identity, so that selector results can be remembered for it."""

    id: documents.DeviceID
    device: objects.Device
    slice: objects.SliceSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSupply:
    """The newest generation of one pool.

    Attributes:
        name: `driver/pool`.
        usable: all its slices are there and no device name comes twice.
        candidates: its devices, slices by name, devices in their order.
    """

    name: str
    usable: bool
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What one claim asks for. `name` is for messages."""

    name: str
    devices: objects.ClaimDevices


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why the claims cannot be served on the node."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pick:
    claim: int
    request: str
    ask: objects.Ask
    candidate: Candidate


class _Unsatisfiable(Exception):
    """Carries the reason of a refusal out of the search."""


def pools(slices: Iterable[objects.Slice]) -> tuple[PoolSupply, ...]:
    """The pools in the order in which the allocator looks at them."""
    grouped: dict[tuple[str, str], list[objects.Slice]] = {}
    for item in slices:
        grouped.setdefault((item.spec.driver, item.spec.pool.name), []).append(item)
    supplies = [_supply(key, members) for key, members in sorted(grouped.items())]
    return tuple(sorted(supplies, key=_has_binding_conditions))


def allocate(
    demands: Sequence[Demand],
    *,
    node: matching.Node,
    supply: Sequence[PoolSupply],
    classes: Mapping[str, objects.DeviceClass],
    taken: Collection[documents.DeviceID],
) -> tuple[objects.Allocation, ...] | Refusal:
    """One allocation per demand, or why there is none.

    Args:
        demands: the unallocated claims of one pod.
        node: the node they must all fit.
        supply: what `pools` gave.
        classes: the device classes by name.
        taken: devices allocated to other claims.
    """
    search = _Search(demands, node=node, supply=supply, classes=classes, taken=taken)
    try:
        picks = search.run()
    except _Unsatisfiable as refusal:
        return Refusal(reason=str(refusal))
    return tuple(
        _allocation(demand, [pick for pick in picks if pick.claim == number], node, classes)
        for number, demand in enumerate(demands)
    )


class _Search:
    def __init__(
        self,
        demands: Sequence[Demand],
        *,
        node: matching.Node,
        supply: Sequence[PoolSupply],
        classes: Mapping[str, objects.DeviceClass],
        taken: Collection[documents.DeviceID],
    ) -> None:
        self._demands = demands
        self._node = node
        self._supply = supply
        self._classes = classes
        self._taken = taken
        self._attempts = 0

    def run(self) -> tuple[_Pick, ...]:
        steps = [
            (number, request, self._alternatives(number, request))
            for number, demand in enumerate(self._demands)
            for request in demand.devices.requests
        ]
        for demand in self._demands:
            if any(constraint.distinct_attribute for constraint in demand.devices.constraints):
                raise _Unsatisfiable(
                    f"claim {demand.name}: the scheduler double does not know distinctAttribute"
                )
        for picks in self._solutions([step[2] for step in steps], ()):
            return picks
        raise _Unsatisfiable("cannot allocate all claims")

    def _alternatives(self, number: int, request: objects.Request) -> list[list[_Pick] | None]:
        """Per way to fulfil the request its possible picks, or None where it cannot be fulfilled at all."""
        asks = (request.exactly,) if request.exactly is not None else request.first_available
        named = [
            (f"{request.name}/{ask.name}" if request.first_available else request.name, ask) for ask in asks
        ]
        return [self._possible(number, name, ask) for name, ask in named]

    def _possible(self, number: int, name: str, ask: objects.Ask) -> list[_Pick] | None:
        device_class = self._classes.get(ask.device_class_name)
        where = f"claim {self._demands[number].name}, request {name}"
        if device_class is None:
            raise _Unsatisfiable(f"{where}: device class {ask.device_class_name} does not exist")
        wanted = (*device_class.spec.selectors, *ask.selectors)
        expressions = [selector.cel.expression for selector in wanted if selector.cel is not None]
        everything = ask.allocation_mode == "All"
        found: list[_Pick] = []
        for pool in self._supply:
            here = [one for one in pool.candidates if _reaches(one, self._node)]
            if not pool.usable:
                if everything and here:
                    return None
                continue
            for candidate in here:
                free = self._is_free(candidate, ask)
                if (free or everything) and self._selected(where, expressions, candidate):
                    if not free:
                        return None
                    found.append(_Pick(claim=number, request=name, ask=ask, candidate=candidate))
        return found if len(found) >= (1 if everything else ask.count) else None

    def _is_free(self, candidate: Candidate, ask: objects.Ask) -> bool:
        taken = candidate.id in self._taken and not ask.admin_access
        return not taken and all(
            matching.is_tolerated(taint, ask.tolerations) for taint in candidate.device.taints
        )

    def _selected(self, where: str, expressions: Sequence[str], candidate: Candidate) -> bool:
        try:
            return all(_matches(expression, candidate) for expression in expressions)
        except selectors.SelectorError as error:
            raise _Unsatisfiable(f"{where}: selector on device {'/'.join(candidate.id)}: {error}") from error

    def _solutions(
        self, steps: Sequence[list[list[_Pick] | None]], picked: tuple[_Pick, ...]
    ) -> Iterator[tuple[_Pick, ...]]:
        if not steps:
            yield picked
            return
        for possible in steps[0]:
            if possible is None:
                continue
            for picks in self._ways(possible, picked):
                yield from self._solutions(steps[1:], (*picked, *picks))

    def _ways(self, possible: list[_Pick], picked: tuple[_Pick, ...]) -> Iterator[tuple[_Pick, ...]]:
        ask = possible[0].ask
        used = {pick.candidate.id for pick in picked if not pick.ask.admin_access}
        free = [pick for pick in possible if ask.admin_access or pick.candidate.id not in used]
        if ask.allocation_mode == "All":
            ways: Iterable[tuple[_Pick, ...]] = [tuple(free)] if len(free) == len(possible) else []
        else:
            ways = itertools.combinations(free, ask.count)
        for way in ways:
            self._attempts += 1
            if self._attempts > ATTEMPTS_LIMIT:
                raise _Unsatisfiable(f"cannot allocate all claims: gave up after {ATTEMPTS_LIMIT} attempts")
            if self._agree((*picked, *way), possible[0].claim):
                yield way

    def _agree(self, picks: Sequence[_Pick], number: int) -> bool:
        for constraint in self._demands[number].devices.constraints:
            values = [
                _attribute(pick.candidate, constraint.match_attribute)
                for pick in picks
                if pick.claim == number and _names(constraint.requests, pick.request)
            ]
            if any(value is None or value != values[0] for value in values):
                return False
        return True


def _supply(key: tuple[str, str], members: list[objects.Slice]) -> PoolSupply:
    newest = max(member.spec.pool.generation for member in members)
    current = sorted(
        (member for member in members if member.spec.pool.generation == newest),
        key=lambda member: member.metadata.name,
    )
    candidates = tuple(
        Candidate(id=(*key, device.name), device=device, slice=member.spec)
        for member in current
        for device in member.spec.devices
    )
    complete = len(current) == current[0].spec.pool.resource_slice_count
    distinct = len({candidate.id for candidate in candidates}) == len(candidates)
    return PoolSupply(name="/".join(key), usable=complete and distinct, candidates=candidates)


def _has_binding_conditions(pool: PoolSupply) -> bool:
    return any(candidate.device.binding_conditions for candidate in pool.candidates)


def _reaches(candidate: Candidate, node: matching.Node) -> bool:
    place = candidate.device if candidate.slice.per_device_node_selection else candidate.slice
    if place.all_nodes:
        return True
    if place.node_name:
        return place.node_name == node.name
    return place.node_selector is not None and matching.selects(place.node_selector, node)


@functools.lru_cache(maxsize=65_536)
def _matches(expression: str, candidate: Candidate) -> bool:
    return selectors.matches(expression, candidate.id[0], candidate.device)


def _attribute(candidate: Candidate, name: str) -> object:
    attributes = candidate.device.attributes
    domain, _, identifier = name.rpartition("/")
    box = attributes.get(name) or (attributes.get(identifier) if domain == candidate.id[0] else None)
    return None if box is None else next(iter(box.values()), None)


def _names(requests: Collection[str], request: str) -> bool:
    """Whether a list of requests (none: all of them) means this one; `req` means all of `req/sub`."""
    return not requests or request in requests or request.partition("/")[0] in requests


def _allocation(
    demand: Demand, picks: Sequence[_Pick], node: matching.Node, classes: Mapping[str, objects.DeviceClass]
) -> objects.Allocation:
    results = tuple(_result(pick) for pick in picks)
    chosen = {pick.request: pick.ask.device_class_name for pick in picks}
    config = [
        objects.AllocatedConfiguration(source="FromClass", requests=(request,), opaque=entry.opaque)
        for request, name in chosen.items()
        for entry in classes[name].spec.config
    ]
    config += [
        objects.AllocatedConfiguration(source="FromClaim", requests=entry.requests, opaque=entry.opaque)
        for entry in demand.devices.config
        if any(_names(entry.requests, request) for request in chosen)
    ]
    return objects.Allocation(
        devices=objects.AllocatedDevices(results=results, config=tuple(config)),
        node_selector=_node_selector([pick.candidate for pick in picks], node),
    )


def _result(pick: _Pick) -> objects.Result:
    driver, pool, device = pick.candidate.id
    return objects.Result(
        request=pick.request,
        driver=driver,
        pool=pool,
        device=device,
        admin_access=pick.ask.admin_access or None,
        tolerations=pick.ask.tolerations,
        binding_conditions=pick.candidate.device.binding_conditions,
        binding_failure_conditions=pick.candidate.device.binding_failure_conditions,
    )


def _node_selector(candidates: Sequence[Candidate], node: matching.Node) -> objects.NodeSelector | None:
    """Where the allocated devices can be used: this node alone, or what their slices' selectors have in common."""
    expressions: dict[objects.Requirement, None] = {}
    fields: dict[objects.Requirement, None] = {}
    for candidate in candidates:
        place = candidate.device if candidate.slice.per_device_node_selection else candidate.slice
        if candidate.device.binds_to_node or place.node_name:
            only = objects.Requirement(key="metadata.name", operator="In", values=(node.name,))
            return objects.NodeSelector(node_selector_terms=(objects.Term(match_fields=(only,)),))
        if place.node_selector is not None:
            for term in place.node_selector.node_selector_terms:
                if matching.holds(term, node):
                    expressions |= dict.fromkeys(term.match_expressions)
                    fields |= dict.fromkeys(term.match_fields)
    if not expressions and not fields:
        return None
    term = objects.Term(match_expressions=tuple(expressions), match_fields=tuple(fields))
    return objects.NodeSelector(node_selector_terms=(term,))
