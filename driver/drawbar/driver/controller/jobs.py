"""The jobs of the reconciler of fabrics: their queue, and the changes that add them.

A job that is added twice before it is done is done once.
"""

import enum
from collections.abc import Sized

import msgspec

from drawbar.driver.api import fabrics
from drawbar.driver.controller import attachment_index, change_kinds
from drawbar.driver.controller.fabrics import sessions
from drawbar.driver.controller.pools import causes
from drawbar.driver.kube import workers
from drawbar.driver.watching import watch

# Simultaneous changes become one write.
GATHER_SECONDS = 0.05
# The labels look at every node: at 5,000 nodes once a second at most.
GATHER_SECONDS_PER_NODE = 0.0002
# The pools look at every device of their fabric: at 10,000 devices once a second at most.
GATHER_SECONDS_PER_DEVICE = 0.0001
# The number of attached devices in a Fabric's status is not urgent.
COUNTS_SECONDS = 2.0


class Job(enum.StrEnum):
    """A kind of job.

    Labels are for all nodes, admin access for one claim (`namespace/name`), maintenance for one Maintenance, the others for
    one Fabric.
    """

    PUBLISH = "publish"
    STATUS = "status"
    LABELS = "labels"
    FINALIZER = "finalizer"
    ADMIN = "admin-access"
    MAINTENANCE = "maintenance"


class Due(msgspec.Struct, frozen=True):
    """A job for one object, to be done after some seconds."""

    job: Job
    name: str = ""
    after: float = 0.0


class JobDone(msgspec.Struct, frozen=True, kw_only=True):
    """A change: the reconciler of fabrics has done a job."""

    job: Job

    @property
    def renews_supply(self) -> bool:
        """Return whether the job may change the supply of devices for claims."""
        return self.job in (Job.PUBLISH, Job.LABELS)


class Jobs:
    """The queue of the jobs."""

    def __init__(self, nodes: Sized, opened: sessions.Sessions) -> None:
        self._nodes = nodes
        self._sessions = opened
        self.queue: workers.WorkQueue[tuple[Job, str]] = workers.WorkQueue()

    def add(self, job: Job, name: str = "", *, after: float = 0.0) -> None:
        """Add a job for now or in some seconds; a job that looks at more objects is done later."""
        if job is Job.LABELS and after:
            after += GATHER_SECONDS_PER_NODE * len(self._nodes)
        view = self._sessions.get(name) if job is Job.PUBLISH and after else None
        if view is not None:
            after += GATHER_SECONDS_PER_DEVICE * len(view.inventory.devices)
        if after:
            self.queue.add_after((job, name), after)
        else:
            self.queue.add((job, name))

    def add_due(self, due: Due) -> None:
        """Add a job from a watch."""
        self.add(due.job, due.name, after=due.after)

    def count_waiting(self) -> int:
        """Return the number of waiting jobs."""
        return len(self.queue)


def begin(fabric: str) -> tuple[Due, ...]:
    """Return the jobs for the begin of a Fabric's session."""
    return (*(Due(job, fabric) for job in (Job.PUBLISH, Job.STATUS, Job.FINALIZER)), Due(Job.LABELS))


def _labels_soon(_change: object) -> tuple[Due, ...]:
    return (Due(Job.LABELS, after=GATHER_SECONDS),)


def _publish_soon(fabric: str) -> Due:
    return Due(Job.PUBLISH, fabric, GATHER_SECONDS)


def _finalizers(fabric: fabrics.Fabric | None) -> tuple[str, ...]:
    return fabric.metadata.finalizers if fabric is not None else ()


def _select_wanted_parts(fabric: fabrics.Fabric) -> tuple[object, ...]:
    """Return the parts of a Fabric that people decide."""
    return fabric.spec, fabric.deleting, fabric.metadata.annotations.get(fabrics.GIVE_UP_ANNOTATION)


OF_FABRICS = (
    watch(
        "fabric",
        change_kinds.FabricChange,
        lambda c: begin(c.name),
        when=lambda c: (
            c.old is None or c.new is None or _select_wanted_parts(c.old) != _select_wanted_parts(c.new)
        ),
    ),
    watch(
        "fabric loses its finalizer, or gets another",
        change_kinds.FabricChange,
        lambda c: [Due(Job.FINALIZER, c.name, GATHER_SECONDS)],
        when=lambda c: _finalizers(c.old) != _finalizers(c.new),
    ),
    watch(
        "fabric's status is written, by any client",
        change_kinds.FabricChange,
        lambda c: [Due(Job.STATUS, c.name, COUNTS_SECONDS)],
        when=lambda c: c.old is not None and c.new is not None and c.old.status != c.new.status,
    ),
    watch(
        "slice of a fabric",
        change_kinds.SliceChange,
        lambda c: [Due(Job.PUBLISH, c.fabric or "", 0.0 if c.new is None else GATHER_SECONDS)],
        when=lambda c: c.fabric is not None,
    ),
    watch(
        "slice of a pool whose nodes have a label for it",
        change_kinds.SliceChange,
        _labels_soon,
        when=lambda c: c.needs_labels,
    ),
    watch(
        "device in other reachability groups",
        change_kinds.DeviceChange,
        _labels_soon,
        when=lambda c: c.is_regrouped,
    ),
    watch(
        "device shows in the pool",
        change_kinds.DeviceChange,
        lambda c: [_publish_soon(c.fabric)],
        when=lambda c: c.is_shown,
    ),
    # Ports fill and empty all the time; their effect on the nodes can wait for the next changes.
    watch("hosts", change_kinds.HostsChange, _labels_soon),
    watch(
        "connection: jobs of the fabric",
        change_kinds.ConnectionChange,
        lambda c: [
            Due(Job.STATUS, c.fabric),
            Due(Job.LABELS),
            Due(Job.PUBLISH, c.fabric, c.publish_after),
        ],
    ),
    watch("troubles", change_kinds.TroublesChange, lambda c: [Due(Job.STATUS, c.fabric, GATHER_SECONDS)]),
)

OF_TERMS = (
    watch(
        "term: maintenances and observers",
        change_kinds.TermChange,
        lambda c: [
            *(Due(Job.MAINTENANCE, name) for name in c.maintenances),
            *(Due(Job.ADMIN, name) for name in c.observers),
        ],
    ),
    watch("term: session", change_kinds.SessionChange, lambda c: begin(c.fabric)),
    watch(
        "fabric can be read",
        change_kinds.ReadableChange,
        lambda c: begin(c.fabric or ""),
        when=lambda c: c.fabric is not None,
    ),
)

OF_ATTACHMENTS = (
    watch(
        "attachment: observers",
        change_kinds.AttachmentChange,
        lambda c: [Due(Job.ADMIN, name) for name in c.observers],
    ),
    watch(
        "attachment: counts",
        change_kinds.AttachmentChange,
        lambda c: [Due(Job.STATUS, c.key.fabric, COUNTS_SECONDS)],
    ),
    watch(
        "attachment gone: finalizer of its fabric",
        change_kinds.AttachmentChange,
        lambda c: [Due(Job.FINALIZER, c.key.fabric, GATHER_SECONDS)],
        when=lambda c: c.new is None,
    ),
    watch(
        "attachment comes or goes where models are limited",
        change_kinds.AttachmentChange,
        lambda _: [Due(Job.LABELS)],
        when=lambda c: (c.old is None or c.new is None) and c.limits_models,
    ),
    watch(
        "attachment goes where a composite may be waiting for its device",
        change_kinds.AttachmentChange,
        lambda c: [_publish_soon(c.key.fabric)],
        when=lambda c: c.new is None and c.has_composites,
    ),
    watch(
        "release begins",
        change_kinds.AttachmentChange,
        lambda c: [Due(Job.PUBLISH, c.key.fabric, attachment_index.RELEASE_SECONDS)],
        when=lambda c: c.begins_release,
    ),
    watch(
        "release ends that was overdue",
        change_kinds.AttachmentChange,
        lambda c: [_publish_soon(c.key.fabric)],
        when=lambda c: c.new is None and (c.release_seconds or 0.0) >= attachment_index.RELEASE_SECONDS,
    ),
    watch(
        "device is erased as often as a day allows",
        change_kinds.AttachmentChange,
        lambda c: [_publish_soon(c.key.fabric)],
        when=lambda c: c.is_worn,
    ),
    watch(
        "attach fails",
        change_kinds.AttachmentChange,
        lambda c: [*_labels_soon(c), Due(Job.STATUS, c.key.fabric, GATHER_SECONDS)],
        when=lambda c: c.served and c.fails,
    ),
    watch(
        "pair is refused",
        change_kinds.AttachmentChange,
        lambda c: [
            *_labels_soon(c),
            Due(Job.STATUS, c.key.fabric, GATHER_SECONDS),
            _publish_soon(c.key.fabric),
        ],
        when=lambda c: c.served and c.is_refused,
    ),
    watch(
        "attachment of a refused pair goes, or works at last",
        change_kinds.AttachmentChange,
        lambda c: [*_labels_soon(c), _publish_soon(c.key.fabric)],
        when=lambda c: c.served and causes.refusal(c.old) is not None and causes.refusal(c.new) is None,
    ),
    watch(
        "attachment shows in the pool",
        change_kinds.AttachmentChange,
        lambda c: [_publish_soon(c.key.fabric)],
        when=lambda c: c.is_shown,
    ),
)

OF_CLAIMS = (
    watch(
        "claim of a device that moved to another pool",
        change_kinds.ClaimChange,
        lambda c: [Due(Job.PUBLISH, key.fabric) for key in c.moved],
    ),
    watch(
        "claim begins or ends to keep a composite from changing",
        change_kinds.ClaimChange,
        lambda c: [_publish_soon(key.fabric) for key in c.regrouped],
    ),
    watch(
        "claim with admin access",
        change_kinds.ClaimChange,
        lambda c: [Due(Job.ADMIN, change_kinds.claim_name(c.new))] if c.new is not None else [],
        when=lambda c: c.observes,
    ),
)

OF_NODES = (
    watch(
        "maintenance: its status",
        change_kinds.MaintenanceChange,
        lambda c: [Due(Job.MAINTENANCE, c.new.metadata.name)] if c.new is not None else [],
    ),
    watch(
        "maintenance begins or ends",
        change_kinds.MaintenanceChange,
        lambda c: [*_labels_soon(c), *map(_publish_soon, c.fabrics)],
        when=lambda c: bool(c.fabrics),
    ),
    watch(
        "node is mapped to another host", change_kinds.NodeChange, _labels_soon, when=lambda c: c.is_remapped
    ),
    watch("node daemon", change_kinds.DaemonChange, _labels_soon),
)

WATCHES = (*OF_TERMS, *OF_FABRICS, *OF_ATTACHMENTS, *OF_CLAIMS, *OF_NODES)
