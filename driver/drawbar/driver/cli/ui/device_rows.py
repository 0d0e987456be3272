"""The devices of the page, kept current object by object; pure.

What is shown of a device depends on objects that name its pool alone. So after a change only the pools are built anew that
the object names or named, by `status.tree`; the result is the same as that of building the tree of the whole cluster.
"""

from collections import defaultdict
from collections.abc import Mapping

from drawbar.driver.api import attachments, claims, slices
from drawbar.driver.cli.status import observed, tree

CLAIMS = 100
"""So many claims that wait for the scheduler are shown."""

Part = slices.ResourceSlice | attachments.DeviceAttachment | claims.ResourceClaim
Name = tuple[type, str, str]


class Row(tree.Node, frozen=True):
    """A device with its place; both parts of that are empty for a device of a node's own pool."""

    fabric: str
    enclosure: str
    device: tree.Device

    @property
    def key(self) -> str:
        """Pool and name; no name has a space."""
        return f"{self.device.pool} {self.device.name}"


class Rows:
    """The rows of all devices of a driver, and the claims that have no device yet."""

    def __init__(self, driver: str) -> None:
        self._driver = driver
        self._parts: dict[str, dict[Name, Part]] = defaultdict(dict)
        self._by_pool: dict[str, dict[str, Row]] = {}
        self._pending: dict[Name, claims.ResourceClaim] = {}
        self._touched: set[str] = set()

    def change(self, old: object | None, new: object | None) -> None:
        """Note an object as it was and as it is; None where there was or is none. Kinds that make no row are passed over."""
        for item, is_there in ((old, False), (new, True)):
            if not isinstance(
                item, slices.ResourceSlice | attachments.DeviceAttachment | claims.ResourceClaim
            ):
                continue
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
        """Return the rows by key, by pool and name. A row that is equal to the one before is the same object."""
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
        return {key: row for pool in sorted(self._by_pool) for key, row in self._by_pool[pool].items()}

    def _build(self, pool: str) -> tuple[Row, ...]:
        parts = tuple(self._parts[pool].values())
        built = tree.build(
            observed.Cluster(
                driver=self._driver,
                slices=tuple(part for part in parts if isinstance(part, slices.ResourceSlice)),
                attachments=tuple(part for part in parts if isinstance(part, attachments.DeviceAttachment)),
                claims=tuple(part for part in parts if isinstance(part, claims.ResourceClaim)),
            )
        )
        # A claim may have devices of other pools, too.
        return tuple(row for row in from_tree(built) if row.device.pool == pool)

    def pending(self) -> tuple[tree.Claim, ...]:
        """Return the claims that wait for the scheduler longest, of any driver: what they ask for is not read."""
        oldest = sorted(
            self._pending.values(),
            key=lambda claim: (
                claim.metadata.creation_timestamp or "",
                claim.metadata.namespace,
                claim.metadata.name,
            ),
        )
        return tree.build(observed.Cluster(driver=self._driver, wanted=tuple(oldest[:CLAIMS]))).claims


def from_tree(shown: tree.Tree) -> tuple[Row, ...]:
    """Return the rows of a tree."""
    of_fabrics = tuple(
        Row(fabric=fabric.name, enclosure=enclosure.name, device=device)
        for fabric in shown.fabrics
        for enclosure in fabric.enclosures
        for device in enclosure.devices
    )
    own = tuple(
        Row(fabric="", enclosure="", device=device) for local in shown.local for device in local.devices
    )
    return of_fabrics + own
