"""Why a device does not become ready, as a reason of the closed list and a sentence with the remedy. Pure.

The reasons are documented in `docs/conditions.md`.
"""

from dataclasses import dataclass

from drawbar.driver.api import attachments
from drawbar.driver.node.attachments import actions, matching
from drawbar.driver.node.inventory import model

NOT_FOUND = "DeviceNotFound"
WRONG = "WrongDevice"
NOT_UNIQUE = "SerialNotUnique"
NOT_POWERED = "SlotNotPowered"
LINK_DOWN = "LinkDown"
NO_DRIVER = "DriverNotBound"
NO_FILES = "NoDeviceFiles"
NOT_INITIALISED = "NotInitialised"
NOT_CLEANED = "NotCleaned"
LOST = "DeviceLost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One of the reasons, and what happened in words."""

    reason: str
    message: str


def lost(attachment: attachments.DeviceAttachment) -> Failure:
    """It was here, and is not."""
    message = f"{_name(attachment)} disappeared from this node; look at its link and power"
    return Failure(reason=LOST, message=message)


def late(observed: actions.Observed) -> Failure:
    """It has had its time and is not ready."""
    match observed.match:
        case matching.Found(card=card):
            return _not_ready(observed, card)
        case matching.Wrong(card=card, why=why):
            place = f"slot {card.first.slot}" if card.first.slot else card.address
            text = f"{place} has another device than {_name(observed.attachment)}: {why}; look at the fabric's ports"
            return Failure(reason=WRONG, message=text)
        case matching.Ambiguous(cards=cards):
            where = ", ".join(card.address for card in cards)
            text = f"several devices have the serial of {_name(observed.attachment)}: {where}; take the others out"
            return Failure(reason=NOT_UNIQUE, message=text)
        case matching.Unpowered(slot=slot):
            why = observed.attempt.lack if observed.attempt is not None else ""
            text = f"{_name(observed.attachment)} waits for power in slot {slot.name}: {why or 'nobody switched it on'}"
            return Failure(reason=NOT_POWERED, message=text)
        case matching.Absent(slot=slot):
            return _absent(observed, slot)


def dead_link(card: model.Card) -> str | None:
    """What is wrong with the card's link, in a clause; None for a link that runs, and for a device that has none."""
    link = card.first.link
    if link.max_speed_gts is None and link.max_width is None:
        return None
    if link.speed_gts is None or link.width is None:
        return "its PCI Express link is down"
    return None


def _absent(observed: actions.Observed, slot: model.Slot | None) -> Failure:
    attachment, waited = observed.attachment, f"{observed.patience.total_seconds():.0f} s of the attach"
    if slot is not None and slot.present and slot.powered:
        text = (
            f"slot {slot.name} has a card and power, and {_name(attachment)} did not appear within {waited}"
        )
        return Failure(
            reason=LINK_DOWN, message=f"{text}: its link did not come up; look at the cable and the port"
        )
    if slot is not None:
        place = f"slot {slot.name} of this node"
    else:
        place = f"the slot of host {attachment.spec.host_id}"
    text = f"no {_name(attachment, known=False)} appeared within {waited}; look at the link and {place}"
    return Failure(reason=NOT_FOUND, message=text)


def _not_ready(observed: actions.Observed, card: model.Card) -> Failure:
    attempt = observed.attempt
    lack = (
        observed.lack
        or (attempt.lack if attempt is not None else "")
        or dead_link(card)
        or "it is not known why"
    )
    if attempt is not None and attempt.reason:
        reason, lack = attempt.reason, attempt.lack
    elif observed.lack is not None:
        reason = NO_DRIVER if card.first.driver is None else NO_FILES
    elif dead_link(card) is not None:
        reason = LINK_DOWN
    else:
        reason = NOT_INITIALISED
    waited = f"{observed.patience.total_seconds():.0f} s"
    serial = observed.attachment.spec.identity.serial
    name = f"{card.address} (serial {serial})" if serial else card.address
    return Failure(reason=reason, message=f"{name} was not ready within {waited}: {lack}")


def _name(attachment: attachments.DeviceAttachment, *, known: bool = True) -> str:
    serial = attachment.spec.identity.serial
    article = "the device" if known else "device"
    return f"{article} with serial {serial}" if serial else f"{article} {attachment.spec.device}"
