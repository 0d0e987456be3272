"""Prepare of devices that are not ready for their claim: a pod with `spec.nodeName` asks for them before any scheduler would."""

import asyncio

import pytest
from tests.scenes import waiting

from drawbar.driver.api import attachments
from drawbar.driver.kube import kinds
from drawbar.driver.node import errors

LAST = ("last", "2025-12-31T00:00:00Z")
# What the attachment shows while the node or the controller is not done, and the Event's reason.
UNREADY = {
    "not-erased": ({"user": LAST}, "NotCleaned"),
    "not-clean-when-it-arrived": ({"visible": None, "user": False, "unclean": True}, "NotCleaned"),
    "hook-runs": ({"visible": None, "user": False}, "DeviceNotReady"),
    "hook-runs-on-a-device-that-stayed-attached": ({"user": ("", "")}, "DeviceNotReady"),
    "version-too-old": ({"visible": False, "user": False}, "DeviceFailed"),
    "refused-on-a-device-that-stayed-attached": ({"visible": False, "user": ("", "")}, "DeviceFailed"),
    "failed-by-the-controller": ({"error": "it did not come"}, "DeviceFailed"),
    "seen-by-its-serial-number-before-it-is-attached": ({"attached": False}, "DeviceNotAttached"),
    "not-made-ready-since-the-reboot": ({"boot_id": "boot-0"}, "DeviceNotReady"),
    "made-ready-for-an-earlier-allocation-of-the-claim": ({"user": "claim"}, "NotCleaned"),
}


def make_unready_attachment(world, uid, case, device="d1", **more):
    changes = dict(UNREADY[case][0])
    if changes.get("user") == "claim":
        changes["user"] = (uid, LAST[1])
    return world.make_full_attachment(device, uid, **changes, **more)


async def expect_refusal(world, name):
    with pytest.raises(errors.PrepareError) as error:
        await world.preparer.prepare(name)
    assert "\n" not in str(error.value)
    assert world.preparer.holders.list_devices() == frozenset()
    return error.value


@pytest.mark.parametrize("case", UNREADY)
async def test_an_unready_device_is_refused_to_its_claim(world, case):
    name = await world.claim()
    world.attached = [make_unready_attachment(world, name.uid, case)]
    for _ in range(2):
        assert (await expect_refusal(world, name)).reason == UNREADY[case][1]
        assert (world.cdi(), world.list_recorded_uids()) == ({}, [])
        await world.restart_preparer()
    assert world.recorder.reasons == [UNREADY[case][1]] * 2, "once for each daemon"
    world.attached = [world.make_full_attachment("d1", name.uid)]
    await world.preparer.prepare(name)
    assert world.list_recorded_uids() == [name.uid]


@pytest.mark.parametrize("case", ["not-erased", "hook-runs"])
async def test_the_kubelet_is_answered_as_soon_as_the_device_is_ready(world, case):
    name = await world.claim()
    await world.restart_preparer(waits=world.LONG)
    world.attached = [make_unready_attachment(world, name.uid, case)]
    task = asyncio.Task(world.preparer.prepare(name))
    await waiting.eventually(lambda: name.uid in world.preparer.holders._underway)
    world.preparer.wake()
    await asyncio.sleep(0)
    assert world.preparer.holders.find("p", "d1") is None, "so its node goes on with it"
    world.attached = [world.make_full_attachment("d1", name.uid)]
    world.preparer.wake()
    (prepared,) = await task
    assert prepared.device == "d1"


async def test_the_message_has_the_step_that_the_node_is_at(world):
    name = await world.claim()
    world.attached = [make_unready_attachment(world, name.uid, "hook-runs")]
    world.step = "its hook loads is running"
    assert str(await expect_refusal(world, name)) == (
        "device p/d1 is not ready for its claim on this node yet: its hook loads is running; trying again"
    )


async def test_a_claim_with_another_allocation_than_its_attachment_waits_for_the_new_one(world):
    name = await world.claim(results=())
    allocation = {
        "devices": {"results": [world.result("d1")]},
        "allocationTimestamp": "2026-01-02T00:00:00Z",
    }
    await world.set_status(kinds.CLAIM, "c1", {"allocation": allocation})
    # Without requests the attachment does not tell all, so the claim is read.
    world.attached = [world.attachment("d1", name.uid)]
    assert (await expect_refusal(world, name)).reason == "DeviceNotAttached"
    world.attached = [world.attachment("d1", name.uid, at="2026-01-02T00:00:00Z")]
    await world.preparer.prepare(name)


# --- claims that were prepared ---

FAILED_SINCE = {
    "failed": {"visible": False},
    "failed-by-the-controller": {"error": "it is broken"},
    "not-visible": {"visible": None},
}


@pytest.mark.parametrize("since", FAILED_SINCE)
@pytest.mark.parametrize("restarted", [False, True], ids=["", "after-a-restart"])
async def test_a_prepared_claim_keeps_its_device_although_that_has_failed(world, since, restarted):
    name = await world.prepare_claim()
    first = await world.preparer.prepare(name)
    world.attached = [world.make_full_attachment("d1", name.uid, **FAILED_SINCE[since])]
    if restarted:
        await world.restart_preparer()
        assert len(world.cdi()) == 1
    assert await world.preparer.prepare(name) == first


@pytest.mark.parametrize("since", FAILED_SINCE)
async def test_a_reboot_ends_the_preparation_of_a_claim(world, since):
    name = await world.prepare_claim()
    world.attached = [world.make_full_attachment("d1", name.uid, boot_id="boot-2", **FAILED_SINCE[since])]
    await world.restart_preparer("boot-2")
    await world.restart_preparer("boot-2")
    with pytest.raises(errors.PrepareError):
        await world.preparer.prepare(name)
    assert world.cdi() == {}
    world.attached = [world.make_full_attachment("d1", name.uid, boot_id="boot-2")]
    await world.preparer.prepare(name)


async def test_a_prepare_that_was_cut_short_is_no_way_to_a_device_that_has_failed_since(world):
    name = await world.prepare_claim()
    world.forget_cdi()
    await world.restart_preparer()
    world.attached = [world.make_full_attachment("d1", name.uid, visible=False)]
    with pytest.raises(errors.PrepareError, match="it fell out"):
        await world.preparer.prepare(name)
    assert world.cdi() == {}


async def test_a_record_of_an_earlier_allocation_is_no_way_to_the_next_one(world):
    name = await world.prepare_claim()
    world.attached = [
        make_unready_attachment(world, name.uid, "made-ready-for-an-earlier-allocation-of-the-claim")
    ]
    await world.restart_preparer()
    with pytest.raises(errors.DeviceLate, match="traces of an earlier use"):
        await world.preparer.prepare(name)


# --- devices that are not the claim's alone, or of several parts ---


@pytest.mark.parametrize(
    "case", [case for case in UNREADY if case != "made-ready-for-an-earlier-allocation-of-the-claim"]
)
async def test_admin_access_waits_for_the_device_as_its_holder_does(world, case):
    await world.allow_admin_access()
    admin = await world.claim(results=(world.result("d1", adminAccess=True),))
    world.attached = [make_unready_attachment(world, "holder", case)]
    assert (await expect_refusal(world, admin)).reason == UNREADY[case][1]
    world.attached = [world.make_full_attachment("d1", "holder")]
    await world.preparer.prepare(admin)


@pytest.mark.parametrize("case", UNREADY)
async def test_a_composite_waits_for_each_of_its_members(world, case):
    name = await world.claim(results=(world.result("pair"),))
    composite = attachments.Composite(name="pair", devices=("d1", "d2"))
    ready = [world.attachment(device, name.uid, composite=composite) for device in ("d1", "d2")]
    world.attached = [ready[0], make_unready_attachment(world, name.uid, case, "d2", composite=composite)]
    assert (await expect_refusal(world, name)).reason == UNREADY[case][1]
    assert world.list_recorded_uids() == []
    world.attached = ready
    assert [prepared.device for prepared in await world.preparer.prepare(name)] == ["pair", "pair"]


@pytest.mark.parametrize("case", UNREADY)
async def test_a_share_waits_until_its_memory_is_ready(world, case):
    name = await world.claim(results=(world.result("d1", shareID=world.share(0)),))
    (ready,) = world.shares([name])
    world.attached = [make_unready_attachment(world, name.uid, case, "share-0", share=ready.spec.share)]
    assert (await expect_refusal(world, name)).reason == UNREADY[case][1]
    world.attached = [ready]
    await world.preparer.prepare(name)


@pytest.mark.parametrize("case", UNREADY)
async def test_a_virtual_function_waits_for_the_card_that_is_lent(world, case):
    world.local.cards["n", "own"] = next(card for card in world.arrivals.cards if card.first.serial)
    name = await world.claim(results=(world.result("own", pool="n"),))
    world.local.lenders["n", "own"] = make_unready_attachment(world, "lender", case)
    message = str(await expect_refusal(world, name))
    assert message.startswith("device n/own is a virtual function of d1, which ")
    world.local.lenders["n", "own"] = world.make_full_attachment("d1", "lender")
    await world.preparer.prepare(name)
    world.local.lenders["n", "own"] = world.make_full_attachment("d1", "lender", visible=False)
    await world.preparer.prepare(name)


async def test_an_unclean_local_device_is_refused_and_kept_by_its_own_claim(world):
    world.local.cards["n", "own"] = next(card for card in world.arrivals.cards if card.first.serial)
    name = await world.claim(results=(world.result("own", pool="n"),))
    world.unclean["own"] = "its last user's data are being removed"
    for _ in range(2):
        assert (await expect_refusal(world, name)).reason == "NotCleaned"
        await world.restart_preparer()
    world.unclean.clear()
    first = await world.preparer.prepare(name)
    world.unclean["own"] = "its claim was allocated again meanwhile"
    await world.restart_preparer()
    assert await world.preparer.prepare(name) == first


async def test_admin_access_waits_for_the_cleaning_of_a_local_device(world):
    await world.allow_admin_access()
    world.local.cards["n", "own"] = next(card for card in world.arrivals.cards if card.first.serial)
    admin = await world.claim(results=(world.result("own", pool="n", adminAccess=True),))
    world.unclean["own"] = "its last user's data are being removed"
    assert (await expect_refusal(world, admin)).reason == "NotCleaned"
    assert world.asked == [("n", "own", None)]
