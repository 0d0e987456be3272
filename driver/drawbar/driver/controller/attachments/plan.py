"""The state machine of one fabric device; pure.

Invariants, after every prefix of every plan:

- the fabric is called only for a device that has a DeviceAttachment, whose name is the lock;
- `ReportAttached` is planned only when the fabric reports the device on the host of this attachment;
- `RemoveFinalizer` is planned only in these cases: the fabric has confirmed a detach, refuses it because the device no
  longer exists, or shows the device connected by another owner; or an administrator has given the fabric up;
- people's changes of an attachment's labels, finalizers and owners are corrected before anything else is planned;
- a connection with another owner's mark is never reported as ours, and never ended;
- `ReportAttached` about a composite is planned only when all its members are attached;
- no claim waits longer than the scheduler does without a condition that says why;
- a device whose connection the fabric manager no longer shows is attached again only while it is free and no node has
  seen it, and at most `RENEWALS` times;
- nothing is begun for a claim, and it does not fail again, during the pause after its last failure.

For every observation the plan holds the next safe steps. A call to the fabric is always the last step of a plan:
its effect is observed, never assumed.

Source: KEP-5007; `docs/architecture.md`.
"""

import dataclasses
import datetime
import enum
import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import assert_never

from drawbar.driver.api import attachments, meta
from drawbar.driver.catalogue import reasons
from drawbar.driver.controller import claims as claim_index
from drawbar.driver.controller import marks, outcomes
from drawbar.driver.controller.attachments import actions, contradictions

# A host of ours that is no node may become one meanwhile.
UNMAPPED_SECONDS = 60.0
# A detach that takes longer is cancelled and tried again.
DETACH_PATIENCE_SECONDS = 300.0
READ_AGAIN_SECONDS = 1.0
# After this time, a device that is still connected was connected again, or never detached.
RECONNECTED_SECONDS = 60.0

# The record of a new memory chunk may be on its way.
ORPHAN_SECONDS = 5.0
# The longest overlap of the claim that releases a device and the next one that gets it.
OVERLAP_SECONDS = 5.0

# A node lists its cards within a moment; after this time, its daemon does not run.
LISTING_SECONDS = 15.0
QUEUE_LOOK_SECONDS = 1.0

# A node's report that it finds no device waits this long for a listing that confirms the fabric manager's view.
CONFIRM_SECONDS = 3 * contradictions.APART_SECONDS
# The most repeated attaches of a device whose connection the fabric manager no longer shows.
RENEWALS = 3
SEE_FABRIC = "; see the Fabric's conditions"
# The longest pause before a call is repeated.
PAUSE_MAX_SECONDS = 60.0
AGAIN = f"; tried again in at most {PAUSE_MAX_SECONDS:.0f} s"
FORGOTTEN = "the fabric manager no longer shows this connection"

Steps = tuple[actions.Action, ...]


class CallState(enum.StrEnum):
    """The last known state of a call to the fabric."""

    UNASKED = "unasked"
    """Not known since this process started, or since the answer went stale: the fabric has to be asked."""
    UNKNOWN = "unknown"
    """The fabric has no such call."""
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The call to the fabric that the attachment's record names.

    Attributes:
        due: whether the pause after a failed attempt is over; for a call that succeeded, whether its news is overdue.
        retry_after_seconds: the seconds until it is due, or until a running call is worth asking for again.
        age_seconds: the seconds in its state, as far as this process has seen; for a call that has to be asked for, the
            seconds since it was first seen to run, or 0.0.
        refused: the latest refusal of any attempt, or a call that failed on its way; None since a success.
        is_report_due: whether a recorded refusal may be recorded again, if its words differ.
        renewals: the number of repeated attaches by this process because the fabric manager did not show the
            connection.
    """

    state: CallState
    due: bool = True
    retry_after_seconds: float = 1.0
    failure: attachments.Failure | None = None
    age_seconds: float = 0.0
    refused: attachments.Failure | None = None
    is_report_due: bool = True
    renewals: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The whole input of a decision.

    Attributes:
        present: whether the fabric lists the device; None while not known.
        host_id: the host of the device's connection; None if it is free or not known.
        owner: the owner of that connection.
        node: the host's node; None if it has none, or the device is free.
        tainted: whether the device's slice has the taint of a failed attach.
        node_gone_at: the time from which no release will be reported: there has been no Node object for the Fabric's
            grace period, or an administrator has marked the machine as off; None while there is a node.
        given_up: whether an administrator has declared that the fabric manager never comes back.
        keep: how long a device without a claim stays attached for the next one on its node; None is forever.
        forbidden: the reason not to attach the device to the demand's node: the Fabric's rules, or a remembered
            refusal.
        attaches_at: the earliest begin of the attach for the demand, since its claim failed before; None for at once.
        patience: the time from the first sight of the allocation to giving the attach up, shorter than the scheduler's.
        ready_patience: the time from there to giving up an attached device that its node does not report ready.
        binding_timeout: how long a failed allocation may stay until its attach is rolled back.
        idle_at: the time when the attachment was first seen to be idle.
        competing_demands: other claims that were given the device of the demand's claim.
        is_whole: whether all other members of the device's composite are attached; always true for a single device.
        misfit: the reason why an operator's attachment does not fit the Fabric; None if it does.
        orphaned_at: for a memory chunk of ours without an attachment, the time when this process first saw it; else
            None.
        is_claim_unreadable: whether the attachment's claim exists and cannot be read.
        ahead: another attachment of the node whose card could be taken for this device, until it is recognised; empty
            for none.
        is_acknowledged: whether the node has listed its cards, if the device is recognised by its arrival.
        listed_since: the begin of the wait for the node to list its cards.
        contradiction: the fabric manager's contradiction to the connection of an attached device; None without one.
    """

    attachment: attachments.DeviceAttachment | None
    demand: claim_index.Demand | None
    present: bool | None
    host_id: str | None
    attach: Call
    detach: Call
    tainted: bool
    node_gone_at: datetime.datetime | None = None
    given_up: bool = False
    patience: datetime.timedelta
    ready_patience: datetime.timedelta
    binding_timeout: datetime.timedelta
    idle_at: datetime.datetime | None = None
    keep: datetime.timedelta | None = datetime.timedelta()
    forbidden: attachments.Failure | None = None
    attaches_at: datetime.datetime | None = None
    competing_demands: tuple[claim_index.Demand, ...] = ()
    owner: marks.Owner = marks.Owner.UNTOLD
    node: str | None = None
    is_whole: bool = True
    orphaned_at: datetime.datetime | None = None
    is_claim_unreadable: bool = False
    misfit: attachments.Failure | None = None
    ahead: str = ""
    is_acknowledged: bool = True
    listed_since: datetime.datetime | None = None
    contradiction: contradictions.Contradiction | None = None

    @property
    def foreign(self) -> bool:
        """Return whether another owner has connected the device."""
        return self.owner is marks.Owner.OTHERS

    def seconds_left(self, now: datetime.datetime) -> float | None:
        """Return the seconds until the attach for the demand is given up, or None without a demand."""
        return _seconds(self.demand.seen_at + self.patience - now) if self.demand is not None else None

    def pause_seconds(self, now: datetime.datetime) -> float:
        """Return the seconds until the attach for the demand may begin; 0.0 if it may."""
        return max(0.0, _seconds(self.attaches_at - now)) if self.attaches_at is not None else 0.0

    def is_connected(self, host_id: str) -> bool:
        """Return whether the device is on that host, and not by another owner."""
        return self.host_id == host_id and not self.foreign


def plan(observed: Observed, now: datetime.datetime) -> Steps:
    """Return the next safe steps; none if there is nothing to do until something changes."""
    demand, attachment = observed.demand, observed.attachment
    # Nothing is attached for a claim with invalid parameters.
    is_served = attachment is not None and _is_for(attachment, demand)
    if demand is not None and demand.failure is not None and not demand.failure_reported and not is_served:
        return _after_pause(observed, now) or (actions.ReportFailed(demand=demand, failure=demand.failure),)
    refusals, seconds = _refuse_rivals(demand, observed.competing_demands, now)
    return _look_within((*refusals, *_next_steps(observed, now)), seconds)


def _next_steps(observed: Observed, now: datetime.datetime) -> Steps:
    attachment = observed.attachment
    if attachment is None:
        return _begin(observed, now)
    if not _is_marked(attachment):
        return (actions.Adopt(),)
    if attachment.deleting:
        refusal, seconds = _wait_for_release(observed, attachment, now)
        return _look_within((*refusal, *_release(observed, attachment, now)), seconds)
    if attachment.forced:
        return (actions.Delete(),)
    if attachment.held_by_hand:
        return _hold(observed, attachment, now)
    if not _is_for(attachment, observed.demand):
        # An unreadable claim may still have the device.
        return () if observed.is_claim_unreadable else _change_hands(observed, attachment, now)
    return _bring_about(observed, attachment, now)


def _is_marked(attachment: attachments.DeviceAttachment) -> bool:
    """Return whether the metadata is complete; an object that is being deleted takes no finalizer."""
    metadata, spec = attachment.metadata, attachment.spec
    is_held = attachment.deleting or attachments.FINALIZER in metadata.finalizers
    is_labelled = metadata.labels.get(attachments.NODE_LABEL) == attachments.node_label(spec.node_name)
    # An operator's attachment may go with another object of the operator.
    is_owned = bool(metadata.owner_references) and not attachment.held_by_hand
    return is_held and is_labelled and not is_owned


def _is_for(attachment: attachments.DeviceAttachment, demand: claim_index.Demand | None) -> bool:
    spec = attachment.spec
    return (
        demand is not None
        and spec.claim is not None
        and (spec.claim.uid, spec.allocation_timestamp, spec.node_name)
        == (demand.claim.uid, demand.allocation_timestamp, demand.node)
        and not _is_misdirected(attachment, demand)
    )


def _is_misdirected(attachment: attachments.DeviceAttachment, demand: claim_index.Demand) -> bool:
    """Return whether the claim's node is mapped to another host by now; a device that a pod may be using stays on its host."""
    in_use = attachment.holds(attachments.VISIBLE) or demand.visible_reported
    return not in_use and demand.host_id not in (None, attachment.spec.host_id)


def _hold(observed: Observed, attachment: attachments.DeviceAttachment, now: datetime.datetime) -> Steps:
    """Return the steps that keep an operator's attachment by hand; a claim of its device fails."""
    if observed.demand is not None and not observed.demand.failure_reported:
        message = f"an operator holds the device with DeviceAttachment {attachment.metadata.name}"
        return _fail(observed.demand, reasons.DEVICE_IN_USE, message)
    if observed.misfit is not None and attachment.status.error is None:
        return (actions.RecordFailure(failure=observed.misfit),)
    return _bring_about(dataclasses.replace(observed, demand=None), attachment, now)


def _change_hands(
    observed: Observed, attachment: attachments.DeviceAttachment, now: datetime.datetime
) -> Steps:
    """Return the steps for a device whose claim no longer has it: hand it on, keep it idle, or detach it."""
    spec, demand = attachment.spec, observed.demand
    usable = (
        observed.is_connected(spec.host_id)
        and attachment.holds(attachments.ATTACHED)
        and outcomes.problem(attachment) is None
        and observed.node_gone_at is None
        and _is_vouched_for(attachment, demand)
    )
    if demand is not None and not demand.failure_reported:
        same_place = (demand.node, demand.host_id, demand.pool) == (spec.node_name, spec.host_id, spec.pool)
        return (actions.TakeOver(demand=demand),) if usable and same_place else (actions.Delete(),)
    if not usable or observed.keep == datetime.timedelta():
        return (actions.Delete(),)
    if spec.idle_since is None:
        return (actions.KeepIdle(),)
    if observed.keep is None:
        return ()
    left = _seconds((observed.idle_at or now) + observed.keep - now)
    return (actions.RequeueAfter(seconds=left),) if left > 0 else (actions.Delete(),)


def _is_vouched_for(attachment: attachments.DeviceAttachment, demand: claim_index.Demand | None) -> bool:
    """Return whether the node has recorded whose data it has to clean; it does once the device is ready for a claim.

    A claim that has the device by the node's record gets it back, even after changes of the attachment by hand.
    """
    spec, node = attachment.spec, attachment.status.node
    recorded = {claim.uid for claim in (spec.claim, demand.claim if demand is not None else None) if claim}
    return spec.claim is None or (node is not None and node.claim_uid in recorded)


def _begin(observed: Observed, now: datetime.datetime) -> Steps:
    demand = observed.demand
    if observed.orphaned_at is not None:
        left = ORPHAN_SECONDS - _seconds(now - observed.orphaned_at)
        return (actions.RequeueAfter(seconds=left),) if left > 0 else (actions.ReleaseMemory(),)
    if observed.owner is marks.Owner.OURS and not _is_where_said(observed, demand):
        # A connection of ours without a record is restored for no claim and then detached, since its last user is
        # unknown.
        if observed.node is None or observed.host_id is None:
            return (actions.RequeueAfter(seconds=UNMAPPED_SECONDS),)
        return (actions.Restore(node=observed.node, host_id=observed.host_id),)
    if demand is None or demand.failure_reported:
        return ()
    pause = _after_pause(observed, now)
    if pause:
        return pause
    failure = _impossible(observed, demand, now) or observed.forbidden
    if failure is not None:
        return (actions.ReportFailed(demand=demand, failure=failure),)
    return _until_deadline(observed, now) if observed.present is None else (actions.Create(demand=demand),)


def _after_pause(observed: Observed, now: datetime.datetime) -> Steps:
    """Return the wait during the pause after the claim's failures; without it, the claim would fail as fast as it is allocated."""
    seconds = observed.pause_seconds(now)
    return (actions.RequeueAfter(seconds=seconds),) if seconds > 0 else ()


def _is_where_said(observed: Observed, demand: claim_index.Demand | None) -> bool:
    """Return whether the device is where its claim's status reports it; then the claim may be using it, and keeps it."""
    return (
        demand is not None
        and demand.attach_reported
        and not demand.failure_reported
        and observed.host_id == demand.host_id
        and observed.node == demand.node
    )


def _impossible(
    observed: Observed, demand: claim_index.Demand, now: datetime.datetime
) -> attachments.Failure | None:
    """Return why an attach cannot succeed, or not in time, or None if it may."""
    if observed.present is False:
        return attachments.Failure(
            reason=reasons.DEVICE_GONE, message="the fabric manager no longer lists the device"
        )
    if observed.present and demand.host_id is None:
        message = f"node {demand.node} is not a host of the fabric; map it in the Fabric's spec.hosts"
        return attachments.Failure(reason=reasons.NODE_NOT_ON_FABRIC, message=message)
    if observed.foreign or observed.host_id not in (None, demand.host_id):
        owner = (
            "and not by this cluster" if observed.foreign else "by this cluster, for an earlier allocation"
        )
        message = f"the device is attached to host {observed.host_id}, {owner}"
        return attachments.Failure(reason=reasons.DEVICE_IN_USE, message=message)
    if now < demand.seen_at + observed.patience:
        return None
    seconds, refused = observed.patience.total_seconds(), observed.attach.failure
    if observed.ahead and observed.attachment is not None and observed.attach.state is CallState.UNKNOWN:
        message = f"not attached within {seconds:.0f} s of the allocation: it {queued_message(observed.attachment, observed.ahead)}"
        return attachments.Failure(reason=reasons.DEVICE_NOT_RECOGNISED, message=message)
    words = _latest_refusal(observed)
    if refused is not None and refused.reason in (
        reasons.FABRIC_CREDENTIALS_REFUSED,
        reasons.OPERATION_PENDING,
        reasons.NO_CAPACITY,
    ):
        return refused
    if observed.attach.state in (CallState.UNASKED, CallState.UNKNOWN) and not observed.attach.age_seconds:
        # Nothing was ever begun, so neither device nor port is to blame. A call that ran is only due to be asked for
        # again.
        message = (
            f"the fabric manager did not take the request within {seconds:.0f} s of the allocation{words}"
        )
        return attachments.Failure(reason=reasons.FABRIC_UNREACHABLE, message=message)
    message = f"not attached within {seconds:.0f} s of the allocation{words or SEE_FABRIC}"
    return attachments.Failure(reason=reasons.ATTACH_DEADLINE_EXCEEDED, message=message)


def _latest_refusal(observed: Observed) -> str:
    """Return the fabric's latest refusal of the attach as the end of a sentence; empty without any."""
    if observed.attach.refused is not None:
        return f"; it refused last: {observed.attach.refused.message}"
    # Else the words recorded by the process before.
    recorded = observed.attachment.status.refusal if observed.attachment is not None else ""
    return f"; it refused last: {recorded}" if recorded else ""


def _until_deadline(observed: Observed, now: datetime.datetime) -> Steps:
    left = observed.seconds_left(now)
    return (actions.RequeueAfter(seconds=max(0.0, left)),) if left is not None else ()


def _bring_about(
    observed: Observed, attachment: attachments.DeviceAttachment, now: datetime.datetime
) -> Steps:
    demand, contradiction = observed.demand, observed.contradiction
    failure = _problem(observed, attachment)
    if demand is None and attachment.status.error is None:
        # An operator keeps a device that its node does not find.
        failure = None
    if failure is not None and _is_to_be_confirmed(observed, attachment, failure):
        assert contradiction is not None
        return _contradict(observed, attachment, contradiction, now)
    if failure is not None and not _is_ready_after_all(demand, failure):
        return _give_up(observed, attachment, failure, now)
    if demand is not None and demand.failed_at is not None:
        return _roll_back(observed, demand, now)
    if failure is not None:
        return (actions.RecordAttached(),)
    attached = attachment.holds(attachments.ATTACHED)
    settled = observed.attach.state in (CallState.SUCCEEDED, CallState.UNKNOWN)
    if observed.is_connected(attachment.spec.host_id) and (settled or attached):
        return _report_attached(observed, attachment, now)
    if contradiction is not None and not contradiction.is_over:
        return _contradict(observed, attachment, contradiction, now)
    if attached:
        # Not known, or to be confirmed: the device does not come back by itself, and the node reports its own view.
        return _until_ready(observed, attachment, now)
    return _connect(observed, now)


def _report_attached(
    observed: Observed, attachment: attachments.DeviceAttachment, now: datetime.datetime
) -> Steps:
    """Return the steps to record that the device is attached: the claim first, since the scheduler waits for it."""
    demand, shown = observed.demand, observed.contradiction
    is_due = demand is not None and not demand.attach_reported and observed.is_whole
    said = (actions.ReportAttached(demand=demand),) if demand is not None and is_due else ()
    rest = _until_ready(observed, attachment, now)
    if attachment.holds(attachments.ATTACHED):
        if shown is not None and shown.is_over:
            return _look_within((*said, *rest), shown.look_seconds)
        if outcomes.contradiction(attachment) is None:
            return (*said, *rest)
    return (*said, actions.RecordAttached(), *rest)


def _connect(observed: Observed, now: datetime.datetime) -> Steps:
    impossible = _impossible(observed, observed.demand, now) if observed.demand is not None else None
    if impossible is not None:
        return (actions.RecordFailure(failure=impossible),)
    if observed.present is None:
        return _until_deadline(observed, now)
    return _attach(observed, now)


def _problem(observed: Observed, attachment: attachments.DeviceAttachment) -> attachments.Failure | None:
    """Return why the attachment fails; if the fabric connects nothing, the node finds nothing."""
    failure, shown = outcomes.problem(attachment), observed.contradiction
    if failure is not None and shown is not None and shown.is_confirmed:
        is_shown = observed.is_connected(attachment.spec.host_id)
        if _is_blind(attachment, failure) and not is_shown:
            return _not_shown(attachment, shown)
    return failure


def _is_blind(attachment: attachments.DeviceAttachment, failure: attachments.Failure) -> bool:
    """Return whether only the node reports the failure, and finds no device."""
    return attachment.status.error is None and failure.reason == reasons.DEVICE_NOT_FOUND


def _is_to_be_confirmed(
    observed: Observed, attachment: attachments.DeviceAttachment, failure: attachments.Failure
) -> bool:
    """Return whether the next listing may show that the fabric manager, not the host, is the cause of the failure."""
    shown = observed.contradiction
    if shown is None or shown.is_over or shown.is_confirmed or observed.is_connected(attachment.spec.host_id):
        return False
    return _is_blind(attachment, failure) and shown.age_seconds < CONFIRM_SECONDS


def _is_seen(observed: Observed, attachment: attachments.DeviceAttachment) -> bool:
    """Return whether the node has seen the device, so that a pod may be using it."""
    said = observed.demand is not None and observed.demand.visible_reported
    return attachment.holds(attachments.VISIBLE) or attachment.status.node is not None or said


def _not_shown(
    attachment: attachments.DeviceAttachment,
    contradiction: contradictions.Contradiction,
    more: str = "",
    *,
    since: str = "",
) -> attachments.Failure:
    """Return a contradiction as a failure: another client has the device, or it is free."""
    spec = attachment.spec
    begin = f"{FORGOTTEN}: since {since} it" if since else f"{FORGOTTEN}: it"
    if contradiction.host_id is None:
        message = f"{begin} lists {spec.device_id} as free, not at host {spec.host_id}{more}"
        return attachments.Failure(reason=reasons.CONNECTION_NOT_SHOWN, message=message)
    message = (
        f"{begin} lists {spec.device_id} at host {contradiction.host_id}, not at host {spec.host_id} by this cluster, so "
        f"another client of the manager moved it{more}"
    )
    return attachments.Failure(reason=reasons.DEVICE_IN_USE, message=message)


def _contradict(
    observed: Observed,
    attachment: attachments.DeviceAttachment,
    contradiction: contradictions.Contradiction,
    now: datetime.datetime,
) -> Steps:
    """Return the steps after a contradiction: confirm it; then attach the device again, fail its claim, or report it.

    Nothing is done to a device that its node has seen, or that another client has.
    """
    if not contradiction.is_confirmed:
        if contradiction.look_seconds <= 0:
            return (actions.ReadFabric(), actions.RequeueAfter(seconds=READ_AGAIN_SECONDS))
        return _look_within(_until_ready(observed, attachment, now), contradiction.look_seconds)
    reason = reasons.CONNECTION_NOT_SHOWN if contradiction.host_id is None else reasons.CONNECTED_ELSEWHERE
    if _is_seen(observed, attachment):
        record = _record_contradiction(attachment, contradiction)
        message = _seen_message(attachment, contradiction, record)
        reported = _report_contradiction(attachment, reason, message, record=record)
        return (*reported, *_until_ready(observed, attachment, now))
    # A fabric that chooses the device may give another one.
    is_renewed = (
        contradiction.host_id is None
        and observed.attach.renewals < RENEWALS
        and attachment.status.device is None
    )
    left = observed.seconds_left(now)
    if is_renewed and (left is None or left > 0):
        more = f"; attached again, {observed.attach.renewals + 1} of {RENEWALS} times"
        message = _not_shown(attachment, contradiction, more).message
        report = actions.RecordContradiction(reason=reason, message=message, is_attached=False, renews=True)
        return (report, actions.Retry(side=outcomes.Side.ATTACH))
    times = (
        f", {observed.attach.renewals} times after it was attached again" if observed.attach.renewals else ""
    )
    if observed.demand is not None:
        return (actions.RecordFailure(failure=_not_shown(attachment, contradiction, times)),)
    more = f"{times}; look at the fabric manager, then {_release_hint(attachment.spec)}"
    return _report_contradiction(attachment, reason, _not_shown(attachment, contradiction, more).message)


def _record_contradiction(
    attachment: attachments.DeviceAttachment, contradiction: contradictions.Contradiction
) -> attachments.ContradictionRecord:
    """Return the record of a contradiction; the existing one while the manager shows the same."""
    recorded, host_id = attachment.status.contradiction, contradiction.host_id or ""
    if recorded is not None and recorded.host_id == host_id:
        return recorded
    return attachments.ContradictionRecord(since=contradiction.since, host_id=host_id)


def _seen_message(
    attachment: attachments.DeviceAttachment,
    contradiction: contradictions.Contradiction,
    record: attachments.ContradictionRecord,
) -> str:
    """Return the report on a device that its node has seen."""
    spec = attachment.spec
    more = (
        f"; node {spec.node_name} has seen the device, so nothing is changed under it; connect it to host {spec.host_id} again at "
        f"the fabric manager, or {_release_hint(spec)}"
    )
    return _not_shown(attachment, contradiction, more, since=record.since).message


def _release_hint(spec: attachments.AttachmentSpec) -> str:
    if spec.claim is None:
        return f"run drawbar fabric detach {spec.device_id} --fabric {spec.fabric}"
    return f"delete the pods of claim {spec.claim.namespace}/{spec.claim.name}"


def _report_contradiction(
    attachment: attachments.DeviceAttachment,
    reason: str,
    message: str,
    *,
    record: attachments.ContradictionRecord | None = None,
) -> Steps:
    """Return the report, or no step if it is already written. With a record the device stays attached."""
    said = meta.find(attachment.status.conditions, attachments.ATTACHED)
    wanted, is_attached = meta.cut(message), record is not None
    if said is not None and (said.is_true, said.reason, said.message) == (is_attached, reason, wanted):
        return ()
    return (
        actions.RecordContradiction(reason=reason, message=message, is_attached=is_attached, record=record),
    )


def _is_ready_after_all(demand: claim_index.Demand | None, failure: attachments.Failure) -> bool:
    """Return whether the node reported the device on the claim after the attach was given up, and in time for the claim."""
    return (
        failure.reason == reasons.NODE_NOT_RESPONDING
        and demand is not None
        and demand.visible_reported
        and not demand.failure_reported
    )


def _until_ready(
    observed: Observed, attachment: attachments.DeviceAttachment, now: datetime.datetime
) -> Steps:
    """Return the wait for a silent node, with a deadline; a node with a report has its own deadline."""
    demand = observed.demand
    if demand is None or demand.visible_reported or demand.failure_reported:
        return ()
    left = _seconds(demand.seen_at + observed.ready_patience - now)
    if left > 0:
        return (actions.RequeueAfter(seconds=left),)
    if not observed.is_whole:
        message = (
            f"the other devices of composite {attachment.spec.allocated} were not attached within "
            f"{observed.ready_patience.total_seconds():.0f} s of the allocation"
        )
        return (
            actions.RecordFailure(
                failure=attachments.Failure(reason=reasons.ATTACH_DEADLINE_EXCEEDED, message=message)
            ),
        )
    message = (
        f"node {attachment.spec.node_name} did not report the device as ready within "
        f"{observed.ready_patience.total_seconds():.0f} s of the allocation; look at its node daemon"
    )
    return (
        actions.RecordFailure(
            failure=attachments.Failure(reason=reasons.NODE_NOT_RESPONDING, message=message)
        ),
    )


def _roll_back(observed: Observed, demand: claim_index.Demand, now: datetime.datetime) -> Steps:
    """Return the wait, then the detach, for a failed allocation that neither the scheduler nor its pod's deletion takes back.

    There is none while a pod may be using the claim, because it was ready before it failed.
    """
    if demand.failed_at is None:
        return ()
    left = _seconds(demand.failed_at + observed.binding_timeout - now)
    return (actions.RequeueAfter(seconds=left),) if left > 0 else (actions.Delete(abandoned=demand),)


def _attach(observed: Observed, now: datetime.datetime) -> Steps:
    call = observed.attach
    if call.state is CallState.FAILED and call.failure is not None and not call.failure.retryable:
        return (actions.RecordFailure(failure=call.failure),)
    steps = _await_arrival(observed, now) if call.state is CallState.UNKNOWN else ()
    if not steps:
        reported = refusal_steps(observed.attachment, outcomes.Side.ATTACH, call)
        steps = (*reported, *_follow(outcomes.Side.ATTACH, call))
    return _look_within(steps, observed.seconds_left(now))


def refusal_steps(attachment: attachments.DeviceAttachment | None, side: outcomes.Side, call: Call) -> Steps:
    """Return the record of a refusal after which the call is repeated; no step if it is already written or changes too often.

    If only the words of a condition differ, it is not written at each attempt (`Call.is_report_due`). If the manager is
    not reached, it is never written again: the Fabric has the words, and an outage would write every attachment.
    """
    refused = call.refused
    if attachment is None or refused is None:
        return ()
    kind = attachments.ATTACHED if side is outcomes.Side.ATTACH else attachments.DETACHED
    said = meta.find(attachment.status.conditions, kind)
    message = f"{refused.message[: meta.MESSAGE_CHARS - len(AGAIN)]}{AGAIN}"
    if said is not None and said.status == "False" and said.reason == refused.reason:
        is_same = refused.reason == reasons.FABRIC_UNREACHABLE or said.message == message
        if is_same or not call.is_report_due:
            return ()
    return (actions.RecordRefusal(side=side, reason=refused.reason, words=refused.message, message=message),)


def _await_arrival(observed: Observed, now: datetime.datetime) -> Steps:
    """Return the wait until nothing else can be taken for a device that is recognised by its arrival; empty if nothing can."""
    attachment = observed.attachment
    if attachment is None:
        return ()
    if observed.ahead:
        said = meta.find(attachment.status.conditions, attachments.ATTACHED)
        is_said = said is not None and said.message == queued_message(attachment, observed.ahead)
        recorded = () if is_said else (actions.RecordQueued(ahead=observed.ahead),)
        return (*recorded, actions.RequeueAfter(seconds=QUEUE_LOOK_SECONDS))
    if observed.is_acknowledged:
        return ()
    left = _seconds((observed.listed_since or now) + datetime.timedelta(seconds=LISTING_SECONDS) - now)
    if left > 0:
        return (actions.RequeueAfter(seconds=left),)
    message = (
        f"node {attachment.spec.node_name} did not list its cards within {LISTING_SECONDS:.0f} s, and the device shows no "
        "identifier by which it could be recognised without that; look at its node daemon"
    )
    failure = attachments.Failure(reason=reasons.DEVICE_NOT_RECOGNISED, message=message)
    return (actions.RecordFailure(failure=failure),)


def queued_message(attachment: attachments.DeviceAttachment, ahead: str) -> str:
    """Return the message of an attachment that waits for another."""
    return (
        f"waits until node {attachment.spec.node_name} has recognised the device of DeviceAttachment {ahead}: both are recognised "
        "by their arrival alone, so only one at a time is attached to a node; see docs/recognition.md"
    )


def _give_up(
    observed: Observed,
    attachment: attachments.DeviceAttachment,
    failure: attachments.Failure,
    now: datetime.datetime,
) -> Steps:
    """Return the steps to give up: first the taint and the wait for it, or the scheduler would select the same device again.

    The node's report is recorded after the taint: the record permits the node to write to the claim.
    """
    demand = observed.demand
    if demand is None:
        return ()
    if observed.present and not observed.tainted and failure.reason not in outcomes.NOT_THE_DEVICE:
        return (actions.Taint(failure=failure),)
    recorded = () if attachment.status.error is not None else (actions.RecordFailure(failure=failure),)
    said = () if demand.failure_reported else (actions.ReportFailed(demand=demand, failure=failure),)
    return (*recorded, *said) or _roll_back(observed, demand, now)


def _release(observed: Observed, attachment: attachments.DeviceAttachment, now: datetime.datetime) -> Steps:
    """Return the detach once the node has released the device; a failed detach is repeated until the fabric reports it free."""
    is_ours = attachments.FINALIZER in attachment.metadata.finalizers
    if not is_ours and not observed.is_connected(attachment.spec.host_id):
        return (actions.ReportKept(),)
    if not (attachment.holds(attachments.RELEASED) or attachment.forced):
        if observed.node_gone_at is None:
            return ()
        if now < observed.node_gone_at:
            return (actions.RequeueAfter(seconds=_seconds(observed.node_gone_at - now)),)
    if observed.given_up:
        return (actions.RemoveFinalizer(),) if is_ours else (actions.ReportKept(),)
    return _detach(observed, attachment) if observed.present is not None else ()


def _detach(observed: Observed, attachment: attachments.DeviceAttachment) -> Steps:
    attach, call, host_id = observed.attach, observed.detach, attachment.spec.host_id
    # An unfinished attach goes first: it would undo the detach.
    if attach.state is CallState.UNASKED and not observed.is_connected(host_id):
        return (actions.QueryOperation(side=outcomes.Side.ATTACH),)
    if attach.state is CallState.RUNNING:
        return _cancel(outcomes.Side.ATTACH, attach)
    gone = (
        observed.present is False and call.failure is not None and call.failure.reason == reasons.DEVICE_GONE
    )
    detached = call.state is CallState.SUCCEEDED and observed.host_id != host_id
    if observed.foreign or detached or (call.state is CallState.FAILED and gone):
        return (actions.RemoveFinalizer(),)
    if call.state is CallState.SUCCEEDED and call.age_seconds > RECONNECTED_SECONDS:
        return _retry(outcomes.Side.DETACH, call)
    if call.state is CallState.RUNNING and call.age_seconds > DETACH_PATIENCE_SECONDS:
        return _cancel(outcomes.Side.DETACH, call)
    return (*refusal_steps(attachment, outcomes.Side.DETACH, call), *_follow(outcomes.Side.DETACH, call))


def _follow(side: outcomes.Side, call: Call) -> Steps:
    """Return the next step for a call whose effect does not show yet."""
    match call.state:
        case CallState.UNASKED:
            return (actions.QueryOperation(side=side),)
        case CallState.UNKNOWN:
            return (actions.CallFabric(side=side),)
        case CallState.SUCCEEDED if call.due:
            # The news of a change was lost. Reading a large fabric is expensive, so this does not happen again at once.
            seconds = max(READ_AGAIN_SECONDS, call.retry_after_seconds)
            return (actions.ReadFabric(), actions.RequeueAfter(seconds=seconds))
        case CallState.FAILED if call.due:
            return _retry(side, call)
        case CallState.RUNNING | CallState.SUCCEEDED | CallState.FAILED:
            return (actions.RequeueAfter(seconds=call.retry_after_seconds),)
        case _:
            assert_never(call.state)


def _cancel(side: outcomes.Side, call: Call) -> Steps:
    return (actions.Cancel(side=side), actions.RequeueAfter(seconds=call.retry_after_seconds))


def _retry(side: outcomes.Side, call: Call) -> Steps:
    """Return the retry; an operation that keeps the device busy has to be ended first, or it would block forever."""
    pending = call.failure is not None and call.failure.reason == reasons.OPERATION_PENDING
    return (*((actions.EndBlocker(),) if pending else ()), actions.Retry(side=side))


def _refuse_rivals(
    demand: claim_index.Demand | None, competing: Iterable[claim_index.Demand], now: datetime.datetime
) -> tuple[Steps, float | None]:
    """Return the failures of other claims for a device that was given to several by mistake; it stays with the first.

    Returns:
        the steps, and the seconds until a rival fails that may only overlap for a moment.
    """
    if demand is None:
        return (), None
    message = f"the device was given to claim {demand.claim.namespace}/{demand.claim.name} already"
    left = [(rival, OVERLAP_SECONDS - _seconds(now - rival.seen_at)) for rival in competing]
    refused = (_fail(rival, reasons.DEVICE_IN_USE, message) for rival, seconds in left if seconds <= 0)
    return tuple(itertools.chain(*refused)), min((sec for _, sec in left if sec > 0), default=None)


def _wait_for_release(
    observed: Observed, attachment: attachments.DeviceAttachment, now: datetime.datetime
) -> tuple[Steps, float | None]:
    """Return the failure of the next claim for a device in release, once its time is over, with the blocker of the release.

    Returns:
        the steps, and the seconds until the claim fails. A claim whose status has the device attached has it itself.
    """
    demand, left = observed.demand, observed.seconds_left(now)
    if demand is None or left is None or demand.failure_reported or demand.attach_reported:
        return (), None
    if left > 0:
        return (), left
    released = meta.find(attachment.status.conditions, attachments.RELEASED)
    why = f": {released.message}" if released is not None and released.message else ""
    message = f"the device is still being released from node {attachment.spec.node_name}{why}"
    return _fail(demand, reasons.ATTACH_DEADLINE_EXCEEDED, message), None


def _fail(demand: claim_index.Demand, reason: str, message: str) -> Steps:
    return (actions.ReportFailed(demand=demand, failure=attachments.Failure(reason=reason, message=message)),)


def _look_within(steps: Steps, seconds: float | None) -> Steps:
    """Return the steps with the next look no later than that; a step at the fabric is observed anyway."""
    if seconds is None or (steps and isinstance(steps[-1], actions.FabricAction | actions.Taint)):
        return steps
    if steps and isinstance(steps[-1], actions.RequeueAfter):
        seconds, steps = min(seconds, steps[-1].seconds), steps[:-1]
    return (*steps, actions.RequeueAfter(seconds=seconds))


def _seconds(period: datetime.timedelta) -> float:
    return period.total_seconds()
