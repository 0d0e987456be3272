"""The observed state of one attachment, and the closed list of actions on it; see `plan`."""

import datetime
from dataclasses import dataclass, field

from drawbar.driver.api import attachments, parameters
from drawbar.driver.node.attachments import matching
from drawbar.driver.node.health import verdicts
from drawbar.driver.node.inventory import model
from drawbar.driver.node.treatment import plan as treatment_plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The last attempt of this daemon to make the device ready.

    Attributes:
        card: as it was then; None: its slot was given power.
        missing: the missing requirement, or the refusal of the kernel, in a clause; empty if it was ready.
        reason: the reason of a failure, if the missing requirement is of that kind.
        at: its time.
        since: the time of the first such attempt.
        memory: what the claim made of it then.
        final: another attempt would not help.
        waited: when it last waited for other devices of its composite, which have a time of their own.
    """

    card: model.Card | None
    missing: str
    memory: parameters.Memory = field(default_factory=parameters.Memory)
    reason: str = ""
    final: bool = False
    at: datetime.datetime
    since: datetime.datetime
    waited: datetime.datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """Another member of the device's composite.

    Attributes:
        name: of its attachment.
        attachment: None where this node has none.
        card: None while the kernel does not show it.
        missing: the missing requirement that the card itself shows.
    """

    name: str
    attachment: attachments.DeviceAttachment | None = None
    card: model.Card | None = None
    missing: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The input of the plan.

    Attributes:
        attachment: as the API server has it.
        match: which of this node's cards the device is.
        missing: the missing requirement that the card itself shows.
        attempt: the last one.
        held_by: uid of the claim that was prepared with it on this node.
        sharers: the claims that were prepared with a virtual function of it on this node, each in a clause.
        offered: the node's pool still has a virtual function of it.
        boot_id: of the running kernel.
        since: when this daemon started.
        patience: how long a device may take to become ready.
        claim_notified: the failure is recorded on the claim.
        attached_at: when this daemon first saw the attachment `Attached`; None while it is not.
        visible_at: the same of `Visible`.
        leaving_at: when this daemon first saw that it is being deleted.
        health: the verdict on the device.
        leaving: the device as it was when its release was begun in this run of the daemon.
        treated: the outcome of a step of its treatment in this round; None before it.
        lagging: cards of this node may show identifiers without an event.
    """

    attachment: attachments.DeviceAttachment
    match: matching.Match
    missing: str | None
    attempt: Attempt | None
    held_by: str | None
    boot_id: str
    since: datetime.datetime
    patience: datetime.timedelta
    claim_notified: bool
    attached_at: datetime.datetime | None = None
    visible_at: datetime.datetime | None = None
    leaving_at: datetime.datetime | None = None
    health: verdicts.Verdict = verdicts.UNKNOWN
    sharers: tuple[str, ...] = ()
    offered: bool = False
    leaving: model.Card | None = None
    treated: treatment_plan.Outcome | None = None
    lagging: bool = False

    @property
    def awaits_baseline(self) -> bool:
        """Whether the controller waits for the node to list its cards."""
        attachment = self.attachment
        return (
            attachment.identity.sole_arrival
            and attachment.status.baseline is None
            and not attachment.holds(attachments.ATTACHED)
        )

    @property
    def is_recognition_new(self) -> bool:
        """Whether the report lacks how the device was recognised: by its arrival, or by an identifier that it did not show before."""
        if not isinstance(self.match, matching.Found):
            return False
        node = self.attachment.status.node
        recorded = node.recognised_by if node is not None and node.boot_id == self.boot_id else None
        if recorded is None:
            return self.match.by == matching.SOLE_ARRIVAL
        return self.match.is_proved and recorded.kind in (matching.SLOT, matching.SOLE_ARRIVAL)

    @property
    def may_be_disproved(self) -> bool:
        """Whether the card was recognised by slot or arrival, and may yet show an identifier of the device or of another one."""
        match, node = self.match, self.attachment.status.node
        if not isinstance(match, matching.Found) or node is None or node.recognised_by is None:
            return False
        is_weak = not match.is_proved and node.recognised_by.kind in (matching.SLOT, matching.SOLE_ARRIVAL)
        return is_weak and matching.can_tell_more(self.attachment.identity, match.card)

    @property
    def card(self) -> model.Card | None:
        """The card of the device, or None while it cannot be identified."""
        return self.match.card if isinstance(self.match, matching.Found) else None

    @property
    def ready(self) -> bool:
        """Whether the device, as it is now, was found to need nothing more."""
        attempt, card = self.attempt, self.card
        return (
            card is not None
            and self.missing is None
            and attempt is not None
            and attempt.card == card
            and attempt.memory == self.attachment.spec.memory
            and not attempt.missing
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerSlot:
    """Power the slot on in which the device waits; then observe it again."""

    slot: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListCards:
    """Remember the node's cards, and acknowledge it on the attachment, before the fabric is asked to attach the device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Initialise:
    """Make the device ready, by its class; then plan again."""

    card: model.Card


@dataclass(frozen=True, slots=True, kw_only=True)
class Treat:
    """Take the next step of the device's treatment for the next claim; then plan again."""

    card: model.Card


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Take the next step of the treatment by which the device leaves the node; then plan again.

    Attributes:
        card: the device; None if the kernel no longer shows it.
        slot: the slot that it is or was in; empty if there is none.
    """

    card: model.Card | None
    slot: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportVisible:
    """Report on the claim and the attachment that the device is present and ready."""

    card: model.Card


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFailed:
    """Report on the attachment that the device will not become ready."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportToClaim:
    """Report on the claim that the device will not become ready."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportClean:
    """Report on the attachment that the device has no trace of an earlier use."""

    card: model.Card


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPlace:
    """Record on the attachment where the device is, before it cannot be identified any more."""

    card: model.Card


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportHealth:
    """Report the verdict on the device's health on the attachment."""

    verdict: verdicts.Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportBlocked:
    """Report on the attachment and in an Event why the device cannot be released now."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportReleased:
    """Report on the attachment that this node has released the device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAgain:
    """Nothing to do before that moment, unless something changes."""

    at: datetime.datetime


DeviceAction = PowerSlot | Initialise | Treat | Release
"""Changes the device; the result is observed."""
Report = (
    ReportVisible
    | ReportFailed
    | ReportToClaim
    | ListCards
    | ReportClean
    | RecordPlace
    | ReportHealth
    | ReportBlocked
    | ReportReleased
)
"""Writes to the API server."""
Action = DeviceAction | Report | LookAgain
