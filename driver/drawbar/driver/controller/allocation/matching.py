"""Which free devices meet the requests of a claim, or of all claims of a pod, on one node; pure.

`Inventory` is what was observed. `Stock` is what is left of it in one round of decisions: devices that are given in this
round, or kept for a pod that waits, are removed, so that no device, port or place under a rule is promised twice. `Search`
looks at all requests of a pod together, since each of them alone may take a device that another one needs. Devices that
are alike for these requests are tried once, so the search stays small; where it does not (many requests over many
kinds), it ends after `STEPS_MAX` steps without an answer.

Invariant: a device is given at most once in a round, and never one that is attached, connected or being detached.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from drawbar.driver.api import fabrics, slices
from drawbar.driver.controller import names, policies
from drawbar.driver.slices import encoding

ANY = ""
STEPS_MAX = 5000


class Toleration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Taints that a request tolerates, as AllocationParameters have them.

    Attributes:
        key: of the taint, with its domain; `ANY` for all.
        value: of the taint; None for any.
        effect: of the taint; `ANY` for all.
    """

    key: str = ANY
    value: str | None = None
    effect: str = ANY

    def covers(self, taint: slices.Taint) -> bool:
        """Return whether it tolerates the taint."""
        return (
            self.key in (ANY, taint.key)
            and self.value in (None, taint.value)
            and self.effect in (ANY, taint.effect)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Devices of one kind; all that it names must hold.

    Attributes:
        name: within its claim.
        device_class: one of `drawbar.fabric.contract.DeviceClass`, or `ANY`.
        model: as the fabric manager reports it, or `ANY`.
        selectors: CEL expressions, all of which must be true.
        optional: all of `count` devices, or none.
    """

    name: str
    count: int = 1
    device_class: str = ANY
    model: str = ANY
    selectors: tuple[str, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    optional: bool = False

    def tolerates(self, device_taints: Iterable[slices.Taint]) -> bool:
        """Return whether no taint keeps the device from this request."""
        return all(
            taint.effect == encoding.NO_EFFECT
            or any(toleration.covers(taint) for toleration in self.tolerations)
            for taint in device_taints
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One fabric device.

    Attributes:
        shown: as a ResourceSlice would show it, with its taints.
        free: neither attached, nor being attached or detached.
    """

    key: names.DeviceKey
    pool: str
    shown: slices.Device
    free: bool

    @property
    def device_class(self) -> str:
        """One of `drawbar.fabric.contract.DeviceClass`."""
        return self._text("class")

    @property
    def model(self) -> str:
        """As the fabric manager reports it; empty where it does not."""
        return self._text("model")

    def _text(self, name: str) -> str:
        attribute = self.shown.attributes.get(name)
        return (attribute.string or "") if attribute is not None else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """What a fabric can do for the nodes.

    Attributes:
        hosts: by node name the host's id, of nodes that can be given devices at all.
        ports: by node name how many more devices it has room for; None where the fabric sets no limit.
        rules: what one node may have of a model.
        models: by node name how many devices of which model it has.
        refused: by node name the devices that its host does not reach, or that the fabric manager refused there as incompatible.
    """

    name: str
    hosts: Mapping[str, str]
    ports: Mapping[str, int | None] = field(default_factory=dict)
    rules: tuple[fabrics.ModelRule, ...] = ()
    models: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    refused: Mapping[str, frozenset[names.DeviceKey]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """All fabrics and their devices."""

    fabrics: Mapping[str, Fabric] = field(default_factory=dict)
    devices: Mapping[names.DeviceKey, Device] = field(default_factory=dict)


Judge = Callable[[Device, str], bool]
"""Whether a device meets a CEL expression."""

Given = tuple[tuple[names.DeviceKey, ...], ...]
"""For each request, in their order, its devices."""


class Stock:
    """What is left of an inventory in this round.

    Attributes:
        left: the devices that can still be given.
    """

    def __init__(self, inventory: Inventory, judge: Judge) -> None:
        self._inventory = inventory
        self._judge = judge
        self.left = {key for key, device in inventory.devices.items() if device.free}
        self._accepted: dict[Request, frozenset[names.DeviceKey]] = {}
        self._ports: Counter[tuple[str, str]] = Counter()
        self._models: dict[tuple[str, str], Counter[str]] = {}

    def device(self, key: names.DeviceKey) -> Device:
        """The device of that key."""
        return self._inventory.devices[key]

    def host(self, fabric: str, node: str) -> str:
        """The fabric's id of the node."""
        return self._inventory.fabrics[fabric].hosts[node]

    def accepted(self, request: Request) -> frozenset[names.DeviceKey]:
        """Return the devices that were free when the round began and meet the request."""
        if request not in self._accepted:
            devices = self._inventory.devices.values()
            self._accepted[request] = frozenset(
                device.key for device in devices if device.free and self._meets(request, device)
            )
        return self._accepted[request]

    def _meets(self, request: Request, device: Device) -> bool:
        return (
            request.device_class in (ANY, device.device_class)
            and request.model in (ANY, device.model)
            and request.tolerates(device.shown.taints)
            and all(self._judge(device, expression) for expression in request.selectors)
        )

    def room(self, node: str, most: int) -> tuple[tuple[str, int], ...]:
        """Return by fabric how many more devices the node can take, at most `most`; equal for nodes that are alike."""
        room = []
        for fabric in self._inventory.fabrics.values():
            if node in fabric.hosts:
                ports = fabric.ports.get(node)
                left = most if ports is None else min(most, ports - self._ports[fabric.name, node])
                if left > 0:
                    room.append((fabric.name, left))
        return tuple(room)

    def has_rules(self, fabric: str) -> bool:
        """Return whether the fabric restricts what one node may have."""
        return bool(self._inventory.fabrics[fabric].rules)

    def models(self, fabric: str, node: str) -> Counter[str] | None:
        """Return how many devices of which model the node has by now; None where the fabric has no rules for that."""
        if not self.has_rules(fabric):
            return None
        models = Counter(self._inventory.fabrics[fabric].models.get(node, {}))
        models.update(self._models.get((fabric, node), {}))
        return models

    def allows(self, fabric: str, model: str, on_node: Mapping[str, int], node: str) -> bool:
        """Return whether the fabric's rules allow one more device of the model beside those on the node."""
        return policies.forbids(self._inventory.fabrics[fabric].rules, model, on_node, node) is None

    def refused(self, node: str) -> frozenset[names.DeviceKey]:
        """Return the devices that cannot go to the node."""
        fabrics_of = self._inventory.fabrics.values()
        return frozenset[names.DeviceKey]().union(*(fabric.refused.get(node, ()) for fabric in fabrics_of))

    def keep(self, keys: tuple[names.DeviceKey, ...]) -> None:
        """Remove devices that a pod waits for, or that an allocation still names."""
        self.left.difference_update(keys)

    def give(self, keys: tuple[names.DeviceKey, ...], node: str) -> None:
        """Remove devices that the node gets, with the ports that they take."""
        self.keep(keys)
        for key in keys:
            self._ports[key.fabric, node] += 1
            self._models.setdefault((key.fabric, node), Counter())[self.device(key).model] += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """Devices that are alike: of one fabric and model, and accepted by the same requests."""

    fabric: str
    model: str
    accepted: tuple[bool, ...]


class Search:
    """The requests of one pod against what is left at its creation; what is removed later is not seen.

    Attributes:
        hopeless: no node can meet the requests, since too few devices are left.
    """

    def __init__(self, stock: Stock, requests: tuple[Request, ...]) -> None:
        self._stock = stock
        self._requests = requests
        self._devices = sum(request.count for request in requests)
        self._kinds: dict[_Kind, list[names.DeviceKey]] = {}
        self._results: dict[object, dict[_Kind, list[int]] | None] = {}
        accepted = [stock.accepted(request) & stock.left for request in requests]
        self.hopeless = any(
            len(keys) < request.count for request, keys in zip(requests, accepted, strict=True)
        )
        self._slots: tuple[int, ...] = ()
        # A claim may ask for any number.
        if self.hopeless:
            return
        # The request with the fewest candidates first.
        order = sorted(range(len(requests)), key=lambda index: len(accepted[index]))
        self._slots = tuple(index for index in order for _ in range(requests[index].count))
        candidates = frozenset[names.DeviceKey]().union(*accepted)
        for key in sorted(candidates, key=lambda key: (key.fabric, key.device)):
            kind = _Kind(
                fabric=key.fabric,
                model=stock.device(key).model,
                accepted=tuple(key in keys for keys in accepted),
            )
            self._kinds.setdefault(kind, []).append(key)

    def on(self, node: str) -> Given | None:
        """Return the devices for each request on that node; None if it cannot have them all."""
        if self.hopeless:
            return None
        room = self._stock.room(node, self._devices)
        has_rules = any(self._stock.has_rules(fabric) for fabric, _ in room)
        refused = self._stock.refused(node)
        kinds = {kind: [key for key in keys if key not in refused] for kind, keys in self._kinds.items()}
        alike = (room, node if has_rules else "", refused)
        if alike not in self._results:
            left = dict(room)
            models = {fabric: self._stock.models(fabric, node) for fabric in left}
            numbers = {kind: len(keys) for kind, keys in kinds.items() if kind.fabric in left}
            self._results[alike] = _NodeSearch(self._stock, node, left, models, numbers).fill(self._slots)
        taken = self._results[alike]
        if taken is None:
            return None
        given: list[list[names.DeviceKey]] = [[] for _ in self._requests]
        for kind, indices in taken.items():
            for key, index in zip(kinds[kind], indices, strict=False):
                given[index].append(key)
        return tuple(tuple(keys) for keys in given)


@dataclass(slots=True)
class _NodeSearch:
    """The search on one node.

    Attributes:
        room: by fabric, for how many more devices.
        models: by fabric what the node has of which model; None without rules.
        numbers: of each kind, how many devices are left.
    """

    stock: Stock
    node: str
    room: dict[str, int]
    models: Mapping[str, Counter[str] | None]
    numbers: Mapping[_Kind, int]
    taken: dict[_Kind, list[int]] = field(default_factory=dict)
    steps: int = 0

    def fill(self, slots: tuple[int, ...]) -> dict[_Kind, list[int]] | None:
        """Return by kind the requests, by their index, that take a device of it; None if they do not all get theirs."""
        chosen: list[_Kind] = []
        # For each slot that has a kind, and for the next one: the kinds that were not tried yet.
        untried = [iter(self.numbers)]
        while len(chosen) < len(slots):
            index = slots[len(chosen)]
            kind = self._next(index, untried[-1])
            if self.steps > STEPS_MAX:
                return None
            if kind is not None:
                self.taken.setdefault(kind, []).append(index)
                self._count(kind, 1)
                chosen.append(kind)
                untried.append(iter(self.numbers))
                continue
            untried.pop()
            if not chosen:
                return None
            last = chosen.pop()
            self.taken[last].pop()
            self._count(last, -1)
        return self.taken

    def _next(self, index: int, untried: Iterator[_Kind]) -> _Kind | None:
        """Return the next kind of which the request of that index can take one more device, or None."""
        for kind in untried:
            self.steps += 1
            if self.steps > STEPS_MAX:
                return None
            is_left = len(self.taken.get(kind, ())) < self.numbers[kind]
            if kind.accepted[index] and is_left and self._fits(kind):
                return kind
        return None

    def _fits(self, kind: _Kind) -> bool:
        models = self.models[kind.fabric]
        return self.room[kind.fabric] > 0 and (
            models is None or self.stock.allows(kind.fabric, kind.model, models, self.node)
        )

    def _count(self, kind: _Kind, number: int) -> None:
        self.room[kind.fabric] -= number
        models = self.models[kind.fabric]
        if models is not None:
            models[kind.model] += number
