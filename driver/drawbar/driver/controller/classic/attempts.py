"""What is under way for each claim, and how it ends: in an allocation, or with everything given back; pure.

An attempt is nothing but the DeviceAttachments that name the claim. It ends in an allocation once all of them are
attached and visible, on the node where it began, whatever the scheduler selects meanwhile. It fails as a whole when one of
them fails, is being deleted, or takes too long, when its node dies, or when nobody wants the claim any more; then all its
devices are asked back, and only when the last of them is gone anything new is begun. The same way back is that of an
allocation that is to be given up.

Invariant: an allocation is cleared, and the finalizer taken off, only while no DeviceAttachment names the claim.
"""

import dataclasses
import datetime
import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from drawbar.driver.api import attachments, classic, handles
from drawbar.driver.controller.allocation import matching
from drawbar.driver.controller.attachments import plan as attachment_plan
from drawbar.driver.controller.classic import actions, claim_requests, memory

ABANDONED = "NobodyWaits"
NOT_READY = "DeviceNotReady"
NODE_GONE = "NodeGone"
RELEASED_EARLY = "DeviceReleased"
MIXED = "AttemptsMixed"
INCOMPLETE = "NoDeviceLeft"
TOO_LARGE = "AllocationTooLarge"


class State(enum.Enum):
    """How far a claim is."""

    IDLE = "nothing is held for it"
    UNDERWAY = "its devices are being attached"
    ALLOCATED = "it has them"
    LEAVING = "they are being given back"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One claim and what is held for it.

    Attributes:
        held: the attachments that name it, by their names.
        node: of the attempt; empty for a claim that is not under way.
    """

    claim: classic.Claim
    state: State
    held: tuple[attachments.DeviceAttachment, ...] = ()

    @property
    def node(self) -> str:
        """Where it is being attached; empty while it is not."""
        return self.held[0].spec.node_name if self.state is State.UNDERWAY else ""

    @property
    def began(self) -> str:
        """The moment of the attempt, which all its devices carry."""
        return self.held[0].spec.allocation_timestamp or ""

    @property
    def ready(self) -> bool:
        """Whether all its devices are attached and visible."""
        return not self.missing and all(is_ready(one) for one in self.held)

    @property
    def missing(self) -> int:
        """How many of its devices were never asked for, since something broke off in between."""
        return _planned(self.held) - len(self.held)

    def taken(self, request: matching.Request) -> int:
        """How many devices the request has already."""
        return sum(request_of(one) == request.name for one in self.held)

    def lacking(self, wanted: claim_requests.Wanted) -> tuple[matching.Request, ...]:
        """What is missing, as requests."""
        found = []
        left = self.missing
        for request in sorted(wanted.requests, key=lambda one: one.optional):
            short = min(left, request.count - self.taken(request))
            if short > 0:
                found.append(dataclasses.replace(request, count=short))
                left -= short
        return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What the end of an attempt depends on.

    Attributes:
        wanted_by: uids of the claims that somebody waits for.
        gone_at: by the name of an attachment from when on its node counts as gone, of nodes that are not there.
        patience: from the moment an attempt was first seen to giving it up.
        seen: by the name of an attachment when it was first seen to be for its claim.
    """

    wanted_by: frozenset[str]
    gone_at: Mapping[str, datetime.datetime]
    patience: datetime.timedelta
    seen: Mapping[str, datetime.datetime]


def is_ready(attachment: attachments.DeviceAttachment) -> bool:
    """Whether the fabric has connected it, and the node can use it."""
    return attachment.holds(attachments.ATTACHED) and attachment.holds(attachments.VISIBLE)


def request_of(attachment: attachments.DeviceAttachment) -> str:
    """The claim's request that got the device."""
    claim = attachment.spec.claim
    return claim.requests[0] if claim is not None and claim.requests else ""


def _planned(held: tuple[attachments.DeviceAttachment, ...]) -> int:
    claim = held[0].spec.claim if held else None
    return claim.devices if claim is not None else 0


def _attempt_of(one: attachments.DeviceAttachment) -> tuple[str, str | None, int]:
    """What all devices of one attempt have in common."""
    spec = one.spec
    return spec.node_name, spec.allocation_timestamp, spec.claim.devices if spec.claim is not None else 0


def begin(
    claim: classic.Claim,
    held: Iterable[attachments.DeviceAttachment],
    observed: Observed,
    notes: memory.Notebook,
    now: datetime.datetime,
) -> tuple[Attempt, list[actions.ForClaim]]:
    """How far a claim is, and the steps that need no decision about who gets what."""
    found = tuple(sorted(held, key=lambda one: one.metadata.name))
    if claim.going or (claim.deleting and claim.allocation is None):
        return _give_up(claim, found)
    if claim.allocation is not None:
        return _keep(claim, claim.allocation, found)
    failure = _failure(claim, found, observed, notes, now)
    if failure is not None:
        return _roll_back(claim, found, failure, notes)
    if found:
        return Attempt(claim=claim, state=State.UNDERWAY, held=found), _protect(claim)
    return Attempt(claim=claim, state=State.IDLE), []


def _protect(claim: classic.Claim) -> list[actions.ForClaim]:
    """The API server takes no new finalizers for what is being deleted."""
    return [] if claim.held or claim.deleting else [actions.Protect(claim=claim)]


def asked_back(
    claim: classic.Claim, held: Iterable[attachments.DeviceAttachment], *, reason: str = "", message: str = ""
) -> list[actions.ForClaim]:
    """Asks for the devices that were not asked back yet; with the first of them the claim's users hear the reason."""
    steps: list[actions.ForClaim] = []
    for one in held:
        if not one.deleting:
            said = reason if not steps else ""
            steps.append(actions.Detach(claim=claim, attachment=one, reason=said, message=message))
    return steps


def _give_up(
    claim: classic.Claim, held: tuple[attachments.DeviceAttachment, ...]
) -> tuple[Attempt, list[actions.ForClaim]]:
    """First the devices, then the allocation, then the finalizer: each only once the one before is gone."""
    attempt = Attempt(claim=claim, state=State.LEAVING, held=held)
    if held:
        return attempt, asked_back(claim, held)
    steps: list[actions.ForClaim] = []
    if claim.allocation is not None or claim.deallocation_requested:
        steps.append(actions.Free(claim=claim))
    if claim.held:
        steps.append(actions.Unprotect(claim=claim))
    return attempt, steps


def _keep(
    claim: classic.Claim,
    allocation: classic.Allocation,
    held: tuple[attachments.DeviceAttachment, ...],
) -> tuple[Attempt, list[actions.ForClaim]]:
    """An allocation stands. What the claim holds beside it was attached twice by a decision on an old view."""
    steps = _protect(claim)
    if allocation.handle is not None:
        named = {one.attachment for one in allocation.handle.devices}
        steps += asked_back(claim, (one for one in held if one.metadata.name not in named))
    return Attempt(claim=claim, state=State.ALLOCATED, held=held), steps


def _failure(
    claim: classic.Claim,
    held: tuple[attachments.DeviceAttachment, ...],
    observed: Observed,
    notes: memory.Notebook,
    now: datetime.datetime,
) -> attachments.Failure | None:
    """Why the attempt is over; None while it goes on."""
    if not held:
        return None
    for one in held:
        if one.deleting:
            message = f"DeviceAttachment {one.metadata.name} is being deleted"
            return one.status.error or attachments.Failure(reason=RELEASED_EARLY, message=message)
        # What a node reported is recorded as an error once the device has its taint: before that it could be picked again.
        if one.status.error is not None:
            return one.status.error
    if len(held) > _planned(held) or len({_attempt_of(one) for one in held}) > 1:
        message = "devices were asked for twice, by decisions on an old view"
        return attachments.Failure(reason=MIXED, message=message)
    gone_at = [observed.gone_at[one.metadata.name] for one in held if one.metadata.name in observed.gone_at]
    if gone_at and now >= max(gone_at):
        return attachments.Failure(reason=NODE_GONE, message=f"node {held[0].spec.node_name} is gone")
    if gone_at:
        notes.look_at(max(gone_at))
    if claim.uid not in observed.wanted_by:
        return attachments.Failure(reason=ABANDONED, message="no pod waits for it any more")
    return _too_late(held, observed, notes, now)


def _too_late(
    held: tuple[attachments.DeviceAttachment, ...],
    observed: Observed,
    notes: memory.Notebook,
    now: datetime.datetime,
) -> attachments.Failure | None:
    """The fabric's part has a deadline of its own; this one is for a node that says nothing."""
    late = [one for one in held if not is_ready(one)]
    if not late:
        return None
    end = observed.seen.get(late[0].metadata.name, now) + observed.patience
    notes.look_at(end)
    if now < end:
        return None
    seconds = observed.patience.total_seconds()
    message = f"{late[0].spec.device} is not ready on node {late[0].spec.node_name} after {seconds:.0f} s"
    return attachments.Failure(reason=NOT_READY, message=message)


def _roll_back(
    claim: classic.Claim,
    held: tuple[attachments.DeviceAttachment, ...],
    failure: attachments.Failure,
    notes: memory.Notebook,
) -> tuple[Attempt, list[actions.ForClaim]]:
    attempt = Attempt(claim=claim, state=State.LEAVING, held=held)
    if failure.reason != ABANDONED:
        notes.failed(
            claim.uid,
            held[0].spec.node_name,
            held[0].spec.allocation_timestamp or held[0].metadata.uid,
            by_device=failure.reason not in attachment_plan.NOT_THE_DEVICE | _NOT_THE_DEVICE,
        )
    return attempt, asked_back(claim, held, reason=failure.reason, message=failure.message)


_NOT_THE_DEVICE = frozenset({NOT_READY, NODE_GONE, RELEASED_EARLY, MIXED})


def handle(attempt: Attempt, without: tuple[str, ...]) -> handles.Handle:
    """The allocation that the attempt ends in."""
    return handles.Handle(
        node=attempt.node,
        allocated_at=attempt.began,
        devices=tuple(
            handles.HandleDevice(
                request=request_of(one),
                fabric=one.spec.fabric,
                pool=one.spec.pool,
                device=one.spec.device,
                attachment=one.metadata.name,
            )
            for one in attempt.held
        ),
        without=without,
    )


def too_large(handle: handles.Handle) -> str:
    """Why an allocation has no room for it; empty where it has."""
    try:
        handles.encode(handle)
    except handles.TooLarge as error:
        return str(error)
    return ""
