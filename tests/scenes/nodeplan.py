"""What a node observes of one attachment, and how the tests of its plan compare the actions."""

import datetime
import functools

from tests.scenes import attachments as scenes
from tests.scenes import cards

from drawbar.driver.api import attachments, meta
from drawbar.driver.node.attachments import actions, matching
from drawbar.driver.node.inventory import model
from drawbar.fabric.contract import DeviceClass

START = datetime.datetime(2026, 1, 2, 3, 0, 0, tzinfo=datetime.UTC)
CLAIM = attachments.ClaimReference(namespace="ns", name="c", uid="claim-1")
SLOT = cards.slot("2")


def card(bus=2, **changes):
    """Return a disk in the slot with the number of its bus."""
    fields = {
        "vendor": 0x144D,
        "device": 0xA824,
        "driver": "nvme",
        "link": model.Link(speed_gts=16.0, width=4, max_speed_gts=16.0, max_width=4),
        "serial": "SN1",
        "slot": str(bus),
    }
    first = cards.function(f"0000:{bus:02x}:00.0", DeviceClass.NVME, **fields | changes)
    return model.Card(functions=(first,), slot=SLOT)


CARD = card()
ELSEWHERE = card(9)


def make_match(card=CARD, by="identifier"):
    return matching.Found(card=card, by=by)


def condition(kind, *, holds=True, reason="R", message="", at=START):
    return meta.Condition(
        type=kind,
        status="True" if holds else "False",
        reason=reason,
        message=message,
        last_transition_time=meta.timestamp(at),
    )


ATTACHED = condition(attachments.ATTACHED)
VISIBLE = condition(attachments.VISIBLE)
HERE = attachments.NodeReport(
    pci_address=CARD.address, kernel_driver="nvme", boot_id="boot-1", slot="2", claim_uid=CLAIM.uid
)


attachment = functools.partial(scenes.attachment, device_class="nvme", serial="SN1", claim=CLAIM)


def make_attempt(card=CARD, missing="", *, at=0, since=0, reason="", final=False):
    return actions.Attempt(
        card=card, missing=missing, reason=reason, final=final, at=moment(at), since=moment(since)
    )


def read_transition_time(of, kind):
    """Return when the condition became what it is, by the clock of this test; None unless it holds."""
    condition = meta.find(of.status.conditions, kind)
    return (
        meta.moment(condition.last_transition_time) if condition is not None and condition.is_true else None
    )


def make_observation(of, match=None, **changes):
    fields = {
        "missing": None,
        "attempt": None,
        "held_by": None,
        "boot_id": "boot-1",
        "since": START,
        "patience": datetime.timedelta(seconds=60),
        "claim_notified": False,
        "attached_at": read_transition_time(of, attachments.ATTACHED),
        "visible_at": read_transition_time(of, attachments.VISIBLE),
        "leaving_at": (of.deleting and meta.moment(of.metadata.deletion_timestamp)) or None,
    } | changes
    return actions.Observed(attachment=of, match=match or matching.Absent(), **fields)


def moment(seconds):
    return START + datetime.timedelta(seconds=seconds)


def brief(planned):
    """Return each action as its name with a detail that distinguishes it."""
    parts = ("reason", "at", "slot", "card")
    details = [
        next((getattr(action, part) for part in parts if hasattr(action, part)), None) for action in planned
    ]
    return [(type(action).__name__, more) for action, more in zip(planned, details, strict=True)]


def again(seconds):
    return [("LookAgain", moment(seconds))]
