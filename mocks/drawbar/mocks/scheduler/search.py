"""The search for devices for all requests of a pod's claims on one node: first fit with backtracking. Pure.

Guarantees: claims are searched in the pod's order, then requests, alternatives and the pools' devices in order; the
first complete solution is used. A used device is skipped before any other check. So selectors see only devices up to
the end of the search, and a selector that fails on a later one is harmless.

Some results are surprising but match the real allocator. A request for all devices fails while any pool for its node
is incomplete or invalid, of any driver. Admin access blocks the device for the pod's other requests and tolerates no
taint by itself.

Source: the allocator of `k8s.io/dynamic-resource-allocation/structured`.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from drawbar.mocks.scheduler import capacity, constraints, matching, objects, pools, selectors, usage

# The real scheduler gives up after 10 s; a pure search counts attempts instead.
ATTEMPTS_LIMIT = 20_000
RESULTS_LIMIT = 32


class AllocationError(Exception):
    """A claim, a class or a pool is faulty; the real scheduler ends the whole attempt."""


class TooManyAttempts(Exception):
    """The search was given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """The requests of one claim. `name` is for messages."""

    name: str
    devices: objects.ClaimDevices


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick:
    """One chosen device.

    Attributes:
        claim: the number of the claim.
        request: the request's name, `request` or `request/alternative`.
        ask: the request.
        candidate: the device.
        taken: the amounts of a shared device; None for a whole device.
    """

    claim: int
    request: str
    ask: objects.Ask
    candidate: pools.Candidate
    taken: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to fulfil a request.

    Attributes:
        claim: the number of the claim.
        name: the request's name, `request` or `request/alternative`.
        ask: the request.
        expressions: the selectors of class and request.
        count: the number of devices.
        choices: the possible devices; with `everything` all of them.
        everything: true for a request of all devices.
    """

    claim: int
    name: str
    ask: objects.Ask
    expressions: tuple[str, ...]
    count: int
    choices: tuple[pools.Candidate, ...] = field(repr=False)
    everything: bool


Picks = tuple[Pick, ...]


class Search:
    """One search. Run it once."""

    def __init__(
        self,
        demands: Sequence[Demand],
        *,
        node: matching.Node,
        supply: Sequence[pools.PoolSupply],
        classes: Mapping[str, objects.DeviceClass],
        used: usage.Usage,
    ) -> None:
        self._demands = demands
        self._node = node
        self._supply = [pool for pool in supply if pools.serves(pool, node)]
        self._classes = classes
        self._used = used
        self._attempts = 0
        self._line = tuple(candidate for pool in self._supply if pool.usable for candidate in pool.candidates)
        # Devices in whole use are only for requests for all devices and requests with admin access.
        self._free = tuple(candidate for candidate in self._line if candidate.id not in used.whole)
        self._steps = [
            self._ways(number, request)
            for number, demand in enumerate(demands)
            for request in demand.devices.requests
        ]

    def run(self) -> Picks | None:
        """Return the first solution, or None.

        Raises:
            AllocationError: no other node can help the pod.
            TooManyAttempts: the search was given up.
        """
        self._check_sizes()
        return self._solve(0, ())

    def _solve(self, step: int, picks: Picks) -> Picks | None:
        if step == len(self._steps):
            return picks
        for way in self._steps[step]:
            held = sum(pick.claim == way.claim for pick in picks)
            if (way.everything and not way.choices) or held + way.count > RESULTS_LIMIT:
                continue
            solution = self._fill(step, way, picks, start=0, missing=way.count)
            if solution is not None:
                return solution
        return None

    def _fill(self, step: int, way: Way, picks: Picks, *, start: int, missing: int) -> Picks | None:
        if not missing:
            return self._solve(step + 1, picks)
        for position in range(start, len(way.choices)):
            pick = self._pick(way, way.choices[position], picks)
            if pick is not None:
                solution = self._fill(step, way, (*picks, pick), start=position + 1, missing=missing - 1)
                if solution is not None:
                    return solution
            if way.everything:
                return None
        return None

    def _pick(self, way: Way, candidate: pools.Candidate, picks: Picks) -> Pick | None:
        """Return the device for the request, if it is possible in addition to the picks, or None."""
        self._attempts += 1
        if self._attempts > ATTEMPTS_LIMIT:
            raise TooManyAttempts
        if self._in_use(way, candidate, picks) or not self._is_selected(way, candidate):
            return None
        shared = [pick for pick in picks if pick.candidate is candidate and pick.taken is not None]
        taken = self._takes(way, candidate, shared)
        if taken is None or not all(
            matching.is_tolerated(taint, way.ask.tolerations) for taint in candidate.device.taints
        ):
            return None
        named = [(pick.request, pick.candidate) for pick in picks if pick.claim == way.claim]
        rules = self._demands[way.claim].devices.constraints
        if not constraints.are_met(rules, named, (way.name, candidate)):
            if way.everything:
                raise AllocationError(
                    f"{self._where(way)}: cannot add device {'/'.join(candidate.id)} because a claim constraint "
                    "would not be satisfied"
                )
            return None
        kept = taken if candidate.device.allow_multiple_allocations else None
        return Pick(claim=way.claim, request=way.name, ask=way.ask, candidate=candidate, taken=kept)

    def _in_use(self, way: Way, candidate: pools.Candidate, picks: Picks) -> bool:
        holders = {pick.claim for pick in picks if pick.candidate is candidate and pick.taken is None}
        if way.ask.admin_access:
            return way.claim in holders
        return bool(holders) or candidate.id in self._used.whole

    def _takes(
        self, way: Way, candidate: pools.Candidate, shared: Sequence[Pick]
    ) -> Mapping[str, str] | None:
        try:
            taken = capacity.takes(candidate.device, way.ask.capacity)
            if taken is None:
                return None
            used: Mapping[str, Decimal] = self._used.shared.get(candidate.id, {})
            for pick in shared:
                used = capacity.add_amounts(used, capacity.numbers(pick.taken or {}))
            return taken if capacity.fits(candidate.device, taken, used=used) else None
        except ValueError as error:
            raise AllocationError(f"{self._where(way)}: device {'/'.join(candidate.id)}: {error}") from error

    def _ways(self, number: int, request: objects.Request) -> tuple[Way, ...]:
        if request.exactly is not None:
            return (self._way(number, request.name, request.exactly),)
        return tuple(self._way(number, f"{request.name}/{ask.name}", ask) for ask in request.first_available)

    def _way(self, number: int, name: str, ask: objects.Ask) -> Way:
        where = f"claim {self._demands[number].name}, request {name.rpartition('/')[2]}"
        device_class = self._classes.get(ask.device_class_name)
        if device_class is None:
            raise AllocationError(f"{where}: could not retrieve device class {ask.device_class_name}")
        wanted = (*device_class.spec.selectors, *ask.selectors)
        expressions = tuple(selector.cel.expression for selector in wanted if selector.cel is not None)
        if ask.allocation_mode not in ("ExactCount", "All"):
            raise AllocationError(f"{where}: unsupported count mode {ask.allocation_mode}")
        way = Way(
            claim=number,
            name=name,
            ask=ask,
            expressions=expressions,
            count=ask.count,
            choices=self._line if ask.admin_access else self._free,
            everything=False,
        )
        if ask.allocation_mode == "ExactCount":
            return way
        choices = tuple(self._all(way))
        return Way(
            claim=number,
            name=name,
            ask=ask,
            expressions=expressions,
            count=len(choices),
            choices=choices,
            everything=True,
        )

    def _all(self, way: Way) -> Iterator[pools.Candidate]:
        for pool in self._supply:
            if pool.problem or not pool.complete:
                state = "invalid" if pool.complete else "being updated"
                raise AllocationError(
                    f"{self._where(way)}: asks for all devices, but resource pool {pool.name} is currently {state}"
                )
        for candidate in self._line:
            if self._is_selected(way, candidate) and self._takes(way, candidate, ()) is not None:
                yield candidate

    def _is_selected(self, way: Way, candidate: pools.Candidate) -> bool:
        try:
            return all(_matches(expression, candidate) for expression in way.expressions) and pools.reaches(
                candidate, self._node
            )
        except selectors.SelectorError as error:
            name = "/".join(candidate.id)
            raise AllocationError(f"{self._where(way)}: selector on device {name}: CEL {error}") from error

    def _where(self, way: Way) -> str:
        return f"claim {self._demands[way.claim].name}, request {way.name.rpartition('/')[2]}"

    def _check_sizes(self) -> None:
        for number, demand in enumerate(self._demands):
            least = sum(
                min((way.count for way in step), default=0)
                for step in self._steps
                if step and step[0].claim == number
            )
            if least > RESULTS_LIMIT:
                raise AllocationError(
                    f"claim {demand.name}: number of requested devices {least} exceeds the claim limit of {RESULTS_LIMIT}"
                )


@functools.lru_cache(maxsize=65_536)
def _matches(expression: str, candidate: pools.Candidate) -> bool:
    return selectors.matches(expression, candidate.id[0], candidate.device)
