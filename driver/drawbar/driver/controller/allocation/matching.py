"""The free devices that meet the requests of a claim, or of all claims of a pod, on one node; pure.

`Inventory` is the observed state. `Stock` is the rest of it in one round of decisions. Devices that are given in this
round, or kept for a waiting pod, are removed. So no device, port or allowance of a rule is promised twice. `Search`
looks at all requests of a pod together, since one request may take a device that another one needs. Devices that are
equal for these requests are tried once, so the search stays small. If it does not (many requests over many kinds), it
ends after `STEPS_MAX` steps without an answer.

Invariant: a device is given at most once in a round, and never while it is attached, connected or being detached.
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
    """Taints that a request tolerates, in the terms of AllocationParameters.

    Attributes:
        key: the taint's key with its domain; `ANY` for all.
        value: the taint's value; None for any.
        effect: the taint's effect; `ANY` for all.
    """

    key: str = ANY
    value: str | None = None
    effect: str = ANY

    def covers(self, taint: slices.Taint) -> bool:
        """Return whether the toleration covers the taint."""
        return (
            self.key in (ANY, taint.key)
            and self.value in (None, taint.value)
            and self.effect in (ANY, taint.effect)
        )


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request for devices of one kind; all its conditions must hold.

    Attributes:
        name: the name within its claim.
        count: the number of devices.
        device_class: one of `drawbar.fabric.contract.DeviceClass`, or `ANY`.
        model: the model in the fabric manager's words, or `ANY`.
        selectors: CEL expressions; all must be true.
        optional: whether the request accepts none in place of all `count` devices.
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


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """One fabric device.

    Attributes:
        shown: the device as in a ResourceSlice, with its taints.
        free: whether it is neither attached, nor being attached or detached.
    """

    key: names.DeviceKey
    pool: str
    shown: slices.Device
    free: bool

    @property
    def device_class(self) -> str:
        """Return the class: one of `drawbar.fabric.contract.DeviceClass`."""
        return self._text("class")

    @property
    def model(self) -> str:
        """Return the model in the fabric manager's words; empty if unknown."""
        return self._text("model")

    def _text(self, name: str) -> str:
        attribute = self.shown.attributes.get(name)
        return (attribute.string or "") if attribute is not None else ""


class Fabric(msgspec.Struct, frozen=True, kw_only=True):
    """A fabric's offer to the nodes.

    Attributes:
        hosts: by node name, the host's id; only nodes that can be given devices.
        ports: by node name, the number of further devices that fit; None if the fabric sets no limit.
        rules: the limits for a model on one node.
        models: by node name, the number of its devices of each model.
        refused: by node name, the devices that its host does not reach, or that the fabric manager refused there.
    """

    name: str
    hosts: Mapping[str, str]
    ports: Mapping[str, int | None] = msgspec.field(default_factory=dict)
    rules: tuple[fabrics.ModelRule, ...] = ()
    models: Mapping[str, Mapping[str, int]] = msgspec.field(default_factory=dict)
    refused: Mapping[str, frozenset[names.DeviceKey]] = msgspec.field(default_factory=dict)


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """All fabrics and their devices."""

    fabrics: Mapping[str, Fabric] = msgspec.field(default_factory=dict)
    devices: Mapping[names.DeviceKey, Device] = msgspec.field(default_factory=dict)


Judge = Callable[[Device, str], bool]
"""Whether a device meets a CEL expression."""

DevicesByRequest = tuple[tuple[names.DeviceKey, ...], ...]
"""The devices of each request, in the requests' order."""


class Stock:
    """The rest of an inventory in this round.

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
        """Return the device of that key."""
        return self._inventory.devices[key]

    def host(self, fabric: str, node: str) -> str:
        """Return the fabric's id of the node's host."""
        return self._inventory.fabrics[fabric].hosts[node]

    def find_matching(self, request: Request) -> frozenset[names.DeviceKey]:
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
        """Return, by fabric, how many more devices the node can take, at most `most`; equal for equivalent nodes."""
        room = []
        for fabric in self._inventory.fabrics.values():
            if node in fabric.hosts:
                ports = fabric.ports.get(node)
                left = most if ports is None else min(most, ports - self._ports[fabric.name, node])
                if left > 0:
                    room.append((fabric.name, left))
        return tuple(room)

    def has_rules(self, fabric: str) -> bool:
        """Return whether the fabric limits the models on one node."""
        return bool(self._inventory.fabrics[fabric].rules)

    def models(self, fabric: str, node: str) -> Counter[str] | None:
        """Return the node's present number of devices of each model, or None if the fabric has no rules."""
        if not self.has_rules(fabric):
            return None
        models = Counter(self._inventory.fabrics[fabric].models.get(node, {}))
        models.update(self._models.get((fabric, node), {}))
        return models

    def allows(self, fabric: str, model: str, on_node: Mapping[str, int], node: str) -> bool:
        """Return whether the fabric's rules allow one more device of the model on the node."""
        return policies.forbids(self._inventory.fabrics[fabric].rules, model, on_node, node) is None

    def find_unsuitable(self, node: str) -> frozenset[names.DeviceKey]:
        """Return the devices that cannot go to the node."""
        fabrics_of = self._inventory.fabrics.values()
        return frozenset[names.DeviceKey]().union(*(fabric.refused.get(node, ()) for fabric in fabrics_of))

    def keep(self, keys: tuple[names.DeviceKey, ...]) -> None:
        """Remove devices that a pod waits for, or that an allocation still names."""
        self.left.difference_update(keys)

    def give(self, keys: tuple[names.DeviceKey, ...], node: str) -> None:
        """Remove devices that the node gets, with their ports."""
        self.keep(keys)
        for key in keys:
            self._ports[key.fabric, node] += 1
            self._models.setdefault((key.fabric, node), Counter())[self.device(key).model] += 1


class _Kind(msgspec.Struct, frozen=True, kw_only=True):
    """Equivalent devices: of one fabric and model, and accepted by the same requests."""

    fabric: str
    model: str
    accepted: tuple[bool, ...]


class Search:
    """The search for one pod's requests in the stock at its creation; later removals are not seen.

    Attributes:
        hopeless: whether too few devices are left for any node.
    """

    def __init__(self, stock: Stock, requests: tuple[Request, ...]) -> None:
        self._stock = stock
        self._requests = requests
        self._devices = sum(request.count for request in requests)
        self._kinds: dict[_Kind, list[names.DeviceKey]] = {}
        self._results: dict[object, dict[_Kind, list[int]] | None] = {}
        accepted = [stock.find_matching(request) & stock.left for request in requests]
        self.hopeless = any(
            len(keys) < request.count for request, keys in zip(requests, accepted, strict=True)
        )
        self._slots: tuple[int, ...] = ()
        # A claim may ask for any number.
        if self.hopeless:
            return
        # The request with the fewest candidates comes first.
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

    def match_on(self, node: str) -> DevicesByRequest | None:
        """Return the devices for each request on that node, or None if the node cannot have them all."""
        if self.hopeless:
            return None
        room = self._stock.room(node, self._devices)
        has_rules = any(self._stock.has_rules(fabric) for fabric, _ in room)
        refused = self._stock.find_unsuitable(node)
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
        matched: list[list[names.DeviceKey]] = [[] for _ in self._requests]
        for kind, indices in taken.items():
            for key, index in zip(kinds[kind], indices, strict=False):
                matched[index].append(key)
        return tuple(tuple(keys) for keys in matched)


@dataclass(slots=True)
class _NodeSearch:
    """The search on one node.

    Attributes:
        room: by fabric, the number of further devices that fit.
        models: by fabric, the number of the node's devices of each model; None without rules.
        numbers: by kind, the number of remaining devices.
    """

    stock: Stock
    node: str
    room: dict[str, int]
    models: Mapping[str, Counter[str] | None]
    numbers: Mapping[_Kind, int]
    taken: dict[_Kind, list[int]] = field(default_factory=dict)
    steps: int = 0

    def fill(self, slots: tuple[int, ...]) -> dict[_Kind, list[int]] | None:
        """Return, by kind, the indexes of the requests that take its devices, or None if some request gets too few."""
        chosen: list[_Kind] = []
        # For each slot with a kind, and for the next one: the kinds that were not tried yet.
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
        """Return the next kind with one more device for the request of that index, or None."""
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
