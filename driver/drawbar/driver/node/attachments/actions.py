"""The observed state of one attachment, and the closed list of actions on it; see `plan`."""

import datetime

import msgspec

from drawbar.driver.api import attachments, parameters
from drawbar.driver.node.attachments import matching
from drawbar.driver.node.health import verdicts
from drawbar.driver.node.inventory import model
from drawbar.driver.node.treatment import plan as treatment_plan


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """The last attempt of this daemon to make the device ready.

    Attributes:
        card: the card at that time; None for an attempt to power the slot.
        missing: the missing requirement, or the kernel's refusal, in a clause; empty if the device was ready.
        memory: the claim's parameters of memory at that time.
        reason: the reason to report for a failure; empty for a reason by the card's state.
        final: whether another attempt would not help.
        at: the time of the attempt.
        since: the time of the first such attempt.
        waited: the time of the last wait for other members of the composite, whose deadlines are their own.
    """

    card: model.Card | None
    missing: str
    memory: parameters.Memory = msgspec.field(default_factory=parameters.Memory)
    reason: str = ""
    final: bool = False
    at: datetime.datetime
    since: datetime.datetime
    waited: datetime.datetime | None = None


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """Another member of the device's composite.

    Attributes:
        name: the name of its attachment.
        attachment: its attachment; None if this node has none.
        card: its card; None while the kernel does not show it.
        missing: the missing requirement of the card itself, in a clause.
    """

    name: str
    attachment: attachments.DeviceAttachment | None = None
    card: model.Card | None = None
    missing: str | None = None


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """The input of the plan.

    Attributes:
        attachment: the attachment at the API server.
        match: the match of the device with this node's cards.
        missing: the missing requirement of the card itself, in a clause.
        attempt: the last attempt to make the device ready.
        held_by: the UID of the claim that holds the device on this node, or is about to get it.
        boot_id: the ID of the running kernel's boot.
        since: the start of this daemon.
        patience: the time for a device to become ready.
        claim_notified: whether the failure is recorded on the claim.
        attached_at: the first sight of `Attached` by this daemon; None while it does not hold.
        visible_at: the first sight of `Visible`; None while it does not hold.
        leaving_at: the first sight of the deletion; None without one.
        health: the verdict on the device.
        sharers: the claims that hold a virtual function of the device on this node, each in a clause.
        offered: whether the node's pool still offers a virtual function of the device.
        leaving: the device at the beginning of its release by this daemon.
        treated: the outcome of a treatment step in this round; None before it.
        lagging: whether cards of this node may show identifiers without an event.
        hanging: the kinds and names of this node's objects whose reading hangs.
        has_returned: whether the card was taken out and put in again since the report on it.
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
    hanging: tuple[str, ...] = ()
    has_returned: bool = False

    @property
    def awaits_baseline(self) -> bool:
        """Return whether the controller waits for the node to list its cards."""
        attachment = self.attachment
        return (
            attachment.identity.sole_arrival
            and attachment.status.baseline is None
            and not attachment.holds(attachments.ATTACHED)
        )

    @property
    def is_recognition_new(self) -> bool:
        """Return whether the recognition must be reported: by sole arrival, or by an identifier after a weaker one."""
        if not isinstance(self.match, matching.Found):
            return False
        node = self.attachment.status.node
        recorded = node.recognised_by if node is not None and node.boot_id == self.boot_id else None
        if recorded is None:
            return self.match.by == matching.SOLE_ARRIVAL
        return self.match.is_proved and recorded.kind in (matching.SLOT, matching.SOLE_ARRIVAL)

    @property
    def may_be_disproved(self) -> bool:
        """Return whether the card was recognised by slot or arrival, and may still show an identifier."""
        match, node = self.match, self.attachment.status.node
        if not isinstance(match, matching.Found) or node is None or node.recognised_by is None:
            return False
        is_weak = not match.is_proved and node.recognised_by.kind in (matching.SLOT, matching.SOLE_ARRIVAL)
        return is_weak and matching.can_tell_more(self.attachment.identity, match.card)

    @property
    def card(self) -> model.Card | None:
        """Return the card of the device, or None while it cannot be identified."""
        return self.match.card if isinstance(self.match, matching.Found) else None

    @property
    def ready(self) -> bool:
        """Return whether the last attempt found the device ready, and the device has not changed since."""
        attempt, card = self.attempt, self.card
        return (
            card is not None
            and self.missing is None
            and attempt is not None
            and attempt.card == card
            and attempt.memory == self.attachment.spec.memory
            and not attempt.missing
        )


def keep_attempt(attempt: Attempt | None, match: matching.Match) -> Attempt | None:
    """Return the attempt, or None if its card has gone since: a card that comes back has to be made ready again."""
    if attempt is None or attempt.card is None:
        return attempt
    match match:
        case matching.Found(card=card):
            has_stayed = card.has_stayed(attempt.card.address, attempt.card.arrival)
        case matching.Absent(settles=False):
            has_stayed = False
        case _:
            has_stayed = True
    return attempt if has_stayed else None


class PowerSlot(msgspec.Struct, frozen=True, kw_only=True):
    """Power on the slot of the waiting device; then observe it again."""

    slot: str


class ListCards(msgspec.Struct, frozen=True, kw_only=True):
    """Remember the node's cards and acknowledge that on the attachment, before the fabric attaches the device."""


class Initialise(msgspec.Struct, frozen=True, kw_only=True):
    """Make the device ready, by its class; then plan again."""

    card: model.Card


class Treat(msgspec.Struct, frozen=True, kw_only=True):
    """Take the next step of the device's treatment for the next claim; then plan again."""

    card: model.Card


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """Take the next step of the treatment of a leaving device; then plan again.

    Attributes:
        card: the device; None if the kernel no longer shows it.
        slot: the device's present or last slot; empty without one.
    """

    card: model.Card | None
    slot: str


class ReportVisible(msgspec.Struct, frozen=True, kw_only=True):
    """Report on the claim and the attachment that the device is present and ready."""

    card: model.Card


class ReportFailed(msgspec.Struct, frozen=True, kw_only=True):
    """Report on the attachment that the device will not become ready."""

    reason: str
    message: str


class ReportToClaim(msgspec.Struct, frozen=True, kw_only=True):
    """Report on the claim that the device will not become ready."""

    reason: str
    message: str


class ReportClean(msgspec.Struct, frozen=True, kw_only=True):
    """Report on the attachment that the device has no trace of an earlier use."""

    card: model.Card


class RecordLocation(msgspec.Struct, frozen=True, kw_only=True):
    """Record the device's location on the attachment, while the device can be identified."""

    card: model.Card


class ReportHealth(msgspec.Struct, frozen=True, kw_only=True):
    """Report the verdict on the device's health on the attachment."""

    verdict: verdicts.Verdict


class ReportBlocked(msgspec.Struct, frozen=True, kw_only=True):
    """Report the obstacle to the device's release on the attachment and in an Event."""

    reason: str
    message: str


class ReportReleased(msgspec.Struct, frozen=True, kw_only=True):
    """Report on the attachment that this node has released the device."""


class LookAgain(msgspec.Struct, frozen=True, kw_only=True):
    """Look again at that time, or after an earlier change."""

    at: datetime.datetime


DeviceAction = PowerSlot | Initialise | Treat | Release
"""An action that changes the device. Its result is observed."""
Report = (
    ReportVisible
    | ReportFailed
    | ReportToClaim
    | ListCards
    | ReportClean
    | RecordLocation
    | ReportHealth
    | ReportBlocked
    | ReportReleased
)
"""An action that writes to the API server."""
Action = DeviceAction | Report | LookAgain
