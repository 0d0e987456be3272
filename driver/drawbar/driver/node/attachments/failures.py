"""The failures of attachments on the node: each has a reason of the catalogue, and a sentence with the remedy; pure."""

from collections.abc import Sequence

from drawbar.driver import wording
from drawbar.driver.api import attachments
from drawbar.driver.catalogue import reasons
from drawbar.driver.node.attachments import actions, matching, witnesses
from drawbar.driver.node.inventory import model

_NAMED = 4


def build_loss(
    attachment: attachments.DeviceAttachment, *, has_returned: bool = False
) -> actions.ReportFailed:
    """Return the failure of a device that has disappeared."""
    more = (
        " and came back while a claim was using it; delete the pods of the claim, and"
        if has_returned
        else ";"
    )
    message = f"{_describe(attachment)} disappeared from this node{more} look at its link and power"
    return actions.ReportFailed(reason=reasons.DEVICE_LOST, message=message)


def build_late(observed: actions.Observed) -> actions.ReportFailed:
    """Return the failure of a device that is not ready at its deadline."""
    match observed.match:
        case matching.Found(card=card):
            return build_not_ready(observed, card)
        case matching.Wrong(card=card, why=why, was_recognised=True):
            text = (
                f"{card.address} was taken for {_describe(observed.attachment)} and is another device: {why}; delete the pods that use "
                "it, and compare the identifiers at the fabric manager"
            )
            return actions.ReportFailed(reason=reasons.WRONG_DEVICE, message=text)
        case matching.Wrong(card=card, why=why):
            where = f"slot {card.first.slot}" if card.first.slot else card.address
            text = f"{where} has another device than {_describe(observed.attachment)}: {why}; look at the fabric's ports"
            return actions.ReportFailed(reason=reasons.WRONG_DEVICE, message=text)
        case matching.Ambiguous(cards=cards):
            text = f"several cards show the numbers of {_describe(observed.attachment)}: {_addresses(cards)}; take the others out"
            return actions.ReportFailed(reason=reasons.SERIAL_NOT_UNIQUE, message=text)
        case matching.Unrecognised():
            return _build_unrecognised(observed, observed.match)
        case matching.Unpowered(slot=slot):
            why = observed.attempt.missing if observed.attempt is not None else ""
            text = f"{_describe(observed.attachment)} waits for power in slot {slot.name}: {why or 'it was not switched on'}"
            return actions.ReportFailed(reason=reasons.SLOT_NOT_POWERED, message=text)
        case matching.Absent(slot=slot, silent=silent):
            return _build_absent(observed, slot, silent)


def _build_unrecognised(observed: actions.Observed, match: matching.Unrecognised) -> actions.ReportFailed:
    attachment = observed.attachment
    where = f" ({_addresses(match.cards)})" if match.cards else ""
    text = (
        f"{_describe(attachment)} was not recognised among the node's cards: {match.why}{where}; compared: "
        f"{matching.list_compared_kinds(attachment.identity)}. Have the fabric manager show a number that the node can read, such as a "
        "MAC address, a GPU UUID or a PCIe Device Serial Number. Otherwise attach one device at a time, and plug in no card by "
        "hand; see docs/recognition.md"
    )
    return actions.ReportFailed(reason=reasons.DEVICE_NOT_RECOGNISED, message=text)


def _addresses(cards: Sequence[model.Card]) -> str:
    """Return the addresses of the first cards, and the number of the others."""
    return wording.join_some([card.address for card in cards], _NAMED)


def find_dead_link(card: model.Card) -> str | None:
    """Return the problem of the card's link, in a clause; None for a working link, and for a device without a link."""
    link = card.first.link
    if link.max_speed_gts is None and link.max_width is None:
        return None
    if link.speed_gts is None or link.width is None:
        return "its PCI Express link is down"
    return None


def _build_absent(
    observed: actions.Observed, slot: model.Slot | None, silent: Sequence[model.Card]
) -> actions.ReportFailed:
    attachment, waited = observed.attachment, f"{observed.patience.total_seconds():.0f} s of the attach"
    if slot is not None and slot.present and slot.powered:
        text = f"slot {slot.name} has a card and power, and {_describe(attachment)} did not appear within {waited}"
        return actions.ReportFailed(
            reason=reasons.LINK_DOWN,
            message=f"{text}: its link did not come up; look at the cable and the port",
        )
    if slot is not None:
        slot_text = f"slot {slot.name} of this node"
    else:
        slot_text = f"the slot of host {attachment.spec.host_id}"
    hanging = ", ".join(observed.hanging[:_NAMED])
    look = (
        f"the kernel does not finish reading {hanging}: look at its log (dmesg), and at "
        if hanging
        else "look at "
    )
    text = f"no {_describe(attachment, is_present=False)} appeared within {waited}; {look}the link and {slot_text}"
    if silent:
        text = f"{text}. {_describe_silent(attachment, silent)}"
    return actions.ReportFailed(reason=reasons.DEVICE_NOT_FOUND, message=text)


def _describe_silent(attachment: attachments.DeviceAttachment, cards: Sequence[model.Card]) -> str:
    """Return a sentence about cards that may be the device, with the reason why the first does not show its numbers."""
    compared = witnesses.compare(attachment.identity, cards[0])
    numbers = [str(each) for each in compared if each.kind not in witnesses.MODEL_KINDS]
    return (
        f"Of its model is {_addresses(cards)}, without its {', '.join(numbers)}: bind its driver, or have the fabric manager show a "
        "number that the node can read"
    )


def build_not_ready(observed: actions.Observed, card: model.Card) -> actions.ReportFailed:
    """Return the failure of a card that is here and not ready."""
    attempt = observed.attempt
    missing = (
        observed.missing
        or (attempt.missing if attempt is not None else "")
        or find_dead_link(card)
        or "it is not known why"
    )
    if attempt is not None and attempt.reason:
        reason, missing = attempt.reason, attempt.missing
    elif observed.missing is not None and card.unassigned_bars:
        reason = reasons.RESOURCES_NOT_ASSIGNED
    elif observed.missing is not None:
        reason = reasons.DRIVER_NOT_BOUND if card.first.driver is None else reasons.NO_DEVICE_FILES
    elif find_dead_link(card) is not None:
        reason = reasons.LINK_DOWN
    else:
        reason = reasons.NOT_INITIALISED
    waited = f"{observed.patience.total_seconds():.0f} s"
    serial = observed.attachment.identity.serial
    name = f"{card.address} (serial {serial})" if serial else card.address
    if attempt is not None and attempt.final:
        return actions.ReportFailed(reason=reason, message=f"{name} was not made ready: {missing}")
    return actions.ReportFailed(reason=reason, message=f"{name} was not ready within {waited}: {missing}")


def _describe(attachment: attachments.DeviceAttachment, *, is_present: bool = True) -> str:
    serial, numbers = attachment.identity.serial, attachment.identity.identifiers
    article = "the device" if is_present else "device"
    if serial:
        return f"{article} with serial {serial}"
    return (
        f"{article} with {numbers[0].kind} {numbers[0].value}"
        if numbers
        else f"{article} {attachment.spec.device}"
    )
