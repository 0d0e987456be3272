"""What is observed of one attachment, and the closed list of what can be done about it; see `plan`."""

import datetime
from dataclasses import dataclass

from drawbar.driver.api import attachments
from drawbar.driver.node.attachments import matching
from drawbar.driver.node.health import verdicts
from drawbar.driver.node.inventory import model
from drawbar.driver.node.release import plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What came of the last try to make the device ready, in this run of the daemon.

    Attributes:
        card: as it was then; None: its slot was given power.
        lack: what was missing then, or why the kernel refused, in a clause; empty: it was ready.
        reason: one of `failures`, where the lack is of that kind.
        at: when.
        since: when the first such try was.
    """

    card: model.Card | None
    lack: str
    reason: str = ""
    at: datetime.datetime
    since: datetime.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Everything the decision rests on.

    Attributes:
        attachment: as the API server has it.
        match: which of this node's cards the device is.
        lack: what the card itself shows to be missing before it is ready.
        attempt: the last one.
        held_by: uid of the claim that was prepared with it on this node.
        boot_id: of the running kernel.
        since: when this daemon began to look.
        patience: how long a device may take to become ready.
        told: the claim knows of the failure.
        attached_at: when this daemon first saw the attachment `Attached`; None while it is not.
        visible_at: the same of `Visible`.
        leaving_at: when this daemon first saw that it is being deleted.
        health: what was judged of the device.
        leaving: the device as it was when its release was begun in this run of the daemon.
        released: what came of a release step in this round; None before it.
        cleaned: what came of cleaning it in this round: empty if no trace of the last use is left, else why not.
    """

    attachment: attachments.DeviceAttachment
    match: matching.Match
    lack: str | None
    attempt: Attempt | None
    held_by: str | None
    boot_id: str
    since: datetime.datetime
    patience: datetime.timedelta
    told: bool
    attached_at: datetime.datetime | None = None
    visible_at: datetime.datetime | None = None
    leaving_at: datetime.datetime | None = None
    health: verdicts.Verdict = verdicts.UNKNOWN
    leaving: model.Card | None = None
    released: plan.Outcome | None = None
    cleaned: str | None = None

    @property
    def card(self) -> model.Card | None:
        """The device, where it is known which card it is."""
        return self.match.card if isinstance(self.match, matching.Found) else None

    @property
    def ready(self) -> bool:
        """Whether the device, as it is now, was found to need nothing more."""
        attempt, card = self.attempt, self.card
        return (
            card is not None
            and self.lack is None
            and attempt is not None
            and attempt.card == card
            and not attempt.lack
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerSlot:
    """Switch the slot on in which the device waits; then look at it again."""

    slot: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Initialise:
    """Make the device ready, by its class; then plan again."""

    card: model.Card


@dataclass(frozen=True, slots=True, kw_only=True)
class Clean:
    """Take away what the last claim left on the device; then plan again."""

    card: model.Card


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Make the next step towards a host without the device; then plan again.

    Attributes:
        card: the device; None when the kernel shows it no more.
        slot: the slot that it is or was in; empty where there is none.
    """

    card: model.Card | None
    slot: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportVisible:
    """Say on the claim and on the attachment that the device is here and ready."""

    card: model.Card


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFailed:
    """Say on the attachment that the device will not become ready."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TellClaim:
    """Say on the claim that the device will not become ready."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportClean:
    """Say on the attachment that the device has no trace of an earlier use."""

    card: model.Card


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPlace:
    """Say on the attachment where the device is, before it cannot be recognised any more."""

    card: model.Card


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportHealth:
    """Say on the attachment what was judged of the device."""

    verdict: verdicts.Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportBlocked:
    """Say on the attachment, and in an Event, why the device cannot be given back now."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportReleased:
    """Say on the attachment that this node has let go of the device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAgain:
    """Nothing to do before that moment, unless something changes."""

    at: datetime.datetime


Deed = PowerSlot | Initialise | Clean | Release
"""What is done to the device; what came of it is observed."""
Word = (
    ReportVisible
    | ReportFailed
    | TellClaim
    | ReportClean
    | RecordPlace
    | ReportHealth
    | ReportBlocked
    | ReportReleased
)
"""What is written to the API server."""
Action = Deed | Word | LookAgain
