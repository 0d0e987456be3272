"""What the controller has at any moment, read when somebody looks.

Only the leader shows the state of the cluster, so that the numbers of several controllers can be added up. A look
costs a walk over all attachments and fabric devices, and never a request.
"""

import datetime
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from drawbar.driver.api import attachments, fabrics
from drawbar.driver.controller import fabric_reconciler, names
from drawbar.driver.controller.attachments import index
from drawbar.driver.controller.fabrics import sessions
from drawbar.driver.controller.operation import metrics, states
from drawbar.driver.kube import events, mirror, workers

ByFabric = Mapping[tuple[str, ...], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What is looked at."""

    driver: str
    fabrics: mirror.Mirror[fabrics.Fabric]
    attachments: mirror.Mirror[attachments.DeviceAttachment]
    placed: index.Index
    sessions: sessions.Sessions
    chores: fabric_reconciler.FabricReconciler
    queued: workers.PartitionedQueue[names.DeviceKey]
    recorder: events.Recorder
    clock: Callable[[], datetime.datetime]


@dataclass(slots=True, kw_only=True)
class Gauges:
    """The numbers of one controller.

    Attributes:
        leading: whether this controller does the work now.
    """

    view: View
    leading: bool = False
    # What the slices of each fabric say, with the very slices: it is worked out anew when one of them changes.
    _offers: dict[str, tuple[tuple[object, ...], states.Offer]] = field(default_factory=dict)

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
            lambda: {one.name: float(one.connection.connected) for one in self.view.sessions},
            label="fabric",
        )
        by("fabric_condition", "Conditions of a Fabric.", self.conditions, "fabric", "condition")
        watch(
            "dropped_fields",
            "Fields of devices that the API server does not keep.",
            lambda: dict.fromkeys(self.view.chores.pools.dropped_fields, 1.0),
            label="field",
        )
        self._show_queues(measured)

    def _show_queues(self, measured: metrics.Metrics) -> None:
        watch, view = measured.watch, self.view
        watch(
            "queue_length",
            "Devices of a fabric that wait to be looked at.",
            lambda: {one.name: float(view.queued.waiting(one.name)) for one in view.sessions},
            label="fabric",
        )
        watch(
            "failing_devices",
            "Devices of a fabric whose last round failed.",
            lambda: {one.name: float(view.queued.failing(one.name)) for one in view.sessions},
            label="fabric",
        )
        watch(
            "running_operations",
            "Operations that a fabric is busy with.",
            lambda: {one.name: float(one.turns.running) for one in view.sessions},
            label="fabric",
        )
        watch(
            "waiting_operations",
            "Operations that wait for a place in a fabric.",
            lambda: {one.name: float(one.turns.waiting) for one in view.sessions},
            label="fabric",
        )
        watch("chores_waiting", "Chores that wait to be done.", lambda: {"": float(view.chores.waiting)})
        watch(
            "dropped_events",
            "Events of Kubernetes that were not sent.",
            lambda: {"": float(view.recorder.dropped)},
            counter=True,
        )

    def devices(self) -> ByFabric:
        """By fabric and state."""
        found: dict[tuple[str, ...], float] = {}
        known = {one.name: one for one in self.view.sessions}
        for gone in self._offers.keys() - known.keys():
            del self._offers[gone]
        for fabric, session in known.items():
            attached = frozenset(one.spec.device for one in self.view.placed.of(fabric))
            listed = frozenset(names.label(one.id) for one in session.devices)
            for state, number in states.devices(self._offer(fabric), listed, attached).items():
                found[fabric, state] = float(number)
        return found

    def conditions(self) -> ByFabric:
        """By fabric and type, as they were last written: 1.0 for True."""
        if not self.leading:
            return {}
        return dict(self._conditions())

    def _conditions(self) -> Iterator[tuple[tuple[str, ...], float]]:
        for fabric in self.view.fabrics:
            for one in fabric.status.conditions:
                if one.type in fabrics.CONDITIONS:
                    yield (fabric.metadata.name, one.type), float(one.is_true)

    def _offer(self, fabric: str) -> states.Offer:
        published = self.view.chores.pools.of(fabric)
        known = self._offers.get(fabric)
        if known is None or known[0] != published:
            known = self._offers[fabric] = (published, states.offer(self.view.driver, published))
        return known[1]

    def _led(self, read: Callable[[], Mapping[str, float]]) -> Mapping[str, float]:
        return read() if self.leading else {}

    def _phases(self) -> Mapping[str, float]:
        return states.phases(self.view.attachments)

    def _oldest(self) -> Mapping[str, float]:
        return states.oldest(self.view.attachments, self.view.clock())
