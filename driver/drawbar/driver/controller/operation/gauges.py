"""What the controller has at any moment, read at each scrape: devices by state, attachments by phase, queues.

Only the leader shows the state of the cluster, so that the numbers of several controllers can be added up. A scrape
costs a walk over all attachments and fabric devices, and never a request.

A device is in exactly one state, the first of these that is true of it:

| state | means |
|---|---|
| `attached` | it has a DeviceAttachment: a claim's, an idle one's, or an operator's |
| `withdrawn` | the fabric lists it, and it is not published |
| `foreign` | somebody else attached it |
| `tainted` | it is free, and a taint keeps the scheduler away |
| `free` | it can be given out |
"""

import datetime
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from drawbar.driver.api import attachments, fabrics, meta, slices
from drawbar.driver.controller import names, outcomes
from drawbar.driver.controller.cluster import Cluster
from drawbar.driver.controller.operation import metrics
from drawbar.driver.controller.pools import causes
from drawbar.driver.kube import workers
from drawbar.driver.slices import encoding

ATTACHED = "attached"
WITHDRAWN = "withdrawn"
FOREIGN = "foreign"
TAINTED = "tainted"
FREE = "free"
STATES = (FREE, ATTACHED, TAINTED, FOREIGN, WITHDRAWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What the slices of a fabric say; it changes only when they do.

    Attributes:
        published: names of all devices in them.
        foreign: names of those that somebody else attached.
        tainted: names of the others that the scheduler keeps away from.
    """

    published: frozenset[str]
    foreign: frozenset[str]
    tainted: frozenset[str]


def offer(driver: str, published: Iterable[slices.ResourceSlice]) -> Offer:
    """What a fabric's slices say, in whichever form the taints stand."""
    known = encoding.decode(published)
    kept = {name for name, found in known.items() if encoding.keeps_away(found)}
    in_use = f"{driver}/{causes.IN_USE}"
    foreign = frozenset(
        name for name in kept if any(one.key == in_use and not one.value for one in known[name])
    )
    return Offer(published=frozenset(known), foreign=foreign, tainted=frozenset(kept) - foreign)


def devices(offered: Offer, listed: Collection[str], attached: Collection[str]) -> dict[str, int]:
    """The number of devices by state.

    Args:
        offered: what is published.
        listed: names of the devices that the fabric has; empty while it never told.
        attached: names of the devices that have a DeviceAttachment.
    """
    foreign, tainted = offered.foreign.difference(attached), offered.tainted.difference(attached)
    free = len(offered.published.difference(attached)) - len(foreign) - len(tainted)
    hidden = set(listed).difference(offered.published).difference(attached)
    numbers = (free, len(attached), len(tainted), len(foreign), len(hidden))
    return dict(zip(STATES, numbers, strict=True))


def phases(found: Iterable[attachments.DeviceAttachment]) -> dict[str, float]:
    """How many attachments are in each phase; all phases are there, so that a series never ends."""
    numbers = dict.fromkeys((*outcomes.PHASES, outcomes.OTHER), 0.0)
    for one in found:
        numbers[outcomes.phase(one)] += 1.0
    return numbers


def oldest(found: Iterable[attachments.DeviceAttachment], now: datetime.datetime) -> Mapping[str, float]:
    """For how many seconds the attachment that takes longest has been on its way, by direction; 0.0 if none is.

    One way begins with the allocation, the other with the wish to detach. A failed attach is over.
    """
    ages = {"attach": 0.0, "detach": 0.0}
    for one in found:
        if one.deleting:
            way, since = "detach", one.metadata.deletion_timestamp
        elif one.holds(attachments.ATTACHED) or one.status.error is not None:
            continue
        else:
            way, since = "attach", one.spec.allocation_timestamp
        if since:
            ages[way] = max(ages[way], (now - meta.moment(since)).total_seconds())
    return ages


ByFabric = Mapping[tuple[str, ...], float]


@dataclass(slots=True, kw_only=True)
class Gauges:
    """The numbers of one controller.

    Attributes:
        devices_queue: the devices that wait to be reconciled.
        fabrics_queue: returns how many jobs of fabrics wait.
        leading: whether this controller does the work now.
    """

    cluster: Cluster
    devices_queue: workers.PartitionedQueue[names.DeviceKey]
    fabrics_queue: Callable[[], int]
    leading: bool = False
    # What the slices of each fabric say, with the very slices: it is worked out anew when one of them changes.
    _offers: dict[str, tuple[tuple[object, ...], Offer]] = field(default_factory=dict)

    def show(self, measured: metrics.Metrics) -> None:
        """Has them read with all other metrics."""
        watch, by = measured.watch, measured.watch_by
        watch("leading", "Whether this controller leads.", lambda: {"": float(self.leading)})
        by("devices", "Devices of a fabric by their state.", self.devices, "fabric", "state")
        watch("attachments", "Attachments by phase.", lambda: self._led(self._phases), label="phase")
        watch(
            "oldest_operation_seconds",
            "For how long the attachment that takes longest has been on its way.",
            lambda: self._led(self._oldest),
            label="operation",
        )
        watch(
            "fabric_connected",
            "Whether the fabric manager can be talked to.",
            lambda: {one.name: float(one.connection.connected) for one in self.cluster.sessions},
            label="fabric",
        )
        by("fabric_condition", "Conditions of a Fabric.", self.conditions, "fabric", "condition")
        watch(
            "dropped_fields",
            "Fields of devices that the API server does not keep.",
            lambda: dict.fromkeys(self.cluster.pools.dropped_fields, 1.0),
            label="field",
        )
        self._show_queues(measured)

    def _show_queues(self, measured: metrics.Metrics) -> None:
        watch, cluster = measured.watch, self.cluster
        watch(
            "queue_length",
            "Devices of a fabric that wait to be looked at.",
            lambda: {one.name: float(self.devices_queue.waiting(one.name)) for one in cluster.sessions},
            label="fabric",
        )
        watch(
            "failing_devices",
            "Devices of a fabric whose last round failed.",
            lambda: {one.name: float(self.devices_queue.failing(one.name)) for one in cluster.sessions},
            label="fabric",
        )
        watch(
            "running_operations",
            "Operations that a fabric is busy with.",
            lambda: {one.name: float(one.turns.running) for one in cluster.sessions},
            label="fabric",
        )
        watch(
            "waiting_operations",
            "Operations that wait for a place in a fabric.",
            lambda: {one.name: float(one.turns.waiting) for one in cluster.sessions},
            label="fabric",
        )
        watch("chores_waiting", "Chores that wait to be done.", lambda: {"": float(self.fabrics_queue())})
        watch(
            "dropped_events",
            "Events of Kubernetes that were not sent.",
            lambda: {"": float(cluster.recorder.dropped)},
            counter=True,
        )

    def devices(self) -> ByFabric:
        """By fabric and state."""
        found: dict[tuple[str, ...], float] = {}
        known = {one.name: one for one in self.cluster.sessions}
        for gone in self._offers.keys() - known.keys():
            del self._offers[gone]
        for fabric, session in known.items():
            attached = frozenset(one.spec.device for one in self.cluster.placed.of(fabric))
            listed = frozenset(names.label(one.id) for one in session.devices)
            for state, number in devices(self._offer(fabric), listed, attached).items():
                found[fabric, state] = float(number)
        return found

    def conditions(self) -> ByFabric:
        """By fabric and type, as they were last written: 1.0 for True."""
        if not self.leading:
            return {}
        return dict(self._conditions())

    def _conditions(self) -> Iterator[tuple[tuple[str, ...], float]]:
        for fabric in self.cluster.fabrics:
            for one in fabric.status.conditions:
                if one.type in fabrics.CONDITIONS:
                    yield (fabric.metadata.name, one.type), float(one.is_true)

    def _offer(self, fabric: str) -> Offer:
        published = self.cluster.pools.of(fabric)
        known = self._offers.get(fabric)
        if known is None or known[0] != published:
            known = self._offers[fabric] = (published, offer(self.cluster.driver, published))
        return known[1]

    def _led(self, read: Callable[[], Mapping[str, float]]) -> Mapping[str, float]:
        return read() if self.leading else {}

    def _phases(self) -> Mapping[str, float]:
        return phases(self.cluster.attachments)

    def _oldest(self) -> Mapping[str, float]:
        return oldest(self.cluster.attachments, self.cluster.clock())
