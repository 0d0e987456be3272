"""Which free devices serve a set of requests on one node, found exactly; pure.

All requests of a pod are looked at together, since each of them alone may find a device that another one needs. Devices
that are alike for these requests are tried once, so the search stays small; where it does not (many requests over many
kinds), it ends after `STEPS_MAX` steps with what it has: no answer.
"""

from collections import Counter
from dataclasses import dataclass

from drawbar.driver.controller import names
from drawbar.driver.controller.allocation import requests, stock

STEPS_MAX = 5000

Given = tuple[tuple[names.DeviceKey, ...], ...]
"""For each request, in their order, its devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """Devices that are alike: of one fabric and model, and accepted by the same requests."""

    fabric: str
    model: str
    accepted: tuple[bool, ...]


class Search:
    """The requests of one pod against what is left now. For one round: what is crossed out later is not seen."""

    def __init__(self, left: stock.Stock, wanted: tuple[requests.Request, ...]) -> None:
        self._stock = left
        self._wanted = wanted
        self.devices = sum(request.count for request in wanted)
        self._kinds: dict[_Kind, list[names.DeviceKey]] = {}
        self._known: dict[object, dict[_Kind, list[int]] | None] = {}
        accepted = [left.accepted(request) & left.left for request in wanted]
        self.hopeless = any(
            len(found) < request.count for request, found in zip(wanted, accepted, strict=True)
        )
        # The pickiest request first: it has the fewest ways out.
        self._order = sorted(range(len(wanted)), key=lambda index: len(accepted[index]))
        if self.hopeless:
            return
        for key in sorted(frozenset[names.DeviceKey]().union(*accepted), key=_order):
            kind = _Kind(
                fabric=key.fabric,
                model=left.device(key).model,
                accepted=tuple(key in found for found in accepted),
            )
            self._kinds.setdefault(kind, []).append(key)

    def on(self, node: str) -> Given | None:
        """The devices for each request on that node; None if they cannot all be had there."""
        if self.hopeless:
            return None
        room = self._stock.room(node, self.devices)
        ruled = any(self._stock.has_rules(fabric) for fabric, _ in room)
        alike: object = (room, node) if ruled else room
        if alike not in self._known:
            self._known[alike] = _Node(self._stock, self._kinds, self._slots(), node, dict(room)).found()
        found = self._known[alike]
        return None if found is None else self._picked(found)

    def _slots(self) -> tuple[int, ...]:
        return tuple(index for index in self._order for _ in range(self._wanted[index].count))

    def _picked(self, found: dict[_Kind, list[int]]) -> Given:
        given: list[list[names.DeviceKey]] = [[] for _ in self._wanted]
        for kind, takers in found.items():
            for key, taker in zip(self._kinds[kind], takers, strict=False):
                given[taker].append(key)
        return tuple(tuple(one) for one in given)


class _Node:
    """The search on one node."""

    def __init__(
        self,
        left: stock.Stock,
        kinds: dict[_Kind, list[names.DeviceKey]],
        slots: tuple[int, ...],
        node: str,
        room: dict[str, int],
    ) -> None:
        self._stock = left
        self._node = node
        self._slots = slots
        self._kinds = {kind: len(keys) for kind, keys in kinds.items() if kind.fabric in room}
        self._room = room
        self._models = {fabric: left.models(fabric, node) for fabric in room if left.has_rules(fabric)}
        self._taken: dict[_Kind, list[int]] = {}
        self._used: Counter[str] = Counter()
        self._steps = 0

    def found(self) -> dict[_Kind, list[int]] | None:
        return {kind: takers for kind, takers in self._taken.items() if takers} if self._fill(0) else None

    def _fill(self, position: int) -> bool:
        if position == len(self._slots):
            return True
        taker = self._slots[position]
        for kind, number in self._kinds.items():
            self._steps += 1
            if self._steps > STEPS_MAX:
                return False
            taken = self._taken.setdefault(kind, [])
            if not kind.accepted[taker] or len(taken) >= number or not self._fits(kind):
                continue
            taken.append(taker)
            self._count(kind, 1)
            if self._fill(position + 1):
                return True
            taken.pop()
            self._count(kind, -1)
        return False

    def _fits(self, kind: _Kind) -> bool:
        if self._used[kind.fabric] >= self._room[kind.fabric]:
            return False
        models = self._models.get(kind.fabric)
        return models is None or self._stock.allows(kind.fabric, kind.model, models, self._node)

    def _count(self, kind: _Kind, number: int) -> None:
        self._used[kind.fabric] += number
        if kind.fabric in self._models:
            self._models[kind.fabric][kind.model] += number


def _order(key: names.DeviceKey) -> tuple[str, str]:
    return key.fabric, key.device
