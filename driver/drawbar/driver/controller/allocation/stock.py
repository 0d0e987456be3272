"""What there is to give in one round of decisions, and what is left of it; pure.

`Inventory` is what was observed. `Stock` is the same with a pencil: what is given in this round, or kept for a pod that
waits, is crossed out, so that no device, port or place under a rule is promised twice.

Invariant: a device is given at most once in a round, and never one that is attached, connected or being detached.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from drawbar.driver.api import fabrics, slices
from drawbar.driver.controller import names, policies
from drawbar.driver.controller.allocation import requests


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One fabric device.

    Attributes:
        shown: as a ResourceSlice would show it, with its taints.
        free: nobody has it, and it is not on its way from anybody.
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
        """As the fabric manager tells it; empty if it is not told."""
        return self._text("model")

    def _text(self, name: str) -> str:
        found = self.shown.attributes.get(name)
        return (found.string or "") if found is not None else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """What a fabric can do for the nodes.

    Attributes:
        hosts: by node name the host's id, of nodes that can be given devices at all.
        ports: by node name how many more devices it has room for; None where the fabric sets no limit.
        rules: what one node may have of a model.
        models: by node name how many devices of which model it has.
    """

    name: str
    hosts: Mapping[str, str]
    ports: Mapping[str, int | None] = field(default_factory=dict)
    rules: tuple[fabrics.ModelRule, ...] = ()
    models: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """All fabrics and their devices."""

    fabrics: Mapping[str, Fabric] = field(default_factory=dict)
    devices: Mapping[names.DeviceKey, Device] = field(default_factory=dict)


Judge = Callable[[Device, str], bool]
"""Whether a device meets a CEL expression."""


class Stock:
    """What is left in this round."""

    def __init__(self, inventory: Inventory, judge: Judge) -> None:
        self._inventory = inventory
        self._judge = judge
        self.left = {key for key, device in inventory.devices.items() if device.free}
        self._accepted: dict[requests.Request, frozenset[names.DeviceKey]] = {}
        self._ports: Counter[tuple[str, str]] = Counter()
        self._models: dict[tuple[str, str], Counter[str]] = {}

    def device(self, key: names.DeviceKey) -> Device:
        """The device of that key."""
        return self._inventory.devices[key]

    def accepted(self, request: requests.Request) -> frozenset[names.DeviceKey]:
        """The devices that were free when the round began and meet the request."""
        known = self._accepted.get(request)
        if known is None:
            found = self._inventory.devices.values()
            known = frozenset(one.key for one in found if one.free and self._meets(request, one))
            self._accepted[request] = known
        return known

    def _meets(self, request: requests.Request, device: Device) -> bool:
        return (
            request.device_class in (requests.ANY, device.device_class)
            and request.model in (requests.ANY, device.model)
            and requests.tolerated(request, device.shown.taints)
            and all(self._judge(device, expression) for expression in request.selectors)
        )

    def room(self, node: str, most: int) -> tuple[tuple[str, int], ...]:
        """By fabric how many more devices the node can take of it, at most `most`; equal for nodes that are alike."""
        found = []
        for fabric in self._inventory.fabrics.values():
            if node not in fabric.hosts:
                continue
            ports = fabric.ports.get(node)
            left = most if ports is None else min(most, ports - self._ports[fabric.name, node])
            if left > 0:
                found.append((fabric.name, left))
        return tuple(found)

    def has_rules(self, fabric: str) -> bool:
        """Whether the fabric restricts what one node may have."""
        return bool(self._inventory.fabrics[fabric].rules)

    def models(self, fabric: str, node: str) -> Counter[str]:
        """What the node has of the fabric, with what it was given in this round."""
        known = Counter(self._inventory.fabrics[fabric].models.get(node, {}))
        known.update(self._models.get((fabric, node), {}))
        return known

    def allows(self, fabric: str, model: str, on_node: Mapping[str, int], node: str) -> bool:
        """Whether the fabric's rules allow one more device of the model beside what the node has."""
        return policies.forbids(self._inventory.fabrics[fabric].rules, model, on_node, node) is None

    def host(self, fabric: str, node: str) -> str:
        """The fabric's name of the node."""
        return self._inventory.fabrics[fabric].hosts[node]

    def keep(self, keys: tuple[names.DeviceKey, ...]) -> None:
        """Crosses devices out: somebody waits for them, or still has them on paper."""
        self.left.difference_update(keys)

    def give(self, keys: tuple[names.DeviceKey, ...], node: str) -> None:
        """Crosses devices out that the node gets, with the ports that they take."""
        self.keep(keys)
        for key in keys:
            self._ports[key.fabric, node] += 1
            self._models.setdefault((key.fabric, node), Counter())[self.device(key).model] += 1
