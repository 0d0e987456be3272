"""The progress of each pod: a pure fold of sightings, and a join of them per pod.

Sightings of pods, claims, attachments, the fabric's journal and a kernel come in no fixed order. `record_sighting`
only records them, each with its first time. `views` joins the records of one pod. A step keeps its first time, with
two exceptions. A claim with a new device starts again, and a returning attachment removes `detached`.

On clusters with classic allocation a claim is allocated only once its device is there (`CLASSIC`). Until then the
claim names its pod, and the attachment shows all the rest.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar, assert_never


class Step(StrEnum):
    """A step of a pod's device, in the order of a successful run."""

    ALLOCATED = "allocated"
    ATTACHING = "attaching"
    ATTACHED = "attached"
    SEEN = "seen"
    VISIBLE = "visible"
    BOUND = "bound"
    PREPARED = "prepared"
    RUNNING = "running"
    READ = "read"
    DELETED = "deleted"
    RELEASED = "released"
    DETACHED = "detached"


KERNEL = frozenset({Step.SEEN, Step.READ})
"""The steps of nodes with a real kernel only: the kernel finds the device, and a container reads it."""
SIMULATED = tuple(step for step in Step if step not in KERNEL)
CLASSIC = (
    Step.ATTACHING,
    Step.ATTACHED,
    Step.VISIBLE,
    Step.ALLOCATED,
    *SIMULATED[SIMULATED.index(Step.BOUND) :],
)
"""The steps if a claim is allocated after the attach."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSeen:
    """A pod of the API server; `cdi` are the CDI devices of its annotation, written just before it runs."""

    pod: str
    node: str = ""
    cdi: tuple[str, ...] = ()
    running: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDeleted:
    """The demo asked for the pod's deletion."""

    pod: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimSeen:
    """A claim of a pod, with its true binding conditions. Fields after `pod` are empty unless it is allocated."""

    uid: str
    pod: str
    allocated: bool = True
    pool: str = ""
    device: str = ""
    node: str = ""
    attached: bool = False
    visible: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachmentSeen:
    """A DeviceAttachment for a claim; `slot` is its slot on the host, or empty until connected.

    It is `attached` and `visible` only if the claim does not report these states itself.
    """

    claim_uid: str
    device_id: str
    pool: str = ""
    device: str = ""
    node: str = ""
    serial: str = ""
    slot: str = ""
    attached: bool = False
    visible: bool = False
    released: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachmentGone:
    """The DeviceAttachment for a claim is no longer there."""

    claim_uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricReport:
    """An entry of the fabric's journal; `time` is a reading of the fabric's own clock, in seconds."""

    device_id: str
    operation: str
    attach: bool
    finished: bool
    failed: bool
    time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSaw:
    """The kernel of a node announced a new PCI function in one of its slots."""

    slot: str
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentRead:
    """A container's read from its device; `content` is the beginning of the content."""

    pod: str
    content: str


Sighting = (
    PodSeen
    | PodDeleted
    | ClaimSeen
    | AttachmentSeen
    | AttachmentGone
    | FabricReport
    | KernelSaw
    | ContentRead
)
Times = Mapping[Step, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRecord:
    """The sightings of a pod itself."""

    device_class: str
    node: str = ""
    cdi: tuple[str, ...] = ()
    content: str = ""
    times: Times = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRecord:
    """The sightings of a claim; the device is empty if it was never allocated."""

    pod: str
    pool: str
    device: str
    node: str
    times: Times = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachmentRecord:
    """The sightings of a claim's attachment; `gone` is the time of its last known disappearance."""

    device_id: str
    serial: str
    pool: str = ""
    device: str = ""
    node: str = ""
    slot: str = ""
    times: Times = field(default_factory=dict)
    gone: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedReport:
    """A journal entry, and the time of its reading."""

    entry: FabricReport
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A function announced by a kernel in a slot, and the time."""

    address: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """All sightings so far.

    Attributes:
        pods: the pods of the demo, by name.
        claims: the claims by uid.
        attachments: the attachments by the uid of their claim.
        fabric: the journal, by device id.
        kernel: the functions found, by slot; at most one node has a real kernel.
    """

    pods: Mapping[str, PodRecord]
    claims: Mapping[str, ClaimRecord] = field(default_factory=dict)
    attachments: Mapping[str, AttachmentRecord] = field(default_factory=dict)
    fabric: Mapping[str, tuple[TimedReport, ...]] = field(default_factory=dict)
    kernel: Mapping[str, tuple[Found, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One pod and its device.

    Attributes:
        steps: the time of each reached step, in seconds.
        attach_seconds: the fabric's own time to attach; None until finished.
        detach_seconds: the fabric's own time to detach; None until finished.
        address: the PCI address of the device in the kernel.
        content: the beginning of the device's content, as read by the container.
    """

    pod: str
    device_class: str
    node: str = ""
    pool: str = ""
    device: str = ""
    serial: str = ""
    cdi: tuple[str, ...] = ()
    steps: Times
    attach_seconds: float | None = None
    detach_seconds: float | None = None
    address: str = ""
    content: str = ""


Record = TypeVar("Record", PodRecord, ClaimRecord, AttachmentRecord)


def begin(pods: Mapping[str, str]) -> Progress:
    """Return a progress without sightings; `pods` gives the device class of each pod."""
    return Progress(pods={pod: PodRecord(device_class=kind) for pod, kind in pods.items()})


def record_sighting(progress: Progress, sighting: Sighting, at: float) -> Progress:
    """Return the progress after a sighting at a time in seconds. Pods outside the demo are ignored."""
    match sighting:
        case PodSeen() | PodDeleted() | ContentRead():
            return _pod_seen(progress, sighting, at)
        case ClaimSeen():
            return _claim_seen(progress, sighting, at)
        case AttachmentSeen() | AttachmentGone():
            return _attachment_seen(progress, sighting, at)
        case FabricReport():
            reported = (*progress.fabric.get(sighting.device_id, ()), TimedReport(entry=sighting, at=at))
            return dataclasses.replace(progress, fabric={**progress.fabric, sighting.device_id: reported})
        case KernelSaw():
            arrivals = (*progress.kernel.get(sighting.slot, ()), Found(address=sighting.address, at=at))
            return dataclasses.replace(progress, kernel={**progress.kernel, sighting.slot: arrivals})
    assert_never(sighting)


def _pod_seen(progress: Progress, sighting: PodSeen | PodDeleted | ContentRead, at: float) -> Progress:
    record = progress.pods.get(sighting.pod)
    if record is None:
        return progress
    match sighting:
        case PodDeleted():
            record = _record_steps(record, at, {Step.DELETED: True})
        case ContentRead():
            record = dataclasses.replace(record, content=sighting.content)
            record = _record_steps(record, at, {Step.READ: True})
        case PodSeen():
            record = dataclasses.replace(
                record, node=sighting.node or record.node, cdi=sighting.cdi or record.cdi
            )
            reached = {
                Step.BOUND: bool(sighting.node),
                Step.PREPARED: bool(sighting.cdi),
                Step.RUNNING: sighting.running,
            }
            record = _record_steps(record, at, reached)
    return dataclasses.replace(progress, pods={**progress.pods, sighting.pod: record})


def _claim_seen(progress: Progress, sighting: ClaimSeen, at: float) -> Progress:
    fresh = ClaimRecord(pod=sighting.pod, pool=sighting.pool, device=sighting.device, node=sighting.node)
    record = progress.claims.get(sighting.uid, fresh)
    if not sighting.allocated:
        # A claim with an earlier allocation keeps its record: it is being deallocated.
        return dataclasses.replace(progress, claims={**progress.claims, sighting.uid: record})
    if dataclasses.replace(record, times={}) != fresh:
        record = fresh
    reached = {Step.ALLOCATED: True, Step.ATTACHED: sighting.attached, Step.VISIBLE: sighting.visible}
    return dataclasses.replace(
        progress, claims={**progress.claims, sighting.uid: _record_steps(record, at, reached)}
    )


def _attachment_seen(progress: Progress, sighting: AttachmentSeen | AttachmentGone, at: float) -> Progress:
    record = progress.attachments.get(sighting.claim_uid)
    if isinstance(sighting, AttachmentSeen):
        if record is None or record.device_id != sighting.device_id:
            record = AttachmentRecord(
                device_id=sighting.device_id,
                serial=sighting.serial,
                pool=sighting.pool,
                device=sighting.device,
                node=sighting.node,
            )
        record = dataclasses.replace(record, gone=None, slot=sighting.slot or record.slot)
        reached = {
            Step.ATTACHING: True,
            Step.ATTACHED: sighting.attached,
            Step.VISIBLE: sighting.visible,
            Step.RELEASED: sighting.released,
        }
        record = _record_steps(record, at, reached)
    elif record is None:
        return progress
    else:
        record = dataclasses.replace(record, gone=at)
    return dataclasses.replace(progress, attachments={**progress.attachments, sighting.claim_uid: record})


def _record_steps(record: Record, at: float, steps: Mapping[Step, bool]) -> Record:
    fresh = {step: at for step, holds in steps.items() if holds and step not in record.times}
    return dataclasses.replace(record, times={**record.times, **fresh}) if fresh else record


def views(progress: Progress) -> dict[str, View]:
    """Return every pod's view, by name."""
    claims = {claim.pod: uid for uid, claim in progress.claims.items()}
    return {pod: _view(progress, pod, claims.get(pod)) for pod in progress.pods}


def _view(progress: Progress, pod: str, claim_uid: str | None) -> View:
    record = progress.pods[pod]
    claim = progress.claims[claim_uid] if claim_uid is not None else None
    if claim is None or claim_uid is None:
        return View(
            pod=pod,
            device_class=record.device_class,
            node=record.node,
            cdi=record.cdi,
            content=record.content,
            steps=_sort_times(record.times),
        )
    attachment = progress.attachments.get(claim_uid)
    journal = progress.fabric.get(attachment.device_id, ()) if attachment is not None else ()
    times = {**record.times, **claim.times, **(attachment.times if attachment is not None else {})}
    arrival = _find_arrival(progress, attachment) if attachment is not None else None
    if arrival is not None:
        times[Step.SEEN] = arrival.at
    last = _find_last_success(journal)
    if attachment is not None and attachment.gone is not None and last is not None and not last.entry.attach:
        times[Step.DETACHED] = max(attachment.gone, last.at)
    return View(
        pod=pod,
        device_class=record.device_class,
        node=record.node or claim.node or (attachment.node if attachment is not None else ""),
        pool=claim.pool or (attachment.pool if attachment is not None else ""),
        device=claim.device or (attachment.device if attachment is not None else ""),
        serial=attachment.serial if attachment is not None else "",
        cdi=record.cdi,
        steps=_sort_times(times),
        attach_seconds=_duration(journal, attach=True),
        detach_seconds=_duration(journal, attach=False),
        address=arrival.address if arrival is not None else "",
        content=record.content,
    )


def _find_arrival(progress: Progress, attachment: AttachmentRecord) -> Found | None:
    """Return the first function found in the attachment's slot since the attachment exists.

    The slot may have had others.
    """
    since = attachment.times[Step.ATTACHING]
    return next(
        (arrival for arrival in progress.kernel.get(attachment.slot, ()) if arrival.at >= since), None
    )


def _sort_times(times: Times) -> Times:
    return {step: times[step] for step in Step if step in times}


def _find_last_success(journal: tuple[TimedReport, ...], *kinds: bool) -> TimedReport | None:
    """Return the last success: of attaches for True, of detaches for False, of both without `kinds`.

    None if there is none.
    """
    return next(
        (
            reported
            for reported in reversed(journal)
            if reported.entry.finished
            and not reported.entry.failed
            and (not kinds or reported.entry.attach in kinds)
        ),
        None,
    )


def _duration(journal: tuple[TimedReport, ...], *, attach: bool) -> float | None:
    end = _find_last_success(journal, attach)
    if end is None:
        return None
    for reported in journal:
        if reported.entry.operation == end.entry.operation and not reported.entry.finished:
            return end.entry.time - reported.entry.time
    return None
