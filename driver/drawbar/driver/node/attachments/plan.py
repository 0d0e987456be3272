"""What the node owes one DeviceAttachment, decided purely.

Invariant: `ReportVisible` is planned only while the kernel shows the device with the serial of the attachment and it
is initialised, `ReportFailed` only while it is not, and `ReportReleased` only while no claim holds the device on this
node. Whatever is observed, once the plan is carried out there is nothing more to report until something changes.

A failure is reported once: the record `Visible: False` is what the controller acts on, and only the device's arrival
replaces it. The claim is told after the controller has tainted the device, which it says by recording the error: else
the scheduler could pick the device again before the taint. After a reboot the devices come anew, so they have as long as after an attach.

Source: design of the hand-over, `docs/architecture.md`; KEP-5007.
"""

import datetime
from dataclasses import dataclass

from drawbar.driver.api import attachments, meta

NOT_FOUND = "DeviceNotFound"
NO_DRIVER = "DriverNotBound"
NO_FILES = "NoDeviceFiles"
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
    """Everything the decision rests on.

    Attributes:
        attachment: as the API server has it.
        arrival: the device, if the kernel shows one with its serial.
        held_by: uid of the claim that was prepared with it on this node.
        boot_id: of the running kernel.
        since: when this daemon began to look.
        patience: how long a device may take to become ready.
        told: the claim knows of the failure.
    """

    attachment: attachments.DeviceAttachment
    arrival: Arrival | None
    held_by: str | None
    boot_id: str
    since: datetime.datetime
    patience: datetime.timedelta
    told: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportVisible:
    """Say on the claim and on the attachment that the device is here and ready."""

    arrival: Arrival


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
class ReportReleased:
    """Say on the attachment that this node has let go of the device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAgain:
    """Nothing to do before that moment, unless something changes."""

    at: datetime.datetime


Action = ReportVisible | ReportFailed | TellClaim | ReportReleased | LookAgain


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
    visible = meta.find(status.conditions, attachments.VISIBLE)
    if attached is None or not attached.is_true or attached.last_transition_time is None:
        return ()
    if visible is not None and visible.status == "False":
        if status.error is None or observed.told:
            return ()
        return (TellClaim(reason=visible.reason, message=visible.message),)
    if status.error is not None:
        return ()
    begun = meta.moment(attached.last_transition_time)
    rebooted = status.node is not None and status.node.boot_id != observed.boot_id
    vanished = visible is not None and observed.arrival is None
    if rebooted:
        begun = max(begun, observed.since)
    elif vanished:
        return (_lost(observed),)
    if now < begun + observed.patience:
        return (LookAgain(at=begun + observed.patience),)
    return (_lost(observed) if vanished else _never_ready(observed),)


def _lost(observed: Observed) -> ReportFailed:
    serial = observed.attachment.spec.identity.serial
    message = f"the device with serial {serial} disappeared from this node; look at its link and power"
    return ReportFailed(reason=LOST, message=message)


def _never_ready(observed: Observed) -> ReportFailed:
    spec, seconds = observed.attachment.spec, observed.patience.total_seconds()
    arrival = observed.arrival
    if arrival is None:
        message = (
            f"no device with serial {spec.identity.serial} appeared within {seconds:.0f} s of the attach; "
            f"look at the link and the slot of host {spec.host_id}"
        )
        return ReportFailed(reason=NOT_FOUND, message=message)
    lack = (
        f"its driver {arrival.driver} offers no device file; look at the kernel's log"
        if arrival.driver
        else "no kernel driver is bound; load the driver on this node"
    )
    message = f"{arrival.address} (serial {spec.identity.serial}) was not initialised within {seconds:.0f} s: {lack}"
    return ReportFailed(reason=NO_FILES if arrival.driver else NO_DRIVER, message=message)
