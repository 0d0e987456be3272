"""What the node owes one attachment, decided purely: giving a device back."""

import datetime
import functools

import pytest
from tests.scenes import attachments as scenes

from drawbar.driver.api import attachments, meta
from drawbar.driver.node.attachments import actions, matching, plan
from drawbar.driver.node.inventory import model
from drawbar.driver.node.release import plan as release_plan
from drawbar.fabric.contract import DeviceClass

START = datetime.datetime(2026, 1, 2, 3, 0, 0, tzinfo=datetime.UTC)
CLAIM = attachments.ClaimReference(namespace="ns", name="c", uid="claim-1")


def card(bus=2, **changes):
    described = {
        "address": f"0000:{bus:02x}:00.0",
        "path": f"devices/pci0000:00/0000:{bus:02x}:00.0",
        "class_code": 0x010802,
        "device_class": DeviceClass.NVME,
        "vendor": 0x144D,
        "device": 0xA824,
        "subsystem_vendor": None,
        "subsystem_device": None,
        "driver": "nvme",
        "numa_node": None,
        "pcie_root": None,
        "link": model.Link(speed_gts=16.0, width=4, max_speed_gts=16.0, max_width=4),
        "serial": "SN1",
        "dsn": None,
        "dsn_hidden": False,
        "iommu_group": None,
        "sriov": None,
        "physical_function": None,
        "slot": str(bus),
        "device_nodes": (),
        "net_interfaces": (),
    } | changes
    return model.Card(functions=(model.PciFunction(**described),))


CARD = card()
ELSEWHERE = card(9)


def found(one=CARD, by="serial"):
    return matching.Found(card=one, by=by)


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
RELEASED = condition(attachments.RELEASED)
HERE = attachments.NodeReport(
    pci_address=CARD.address, kernel_driver="nvme", boot_id="boot-1", slot="2", claim_uid=CLAIM.uid
)


attachment = functools.partial(scenes.attachment, device_class="nvme", serial="SN1", claim=CLAIM)


def since(of, kind):
    """When the condition became what it is, by the clock of this test; None unless it holds."""
    known = meta.find(of.status.conditions, kind)
    return meta.moment(known.last_transition_time) if known is not None and known.is_true else None


def observed(of, match=None, **changes):
    known = {
        "lack": None,
        "attempt": None,
        "held_by": None,
        "boot_id": "boot-1",
        "since": START,
        "patience": datetime.timedelta(seconds=60),
        "told": False,
        "attached_at": since(of, attachments.ATTACHED),
        "visible_at": since(of, attachments.VISIBLE),
        "leaving_at": (of.deleting and meta.moment(of.metadata.deletion_timestamp)) or None,
    } | changes
    return actions.Observed(attachment=of, match=match or matching.Absent(), **known)


def moment(seconds):
    return START + datetime.timedelta(seconds=seconds)


def brief(planned):
    """An action as its name, with what tells it apart."""
    parts = ("reason", "at", "slot", "card")
    told = [next((getattr(one, part) for part in parts if hasattr(one, part)), None) for one in planned]
    return [(type(one).__name__, more) for one, more in zip(planned, told, strict=True)]


def again(seconds):
    return [("LookAgain", moment(seconds))]


GOING = attachment(ATTACHED, VISIBLE, node=HERE, deleting=True)
NEVER_HERE = attachment(ATTACHED, deleting=True)
GIVEN_BACK = attachment(ATTACHED, RELEASED, node=HERE, deleting=True)
BUSY = release_plan.Blocked(reason=release_plan.IN_USE, message="held by pid 1", seconds=2)
STUCK = release_plan.Blocked(reason=release_plan.STUCK, message="not for 12 s", seconds=2)
WORKING = release_plan.Working(seconds=0.5)
GONE = release_plan.Released()


def saying(reason, message):
    said = condition(attachments.RELEASED, holds=False, reason=reason, message=message)
    return attachment(ATTACHED, VISIBLE, said, node=HERE, deleting=True)


DEPARTURE = {
    "let-go": (observed(GOING, found()), 0, [("Release", "2")]),
    "let-go-though-gone": (observed(GOING), 0, [("Release", "2")]),
    "a-step-was-made": (observed(GOING, found(), released=WORKING), 1, again(1.5)),
    "released": (observed(GOING, released=GONE), 0, [("ReportReleased", None)]),
    "released-already": (observed(GIVEN_BACK), 0, []),
    "shows-up-though-released": (observed(GIVEN_BACK, found()), 0, [("Release", "2")]),
    "going-again-and-not-recognised": (observed(GIVEN_BACK, leaving=CARD), 0, [("Release", "2")]),
    "another-in-its-slot": (observed(GIVEN_BACK, found(by="slot")), 0, []),
    "back-and-without-a-driver": (
        observed(GIVEN_BACK, found(by="slot"), leaving=CARD),
        0,
        [("Release", "2")],
    ),
    "gone-again": (observed(GIVEN_BACK, found(), released=GONE), 0, []),
    "going-again": (observed(GIVEN_BACK, found(), released=WORKING), 0, again(0.5)),
    "another-is-in-its-slot": (observed(GIVEN_BACK, matching.Wrong(card=CARD, why="w")), 0, []),
    "never-arrived": (observed(NEVER_HERE), 0, [("ReportReleased", None)]),
    "never-attached": (observed(attachment(deleting=True)), 0, [("ReportReleased", None)]),
    "never-arrived-and-another-device-is-there": (
        observed(NEVER_HERE, matching.Wrong(card=CARD, why="w")),
        0,
        [("ReportReleased", None)],
    ),
    "in-the-slot-that-was-only-meant": (
        observed(attachment(deleting=True), found(by="slot")),
        0,
        [("ReportReleased", None)],
    ),
    "arrived-and-was-never-reported": (observed(NEVER_HERE, found()), 0, [("RecordPlace", CARD)]),
    "not-recognised-any-more": (observed(GOING, leaving=CARD), 0, [("Release", "2")]),
    "moved-with-a-reboot": (
        observed(GOING, found(ELSEWHERE), boot_id="boot-2"),
        0,
        [("RecordPlace", ELSEWHERE)],
    ),
    "gone-with-a-reboot": (observed(GOING, boot_id="boot-2"), 0, [("ReportReleased", None)]),
    "one-of-two": (
        observed(GOING, matching.Ambiguous(cards=(CARD, ELSEWHERE))),
        0,
        [("Release", "2")],
    ),
    "either-of-two": (
        observed(NEVER_HERE, matching.Ambiguous(cards=(CARD, ELSEWHERE))),
        0,
        [("ReportBlocked", plan.NOT_UNIQUE)],
    ),
    "held": (observed(GOING, found(), held_by="u"), 1, again(5)),
    "held-for-long": (observed(GOING, found(), held_by="u"), 5, [("ReportBlocked", plan.PREPARED)]),
    "blocked": (
        observed(GOING, found(), released=BUSY),
        1,
        [("ReportBlocked", release_plan.IN_USE), *again(3)],
    ),
    "blocked-and-said": (
        observed(saying(BUSY.reason, BUSY.message), found(), released=BUSY),
        1,
        again(3),
    ),
    "blocked-by-another": (
        observed(saying(BUSY.reason, "held by pid 2"), found(), released=BUSY),
        1,
        [("ReportBlocked", release_plan.IN_USE), *again(3)],
    ),
    "stuck-for-longer": (
        observed(saying(STUCK.reason, "not for 10 s"), found(), released=STUCK),
        1,
        again(3),
    ),
}


@pytest.mark.parametrize("case", DEPARTURE)
def test_each_departure_has_its_next_steps(case):
    seen, seconds, expected = DEPARTURE[case]
    assert [
        (name, value.address if name == "RecordPlace" else value)
        for name, value in brief(plan.plan(seen, moment(seconds)))
    ] == [(name, value.address if name == "RecordPlace" else value) for name, value in expected]
