"""Devices that are recognised by their arrival are attached to a node one after the other."""

import datetime

import pytest
from tests.scenes import attachments as scenes
from tests.scenes.attachmentplan import NOW, attachment, call, demand, make_part_state

from drawbar.driver.api import attachments, meta
from drawbar.driver.catalogue import reasons
from drawbar.driver.controller import outcomes
from drawbar.driver.controller.attachments import actions, calls, identities, plan
from drawbar.driver.controller.attachments.plans import attach
from drawbar.driver.controller.fabrics import numbers
from drawbar.fabric import contract, witnesses
from drawbar.fabric.contract import DeviceClass
from drawbar.fabric.witnesses import Kind

SOLE = attachments.Identity(device_class="gpu", pci_id="10de:2330", sole_arrival=True)
OWN = attachment(identity=SOLE)
QUEUED = meta.Condition(
    type="Attached", status="False", reason="AttachQueued", message=attach.describe_queue(OWN, "f.x")
)


def next_steps(of=OWN, **changes):
    return plan.plan(make_part_state(attachment=of, attach=call("unknown"), **changes), NOW)


def test_the_second_device_waits_and_says_for_which():
    queued, again = next_steps(ahead="f.x")
    assert queued == actions.RecordQueued(ahead="f.x")
    assert again == actions.RequeueAfter(seconds=attach.QUEUE_LOOK_SECONDS)
    assert next_steps(attachment(QUEUED, identity=SOLE), ahead="f.x") == (again,)


def test_the_fabric_is_asked_once_the_node_has_listed_its_cards():
    (waits,) = next_steps(is_acknowledged=False, listed_since=NOW)
    assert isinstance(waits, actions.RequeueAfter)
    (call_fabric, *_) = next_steps(is_acknowledged=True, listed_since=NOW)
    assert call_fabric == actions.CallFabric(side=outcomes.Side.ATTACH)


def test_a_node_that_does_not_list_its_cards_fails_the_claim_before_anything_is_attached():
    long_ago = NOW - datetime.timedelta(seconds=attach.LISTING_SECONDS)
    (failed, *_) = next_steps(is_acknowledged=False, listed_since=long_ago)
    assert failed.failure.reason == reasons.DEVICE_NOT_RECOGNISED
    assert failed.failure.reason in outcomes.NOT_THE_DEVICE


def test_a_claim_that_waited_in_vain_says_for_which_device():
    late = demand(seen_at=NOW - datetime.timedelta(seconds=60))
    (failed, *_) = next_steps(demand=late, ahead="f.x")
    assert failed.failure.reason == reasons.DEVICE_NOT_RECOGNISED
    assert "DeviceAttachment f.x" in failed.failure.message


def at_fabric(**changes):
    return scenes.attachment(identity=SOLE, **changes)


RECOGNISED = attachments.NodeReport(recognised_by=attachments.Recognition(kind="sole-arrival"))


@pytest.mark.parametrize(
    ("other", "begun", "awaits"),
    [
        (at_fabric(), False, False),
        (at_fabric(), True, True),
        (at_fabric(), None, True),
        (scenes.attachment("Attached", identity=SOLE), False, True),
        (scenes.attachment("Attached", identity=SOLE, deleting=True), False, True),
        (scenes.attachment("Attached", identity=SOLE, node=RECOGNISED), True, False),
        (scenes.attachment("Attached", device_class="gpu"), True, False),
    ],
)
def test_an_attach_ends_with_the_recognition_or_with_the_attachment(other, begun, awaits):
    assert identities.awaits_recognition(other, begun=begun) == awaits


def identity(device_class="gpu", pci_id=""):
    return scenes.attachment(
        identity=attachments.Identity(device_class=device_class, pci_id=pci_id, sole_arrival=True)
    )


@pytest.mark.parametrize(
    ("first", "second", "could_be"),
    [
        (identity(pci_id="10de:2330"), identity(pci_id="10de:2330"), True),
        (identity(pci_id="10de:2330"), identity(pci_id="10de:2331"), False),
        (identity(pci_id="10de:2330"), identity(pci_id="0000:0000"), True),
        (identity(), identity("accelerator"), True),
        (identity(), identity("nvme"), False),
        (identity("fpga", "10ee:5004"), identity("fpga", "10ee:5005"), True),
    ],
)
def test_cards_of_one_model_could_be_mistaken(first, second, could_be):
    assert identities.could_be_mistaken(first, second) is could_be
    assert identities.could_be_mistaken(second, first) is could_be


def test_a_call_is_begun_from_the_request_until_it_is_refused():
    listed, attach = calls.Calls(), outcomes.Side.ATTACH
    assert listed.is_begun("u", attach) is None
    listed.note_no_call("u", attach)
    assert listed.is_begun("u", attach) is False
    listed.note_call("u", attach, NOW)
    assert listed.is_begun("u", attach) is True
    listed.note_no_call("u", attach)
    assert listed.is_begun("u", attach) is False


def device(name, serial="", **what):
    number = witnesses.identifier(Kind.PCIE_DSN, serial, "DSN")
    listed = (number,) if number is not None else ()
    return contract.Device(id=name, device_class=DeviceClass.GPU, identifiers=listed, **what)


def test_a_number_that_two_devices_have_identifies_neither():
    first, second = device("a", "9f210f69a42db048"), device("b", "9f210f69a42db048")
    listed = numbers.Numbers.from_devices([first, second])
    made = identities.identify(first, shared=listed.find_shared(first))
    assert [each.shared for each in made.identifiers] == [True]
    assert made.sole_arrival
    listed.remove(second)
    assert not identities.identify(first, shared=listed.find_shared(first)).sole_arrival


def test_a_serial_number_that_two_devices_have_is_shared_too():
    first, second = (
        contract.Device(id=name, device_class=DeviceClass.NVME, serial="S1 ") for name in ("a", "b")
    )
    listed = numbers.Numbers.from_devices([first, second])
    made = identities.identify(first, shared=listed.find_shared(first))
    assert (made.serial, [(each.kind, each.shared) for each in made.identifiers]) == ("", [("serial", True)])


def test_a_host_whose_ports_have_slots_needs_no_sole_arrival():
    ports = (contract.Port(id="1", state=contract.PortState.FREE, slot_hint="5"),)
    host = contract.Host(id="h", name="h", ports=ports)
    assert not identities.identify(device("a"), host=host).sole_arrival
    assert identities.identify(device("a")).sole_arrival
