"""The controller's present state, read at each scrape: devices by state, attachments by phase, queues.

Only the leader shows the state of the cluster, so that the numbers of several controllers can be added up. A scrape
costs a walk over all attachments and fabric devices, and never a request.

A device is in exactly one state, the first of these that applies:

| state | means |
|---|---|
| `attached` | it has a DeviceAttachment: a claim's, an idle one's, or an operator's |
| `withdrawn` | the fabric lists it, and it is not published |
| `foreign` | another owner attached it |
| `tainted` | it is free, and a taint keeps the scheduler away |
| `free` | it can be given out |
"""

import datetime
import functools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from drawbar.driver.api import attachments, fabrics, meta, slices
from drawbar.driver.catalogue import reasons, taints
from drawbar.driver.controller import names, outcomes, rates
from drawbar.driver.controller.cluster import Cluster
from drawbar.driver.controller.fabrics import session
from drawbar.driver.controller.operation import metrics
from drawbar.driver.kube import mirror, workers
from drawbar.driver.slices import encoding
from drawbar.fabric import contract

ATTACHED = "attached"
WITHDRAWN = "withdrawn"
FOREIGN = "foreign"
TAINTED = "tainted"
FREE = "free"
STATES = (FREE, ATTACHED, TAINTED, FOREIGN, WITHDRAWN)
MODELS_MAX = 50
"""The models of a fabric that have series of their own; the others count as `OTHER`."""
NAMESPACES_MAX = 100
"""The namespaces with series of their own, those with most waiting claims; the others count as `OTHER`."""
OTHER = "(other)"


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """The devices in a fabric's slices; it changes only with them.

    Attributes:
        published: the names of all devices in them.
        foreign: the names of devices that another owner attached.
        tainted: the names of the others that the scheduler keeps away from.
    """

    published: frozenset[str]
    foreign: frozenset[str]
    tainted: frozenset[str]


def offer(driver: str, published: Iterable[slices.ResourceSlice]) -> Offer:
    """Return the devices in a fabric's slices; the taints may be in either form."""
    shown = encoding.decode(published)
    kept = {name for name, device_taints in shown.items() if encoding.keeps_away(device_taints)}
    in_use = f"{driver}/{taints.IN_USE.key}"
    foreign = frozenset(
        name for name in kept if any(taint.key == in_use and not taint.value for taint in shown[name])
    )
    return Offer(published=frozenset(shown), foreign=foreign, tainted=frozenset(kept) - foreign)


def devices(offered: Offer, listed: Collection[str], attached: Collection[str]) -> dict[str, int]:
    """Return the number of devices by state.

    Args:
        offered: the published devices.
        listed: the names of the fabric's devices; empty before its first listing.
        attached: the names of the devices with a DeviceAttachment.
    """
    foreign, tainted = offered.foreign.difference(attached), offered.tainted.difference(attached)
    free = len(offered.published.difference(attached)) - len(foreign) - len(tainted)
    hidden = set(listed).difference(offered.published).difference(attached)
    numbers = (free, len(attached), len(tainted), len(foreign), len(hidden))
    return dict(zip(STATES, numbers, strict=True))


def state(offered: Offer, name: str, attached: Collection[str]) -> str:
    """Return the state of one device of the fabric."""
    if name in attached:
        return ATTACHED
    if name not in offered.published:
        return WITHDRAWN
    if name in offered.foreign:
        return FOREIGN
    return TAINTED if name in offered.tainted else FREE


def models(
    offered: Offer, listed: Iterable[contract.Device], attached: Collection[str]
) -> Counter[tuple[str, str, str]]:
    """Return the number of a fabric's devices by class, model and state."""
    found = [
        (device.device_class.value, device.model, state(offered, names.label(device.id), attached))
        for device in listed
    ]
    named = {model for model, _ in Counter(model for _, model, _ in found).most_common(MODELS_MAX)}
    return Counter(
        (device_class, model if model in named else OTHER, shown) for device_class, model, shown in found
    )


def waiting_claims(listed: Iterable[attachments.DeviceAttachment]) -> dict[str, float]:
    """Return, by namespace, the number of claims with an allocated device that its node does not see yet."""
    waiting = {
        (attachment.spec.claim.namespace, attachment.spec.claim.uid)
        for attachment in listed
        if attachment.spec.claim is not None
        and not attachment.deleting
        and not attachment.holds(attachments.VISIBLE)
    }
    numbers = Counter(namespace for namespace, _ in waiting).most_common()
    shown = {namespace: float(number) for namespace, number in numbers[:NAMESPACES_MAX]}
    rest = sum(number for _, number in numbers[NAMESPACES_MAX:])
    return shown | ({OTHER: float(rest)} if rest else {})


def phases(listed: Iterable[attachments.DeviceAttachment]) -> dict[str, float]:
    """Return the number of attachments in each phase, with all phases, so that no series ends."""
    numbers = dict.fromkeys((*outcomes.PHASES, reasons.OTHER), 0.0)
    for attachment in listed:
        numbers[outcomes.phase(attachment)] += 1.0
    return numbers


def oldest(listed: Iterable[attachments.DeviceAttachment], now: datetime.datetime) -> Mapping[str, float]:
    """Return the seconds of the longest unfinished attach and detach, by direction; 0.0 if there is none.

    An attach begins with the allocation, a detach with the deletion. A failed attach is over.
    """
    ages = {"attach": 0.0, "detach": 0.0}
    for attachment in listed:
        if attachment.deleting:
            way, since = "detach", meta.moment(attachment.metadata.deletion_timestamp)
        elif attachment.holds(attachments.ATTACHED) or attachment.status.error is not None:
            continue
        else:
            way, since = "attach", meta.moment(attachment.spec.allocation_timestamp)
        if since is not None:
            ages[way] = max(ages[way], (now - since).total_seconds())
    return ages


ByFabric = Mapping[tuple[str, ...], float]


@dataclass(slots=True, kw_only=True)
class Gauges:
    """The numbers of one controller.

    Attributes:
        devices_queue: the devices that wait to be reconciled.
        fabrics_queue: returns the number of waiting jobs of fabrics.
        mirrors: returns the mirrors of the API server's collections.
        leading: whether this controller leads now.
    """

    cluster: Cluster
    devices_queue: workers.PartitionedQueue[names.DeviceKey]
    fabrics_queue: Callable[[], int]
    mirrors: Callable[[], Iterable[mirror.Mirror[Any]]] = tuple
    leading: bool = False
    # The offer of each fabric, with the slices that it was made from; a change of one makes a new offer.
    _offers: dict[str, tuple[tuple[object, ...], Offer]] = field(default_factory=dict)

    def show(self, measured: metrics.Metrics) -> None:
        """Register the numbers, to be read with all other metrics."""
        watch, by = measured.watch, measured.watch_by
        watch("leading", "1 while this controller leads.", lambda: {"": float(self.leading)})
        by(
            "devices",
            "Devices: free, attached, tainted (and free), foreign (attached by others), withdrawn (not published).",
            self.devices,
            "fabric",
            "state",
        )
        by(
            "model_devices",
            "Devices by class, model and state.",
            self.models,
            *("fabric", "class", "model", "state"),
        )
        watch(
            "unreadable_objects",
            "Unreadable objects.",
            lambda: mirror.count_unreadable(self.mirrors()),
            label="resource",
        )
        watch(
            "dropped_fields",
            "1 for each field dropped by the API server.",
            lambda: dict.fromkeys(self.cluster.pools.dropped_fields, 1.0),
            label="field",
        )
        self._show_attachments(measured)
        self._show_fabrics(measured)
        self._show_queues(measured)

    def _show_attachments(self, measured: metrics.Metrics) -> None:
        """Register the numbers that only the leader shows."""

        def watch(name: str, text: str, read: Callable[[], Mapping[str, float]], label: str) -> None:
            measured.watch(name, text, lambda: read() if self.leading else {}, label=label)

        cluster = self.cluster
        watch(
            "waiting_claims",
            "Claims whose device is not on its node yet.",
            lambda: waiting_claims(cluster.attachments),
            "claim_namespace",
        )
        watch("attachments", "DeviceAttachments.", lambda: phases(cluster.attachments), "phase")
        watch(
            "oldest_operation_seconds",
            "Age of the slowest: attach since the allocation, detach since the deletion.",
            lambda: oldest(cluster.attachments, cluster.time_of_day()),
            "operation",
        )

    def _watch_fabrics(
        self,
        measured: metrics.Metrics,
        name: str,
        text: str,
        read: Callable[[session.Session], float],
        *,
        counter: bool = False,
    ) -> None:
        """Register a number of each fabric."""
        measured.watch(
            name,
            text,
            lambda: {opened.name: float(read(opened)) for opened in self.cluster.sessions},
            label="fabric",
            counter=counter,
        )

    def _show_fabrics(self, measured: metrics.Metrics) -> None:
        watch = functools.partial(self._watch_fabrics, measured)
        watch(
            "fabric_connected",
            "1 while the fabric manager answers.",
            lambda opened: opened.connection.connected,
        )
        watch(
            "fabric_limits_exceeded",
            "Times beyond policy.limits.",
            lambda opened: opened.manager.exceeded,
            counter=True,
        )
        measured.watch(
            "incompatible_pairs",
            "Refused pairs of a device and a host.",
            self.incompatible_pairs,
            label="fabric",
        )
        measured.watch_by(
            "fabric_condition",
            "1 while the Fabric has the condition.",
            self.conditions,
            "fabric",
            "condition",
        )

    def _show_queues(self, measured: metrics.Metrics) -> None:
        watch = functools.partial(self._watch_fabrics, measured)
        watch(
            "queue_length",
            "Waiting devices.",
            lambda opened: self.devices_queue.count_waiting(opened.name),
        )
        watch(
            "failing_devices",
            "Devices with a failed last round.",
            lambda opened: self.devices_queue.count_failing(opened.name),
        )
        watch(
            "running_operations",
            "Running attaches and detaches.",
            lambda opened: opened.manager.queue.running,
        )
        watch(
            "waiting_operations",
            "Waiting attaches and detaches.",
            lambda opened: opened.manager.queue.waiting,
        )
        watch(
            "resting_devices",
            "Devices at policy.erasesPerDevicePerDay.",
            lambda opened: self._count_exhausted(
                opened.erasures, opened.spec.policy.erases_per_device_per_day
            ),
        )
        watch(
            "limited_namespaces",
            "Namespaces at policy.attachesPerNamespacePerMinute.",
            lambda opened: self._count_exhausted(
                opened.attaches.acts, opened.spec.policy.attaches_per_namespace_per_minute
            ),
        )
        measured.watch(
            "chores_waiting", "Waiting pools, statuses and labels.", lambda: {"": self.fabrics_queue()}
        )
        measured.watch(
            "dropped_events", "Unsent Events.", lambda: {"": self.cluster.recorder.dropped}, counter=True
        )

    def devices(self) -> ByFabric:
        """Return the number of devices by fabric and state."""
        counts: dict[tuple[str, ...], float] = {}
        sessions = {session.name: session for session in self.cluster.sessions}
        for gone in self._offers.keys() - sessions.keys():
            del self._offers[gone]
        for fabric, opened in sessions.items():
            attached = frozenset(
                attachment.spec.device for attachment in self.cluster.placed.in_fabric(fabric)
            )
            listed = frozenset(names.label(device.id) for device in opened.devices)
            for state, number in devices(self._offer(fabric), listed, attached).items():
                counts[fabric, state] = float(number)
        return counts

    def models(self) -> ByFabric:
        """Return the number of devices by fabric, class, model and state."""
        counts: dict[tuple[str, ...], float] = {}
        for opened in self.cluster.sessions:
            attached = frozenset(
                attachment.spec.device for attachment in self.cluster.placed.in_fabric(opened.name)
            )
            for key, number in models(self._offer(opened.name), opened.devices, attached).items():
                counts[opened.name, *key] = float(number)
        return counts

    def incompatible_pairs(self) -> Mapping[str, float]:
        """Return the number of refused pairs by fabric."""
        numbers = {}
        for fabric in self.cluster.fabrics:
            opened = self.cluster.sessions.get(fabric.metadata.name)
            if opened is not None:
                probation = datetime.timedelta(seconds=fabric.spec.policy.probation_seconds)
                numbers[opened.name] = float(len(opened.pairs.find_lasting(probation, self.cluster.clock())))
        return numbers

    def conditions(self) -> ByFabric:
        """Return the last written conditions by fabric and type: 1.0 for True."""
        return dict(self._conditions()) if self.leading else {}

    def _conditions(self) -> Iterator[tuple[tuple[str, ...], float]]:
        for fabric in self.cluster.fabrics:
            for condition in fabric.status.conditions:
                if condition.type in fabrics.CONDITIONS:
                    yield (fabric.metadata.name, condition.type), float(condition.is_true)

    def _count_exhausted(self, rate: rates.Rate[str], limit: int) -> int:
        """Return the number of keys at the limit of a rate."""
        return len(rate.find_exhausted(limit, self.cluster.clock()))

    def _offer(self, fabric: str) -> Offer:
        published = self.cluster.pools.in_fabric(fabric)
        cached = self._offers.get(fabric)
        if cached is None or cached[0] != published:
            cached = self._offers[fabric] = (published, offer(self.cluster.driver, published))
        return cached[1]
