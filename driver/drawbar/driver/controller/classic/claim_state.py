"""The state of each claim, and the end of an attempt to allocate it: an allocation, or the release of all devices; pure.

An attempt consists of the DeviceAttachments that name the claim. It ends in an allocation once all of them are attached
and visible, on its first node, even if the scheduler selects another one meanwhile. It fails as a whole in these cases:
one attachment fails, is being deleted, or takes too long; the node is gone; no requester waits for the claim any more.
Then all its devices are released, and a new attempt begins only when the last of them is gone. An allocation that is to
be given up is undone in the same way.

Invariant: an allocation is cleared, and the finalizer removed, only while no DeviceAttachment names the claim.
"""

import enum
from collections.abc import Iterable

import msgspec

from drawbar.driver.api import attachments, classic, handles
from drawbar.driver.catalogue import reasons
from drawbar.driver.controller import outcomes
from drawbar.driver.controller.allocation import matching
from drawbar.driver.controller.classic import actions, claim_requests, history, observation

_Held = tuple[attachments.DeviceAttachment, ...]


class State(enum.Enum):
    """The state of a claim."""

    IDLE = "nothing is held for it"
    UNDERWAY = "its devices are being attached"
    ALLOCATED = "it has them"
    LEAVING = "they are being released"


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One claim and its attachments.

    Attributes:
        held: the attachments that name it, ordered by their names.
    """

    claim: classic.Claim
    state: State
    held: _Held = ()

    @property
    def node(self) -> str:
        """Return the node of the attach; empty while none is in progress."""
        return self.held[0].spec.node_name if self.state is State.UNDERWAY else ""

    @property
    def began(self) -> str:
        """Return the time of the attempt, which all its devices carry."""
        return self.held[0].spec.allocation_timestamp or ""

    @property
    def ready(self) -> bool:
        """Return whether all its devices are attached and visible."""
        return not self.missing and all(is_ready(attachment) for attachment in self.held)

    @property
    def missing(self) -> int:
        """Return the number of attachments that were not made, because of a crash or an error."""
        return _count_planned(self.held) - len(self.held)

    def count_taken(self, request: matching.Request) -> int:
        """Return the number of devices that the request already has."""
        return sum(request_of(attachment) == request.name for attachment in self.held)

    def find_missing_requests(self, requests: claim_requests.ClaimRequests) -> tuple[matching.Request, ...]:
        """Return the missing devices as requests."""
        missing = []
        left = self.missing
        for request in sorted(requests.requests, key=lambda request: request.optional):
            short = min(left, request.count - self.count_taken(request))
            if short > 0:
                missing.append(msgspec.structs.replace(request, count=short))
                left -= short
        return tuple(missing)

    def handle(self, requests: claim_requests.ClaimRequests) -> handles.Handle:
        """Return the allocation at the end of the attempt."""
        return handles.Handle(
            node=self.node,
            allocated_at=self.began,
            devices=tuple(
                handles.HandleDevice(
                    request=request_of(attachment),
                    fabric=attachment.spec.fabric,
                    pool=attachment.spec.pool,
                    device=attachment.spec.device,
                    attachment=attachment.metadata.name,
                )
                for attachment in self.held
            ),
            without=tuple(
                request.name
                for request in requests.requests
                if request.optional and not self.count_taken(request)
            ),
        )


def is_ready(attachment: attachments.DeviceAttachment) -> bool:
    """Return whether the fabric has connected the device, and the node can use it."""
    return attachment.holds(attachments.ATTACHED) and attachment.holds(attachments.VISIBLE)


def request_of(attachment: attachments.DeviceAttachment) -> str:
    """Return the claim's request that gets the device."""
    claim = attachment.spec.claim
    return claim.requests[0] if claim is not None and claim.requests else ""


def too_large(handle: handles.Handle) -> str:
    """Return why an allocation has no room for the handle; empty if it has."""
    try:
        handles.encode(handle)
    except handles.TooLarge as error:
        return str(error)
    return ""


def _count_planned(held: _Held) -> int:
    claim = held[0].spec.claim if held else None
    return claim.devices if claim is not None else 0


def begin(
    claim: classic.Claim,
    attached: Iterable[attachments.DeviceAttachment],
    observed: observation.Round,
    past: history.History,
    *,
    is_awaited: bool,
) -> tuple[Attempt, list[actions.ForClaim]]:
    """Return the state of a claim, and the steps that need no decision between requesters.

    Args:
        claim: one of this driver's claims.
        attached: the attachments that name it.
        observed: the observed state of the round.
        past: the history that counts failures.
        is_awaited: whether a requester waits for the claim.
    """
    held = tuple(sorted(attached, key=lambda attachment: attachment.metadata.name))
    if claim.going or (claim.deleting and claim.allocation is None):
        return _give_up(claim, held)
    if claim.allocation is not None:
        # Further attachments than the allocation's come from a decision on a stale view.
        handle = claim.allocation.handle
        named = {device.attachment for device in handle.devices} if handle is not None else set()
        extra = [
            attachment for attachment in held if handle is not None and attachment.metadata.name not in named
        ]
        attempt = Attempt(claim=claim, state=State.ALLOCATED, held=held)
        return attempt, [*_protect(claim), *release(claim, extra)]
    if not held:
        return Attempt(claim=claim, state=State.IDLE), []
    failure = _failure(held, observed, past, is_awaited=is_awaited)
    if failure is None:
        return Attempt(claim=claim, state=State.UNDERWAY, held=held), _protect(claim)
    if failure.reason != reasons.NOBODY_WAITS:
        past.count_failure(
            claim.uid,
            held[0].spec.node_name,
            held[0].spec.allocation_timestamp or held[0].metadata.uid,
            by_device=failure.reason not in outcomes.NOT_THE_DEVICE,
        )
    steps = release(claim, held, reason=failure.reason, message=failure.message)
    return Attempt(claim=claim, state=State.LEAVING, held=held), steps


def _protect(claim: classic.Claim) -> list[actions.ForClaim]:
    """Return the step to add the finalizer; the API server takes no new finalizers during a deletion."""
    return [] if claim.has_finalizer or claim.deleting else [actions.Protect(claim=claim)]


def release(
    claim: classic.Claim, held: Iterable[attachments.DeviceAttachment], *, reason: str = "", message: str = ""
) -> list[actions.ForClaim]:
    """Return the steps that release the devices; the first of them reports the reason to the claim's users."""
    steps: list[actions.ForClaim] = []
    for attachment in held:
        if not attachment.deleting:
            first_reason = "" if steps else reason
            steps.append(
                actions.Detach(claim=claim, attachment=attachment, reason=first_reason, message=message)
            )
    return steps


def _give_up(claim: classic.Claim, held: _Held) -> tuple[Attempt, list[actions.ForClaim]]:
    """Return the steps to give up a claim: first the devices, then the allocation, then the finalizer, one at a time."""
    attempt = Attempt(claim=claim, state=State.LEAVING, held=held)
    if held:
        return attempt, release(claim, held)
    steps: list[actions.ForClaim] = []
    if claim.allocation is not None or claim.deallocation_requested:
        steps.append(actions.Free(claim=claim))
    if claim.has_finalizer:
        steps.append(actions.Unprotect(claim=claim))
    return attempt, steps


def _failure(
    held: _Held,
    observed: observation.Round,
    past: history.History,
    *,
    is_awaited: bool,
) -> attachments.Failure | None:
    """Return why the attempt is over, or None while it goes on."""
    for attachment in held:
        if attachment.deleting:
            message = f"DeviceAttachment {attachment.metadata.name} is being deleted"
            return attachment.status.error or attachments.Failure(
                reason=reasons.DEVICE_RELEASED, message=message
            )
        # A node's report becomes an error once the device has its taint; before that, it could be selected again.
        if attachment.status.error is not None:
            return attachment.status.error
    node = held[0].spec.node_name
    attempts = {
        (
            attachment.spec.node_name,
            attachment.spec.allocation_timestamp,
            attachment.spec.claim and attachment.spec.claim.devices,
        )
        for attachment in held
    }
    if len(held) > _count_planned(held) or len(attempts) > 1:
        message = "devices were asked for twice, by decisions on an old view"
        return attachments.Failure(reason=reasons.ATTEMPTS_MIXED, message=message)
    gone_at = [
        observed.gone_at[attachment.metadata.name]
        for attachment in held
        if attachment.metadata.name in observed.gone_at
    ]
    if gone_at:
        if past.now >= max(gone_at):
            return attachments.Failure(reason=reasons.NODE_GONE, message=f"node {node} is gone")
        past.wake(max(gone_at))
    if not is_awaited:
        return attachments.Failure(reason=reasons.NOBODY_WAITS, message="no pod waits for it any more")
    # The fabric's part has a deadline of its own; this one is for a node without a report.
    late = next((attachment for attachment in held if not is_ready(attachment)), None)
    if late is None:
        return None
    end = observed.seen.get(late.metadata.name, past.now) + observed.patience
    if past.now < end:
        past.wake(end)
        return None
    seconds = observed.patience.total_seconds()
    message = f"{late.spec.device} is not ready on node {node} after {seconds:.0f} s"
    return attachments.Failure(reason=reasons.DEVICE_NOT_READY, message=message)
