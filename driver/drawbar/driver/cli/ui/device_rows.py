"""The devices of the page, kept current object by object; pure.

A device's row depends only on objects that name its pool, on the policy of its Fabric, and on the DeviceTaintRules. After a
change, `status.building` rebuilds the pools that the object names or named. The result equals the tree of the whole cluster.
"""

from collections import defaultdict
from collections.abc import Mapping

from drawbar.driver import naturalorder
from drawbar.driver.api import attachments, claims, fabrics, slices, taintrules
from drawbar.driver.cli.status import building, categories, claim_entries, observed, tree

Part = slices.ResourceSlice | attachments.DeviceAttachment | claims.ResourceClaim
Name = tuple[type, str, str]


class Row(tree.Node, frozen=True):
    """A device and its place; fabric and enclosure are empty for a device of a node's own pool.

    Attributes:
        category: see `status.categories`.
    """

    fabric: str
    enclosure: str
    device: tree.Device
    category: str

    @property
    def key(self) -> str:
        """Return pool and name, joined by a space; no name has one."""
        return f"{self.device.pool} {self.device.name}"


class Rows:
    """The rows of a driver's devices, and the claims without devices."""

    def __init__(self, driver: str) -> None:
        self._driver = driver
        self._parts: dict[str, dict[Name, Part]] = defaultdict(dict)
        self._by_pool: dict[str, dict[str, Row]] = {}
        self._pending: dict[Name, claims.ResourceClaim] = {}
        self._pods: dict[tuple[str, str], observed.UnscheduledPod] = {}
        self._rules: dict[str, taintrules.DeviceTaintRule] = {}
        self._fabrics: dict[str, fabrics.Fabric] = {}
        self._touched: set[str] = set()

    def change(self, old: object | None, new: object | None) -> None:
        """Take in an object before and after a change; None means that it does not exist. Ignore kinds without rows."""
        for item, is_there in ((old, False), (new, True)):
            if isinstance(item, taintrules.DeviceTaintRule):
                self._change_rule(item, is_there=is_there)
            elif isinstance(item, observed.UnscheduledPod):
                self._change_pod(item, is_there=is_there)
            elif isinstance(item, slices.ResourceSlice | attachments.DeviceAttachment | claims.ResourceClaim):
                self._change_part(item, is_there=is_there)
        if isinstance(old, fabrics.Fabric):
            self._change_fabric(old, new if isinstance(new, fabrics.Fabric) else None)
        elif isinstance(new, fabrics.Fabric):
            self._change_fabric(None, new)

    def _change_fabric(self, old: fabrics.Fabric | None, new: fabrics.Fabric | None) -> None:
        """Take in a Fabric; its policy has the deadlines of its devices."""
        if old is not None:
            self._fabrics.pop(old.metadata.name, None)
        if new is not None:
            self._fabrics[new.metadata.name] = new
        if old is None or new is None or old.spec.policy != new.spec.policy:
            self._touched |= self._parts.keys()

    def _change_rule(self, rule: taintrules.DeviceTaintRule, *, is_there: bool) -> None:
        selector = rule.spec.device_selector
        if selector is None or selector.driver not in (None, self._driver):
            return
        self._rules.pop(rule.metadata.name, None)
        if is_there:
            self._rules[rule.metadata.name] = rule
        self._touched |= self._parts.keys() if selector.pool is None else {selector.pool}

    def _change_pod(self, pod: observed.UnscheduledPod, *, is_there: bool) -> None:
        key = (pod.metadata.namespace, pod.metadata.name)
        self._pods.pop(key, None)
        if is_there:
            self._pods[key] = pod

    def _change_part(self, item: Part, *, is_there: bool) -> None:
        name = (type(item), item.metadata.namespace, item.metadata.name)
        for pool in self._pools(item):
            self._touched.add(pool)
            if is_there:
                self._parts[pool][name] = item
            else:
                self._parts[pool].pop(name, None)
        if isinstance(item, claims.ResourceClaim):
            self._pending.pop(name, None)
            if is_there and item.status.allocation is None:
                self._pending[name] = item

    def _pools(self, item: Part) -> frozenset[str]:
        if isinstance(item, claims.ResourceClaim):
            allocation = item.status.allocation
            results = allocation.devices.results if allocation is not None else ()
            return frozenset(result.pool for result in results if result.driver == self._driver)
        if item.spec.driver != self._driver:
            return frozenset()
        return frozenset({item.spec.pool.name if isinstance(item, slices.ResourceSlice) else item.spec.pool})

    def current(self) -> Mapping[str, Row]:
        """Return the rows by key, in the natural order of pool and name. An unchanged row is the same object as before."""
        for pool in self._touched:
            before = self._by_pool.pop(pool, {})
            built = {row.key: row for row in self._build(pool)}
            if built:
                self._by_pool[pool] = {
                    key: before[key] if before.get(key) == row else row for key, row in built.items()
                }
            elif not self._parts[pool]:
                del self._parts[pool]
        self._touched.clear()
        return {
            key: row
            for pool in sorted(self._by_pool, key=naturalorder.sort_key)
            for key, row in self._by_pool[pool].items()
        }

    def _build(self, pool: str) -> tuple[Row, ...]:
        parts = tuple(self._parts[pool].values())
        built = building.build(
            observed.Cluster(
                driver=self._driver,
                fabrics=tuple(self._fabrics.values()),
                slices=tuple(part for part in parts if isinstance(part, slices.ResourceSlice)),
                attachments=tuple(part for part in parts if isinstance(part, attachments.DeviceAttachment)),
                claims=tuple(part for part in parts if isinstance(part, claims.ResourceClaim)),
                rules=tuple(rule for _, rule in sorted(self._rules.items())),
            )
        )
        # A claim may also have devices of other pools.
        return tuple(row for row in from_tree(built) if row.device.pool == pool)

    def list_pending(self, *, are_pods_known: bool = True) -> tuple[tree.Claim, ...]:
        """Return all claims without a device, of any driver; see `claim_entries.list_pending`."""
        return claim_entries.list_pending(
            self._pending.values(), self._pods.values(), self._driver, are_pods_known=are_pods_known
        )


def describe_row(device: tree.Device, *, fabric: str = "", enclosure: str = "") -> Row:
    """Return the row of a device."""
    return Row(fabric=fabric, enclosure=enclosure, device=device, category=categories.judge(device))


def from_tree(shown: tree.Tree) -> tuple[Row, ...]:
    """Return the rows of a tree."""
    of_fabrics = tuple(
        describe_row(device, fabric=fabric.name, enclosure=enclosure.name)
        for fabric in shown.fabrics
        for enclosure in fabric.enclosures
        for device in enclosure.devices
    )
    own = tuple(describe_row(device) for local in shown.local for device in local.devices)
    return of_fabrics + own
