"""What the node owes one DeviceAttachment, decided purely.

Invariant: `ReportVisible` is planned only while the kernel shows the device with the serial of the attachment, and
`ReportReleased` only while no claim holds the device on this node. Whatever is observed, carrying out the plan and
observing again ends in a plan without actions.

Source: design of the hand-over, `docs/architecture.md`; KEP-5007.
"""

import datetime
from dataclasses import dataclass

from drawbar.driver.api import attachments, meta

NOT_FOUND = "DeviceNotFound"
NO_DRIVER = "DriverNotBound"
LOST = "DeviceLost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """The device of the attachment as this node's kernel shows it.

    Attributes:
        address: PCI address, for people; never an identity.
        driver: the bound kernel driver, or empty.
        initialised: everything its class needs has happened (driver bound, device files there).
    """

    address: str
    driver: str
    initialised: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Everything the decision rests on."""

    attachment: attachments.DeviceAttachment
    arrival: Arrival | None
    held_by: str | None
    boot_id: str
    patience: datetime.timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportVisible:
    """Say on the claim and on the attachment that the device is here and ready."""

    arrival: Arrival


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFailed:
    """Say on the claim and on the attachment that the device will not become ready."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportReleased:
    """Say on the attachment that this node has let go of the device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAgain:
    """Nothing to do before that moment, unless something changes."""

    at: datetime.datetime


Action = ReportVisible | ReportFailed | ReportReleased | LookAgain


def plan(observed: Observed, now: datetime.datetime) -> tuple[Action, ...]:
    """The next safe steps; empty when there is nothing to do until something changes."""
    attachment = observed.attachment
    if attachment.deleting:
        if attachment.holds(attachments.RELEASED) or observed.held_by is not None:
            return ()
        return (ReportReleased(),)
    if observed.arrival is not None and observed.arrival.initialised:
        return () if _reported(observed) else (ReportVisible(arrival=observed.arrival),)
    return _wait(observed, now)


def _reported(observed: Observed) -> bool:
    """Whether what is recorded is what is seen. After a reboot or a move to another slot it is not."""
    node = observed.attachment.status.node
    return (
        observed.attachment.holds(attachments.VISIBLE)
        and node is not None
        and observed.arrival is not None
        and (node.boot_id, node.pci_address) == (observed.boot_id, observed.arrival.address)
    )


def _wait(observed: Observed, now: datetime.datetime) -> tuple[Action, ...]:
    status = observed.attachment.status
    attached = meta.find(status.conditions, attachments.ATTACHED)
    if (
        attached is None
        or not attached.is_true
        or attached.last_transition_time is None
        or status.error is not None
    ):
        return ()
    identity = observed.attachment.spec.identity
    if observed.arrival is None and observed.attachment.holds(attachments.VISIBLE):
        message = (
            f"the device with serial {identity.serial} disappeared from this node; look at its link and power"
        )
        return (ReportFailed(reason=LOST, message=message),)
    deadline = meta.moment(attached.last_transition_time) + observed.patience
    if now < deadline:
        return (LookAgain(at=deadline),)
    if observed.arrival is not None:
        return (
            ReportFailed(
                reason=NO_DRIVER,
                message=f"{observed.arrival.address} (serial {identity.serial}) was not initialised within "
                f"{observed.patience.total_seconds():.0f} s: no kernel driver bound; load the driver on this node",
            ),
        )
    return (
        ReportFailed(
            reason=NOT_FOUND,
            message=f"no device with serial {identity.serial} appeared within {observed.patience.total_seconds():.0f} s"
            f" of the attach; look at the link and the slot of host {observed.attachment.spec.host_id}",
        ),
    )
