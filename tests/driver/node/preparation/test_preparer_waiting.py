"""Prepare while devices are late, while others prepare, and while a release waits."""

import asyncio
import contextlib
import dataclasses
import json
import threading

import msgspec
import pytest
from tests.scenes import waiting as scenes

from drawbar.driver.api import attachments
from drawbar.driver.node import errors
from drawbar.driver.node.preparation import limits, store
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks import sysfs

CANCELLED = contextlib.suppress(asyncio.CancelledError)


async def start_prepares(world, *names):
    """Return tasks that prepare these claims, and have come as far as they get."""
    tasks = [asyncio.Task(world.preparer.prepare(name)) for name in names]
    async with asyncio.timeout(120):
        while not all(name.uid in world.preparer.holders._underway for name in names):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    return tasks


async def make_late_claim(world, waits=None):
    """Return a claim whose disk is absent; the daemon waits for the disk."""
    name = await world.claim()
    await world.unplug("d1")
    await world.restart_preparer(waits=waits or world.LONG)
    world.attached = [world.make_full_attachment("d1", name.uid)]
    return name


async def test_a_device_that_comes_late_is_waited_for(world):
    name = await make_late_claim(world)
    (task,) = await start_prepares(world, name)
    await world.plug("d1")
    world.preparer.wake()
    (prepared,) = await task
    assert prepared.device == "d1"


async def test_a_device_whose_driver_comes_late_is_waited_for(world):
    slot, serial = 3, "00-00-00-00-00-00-12-34"
    ready = sysfs.MockDevice(device_class=DeviceClass.GPU, vendor=0x1002, device=0x740F, serial=serial)
    name = await world.claim()
    attachment = world.make_full_attachment("d1", name.uid)
    identity = attachments.Identity(device_class="gpu", serial=serial)
    await asyncio.to_thread(world.tree.attach, slot, dataclasses.replace(ready, driver=""))
    await world.arrivals.read()
    node = msgspec.structs.replace(attachment.status.node, pci_address=world.tree.address(slot))
    world.attached = [
        msgspec.structs.replace(
            attachment,
            spec=msgspec.structs.replace(attachment.spec, identity=identity),
            status=msgspec.structs.replace(attachment.status, node=node),
        )
    ]
    with pytest.raises(errors.DeviceLate, match="p/d1 is not ready on this node: no kernel driver"):
        await world.preparer.prepare(name)
    assert world.cdi() == {}
    await world.restart_preparer(waits=world.LONG)
    (task,) = await start_prepares(world, name)
    await asyncio.to_thread(world.tree.detach, slot)
    await asyncio.to_thread(world.tree.attach, slot, ready)
    await world.arrivals.read()
    world.preparer.wake()
    await task
    (file,) = world.cdi_dir.glob("*.json")
    assert json.loads(file.read_text())["devices"][0]["containerEdits"]["deviceNodes"]


async def test_an_attachment_that_comes_late_is_waited_for(world):
    name = await world.claim()
    await world.restart_preparer(waits=world.LONG)
    (task,) = await start_prepares(world, name)
    world.attached = [world.attachment("d1", name.uid)]
    world.preparer.wake()
    (prepared,) = await task
    assert prepared.device == "d1"


async def test_the_wait_continues_until_the_device_appears(world):
    name = await make_late_claim(world)
    (task,) = await start_prepares(world, name)
    for _ in range(3):
        world.preparer.wake()
        await asyncio.sleep(0)
    assert not task.done()
    await world.plug("d1")
    world.preparer.wake()
    assert await task


async def test_a_wait_ends_at_its_limit_with_the_reason(world):
    name = await make_late_claim(world, limits.Limits(late_device_seconds=0.05))
    with pytest.raises(errors.DeviceLate, match=r"p/d1 .* not visible on this node yet"):
        await world.preparer.prepare(name)


async def test_a_wait_ends_at_once_when_the_device_is_taken_away(world):
    name = await make_late_claim(world)
    (task,) = await start_prepares(world, name)
    world.attached = [world.make_full_attachment("d1", name.uid, deleting=True)]
    world.preparer.wake()
    with pytest.raises(errors.PrepareError, match="is being detached"):
        await task


async def test_a_device_counts_as_held_from_when_it_is_ready_and_no_longer_than_its_prepare(world):
    name = await make_late_claim(world)
    (task,) = await start_prepares(world, name)
    assert world.preparer.holders.list_devices() == frozenset(), "so its node goes on with it"
    with world.locking():
        await world.plug("d1")
        world.preparer.wake()
        await scenes.eventually(lambda: world.preparer.holders.find("p", "d1"))
        assert world.preparer.holders.find("p", "d1") == name.uid
        assert world.preparer.holders.find("p", "d2") is None
        task.cancel()
        with CANCELLED:
            await task
    assert world.preparer.holders.find("p", "d1") is None
    assert world.released == [("p", "d1")], "the waiting release is notified"


async def test_a_slow_claim_holds_up_no_other(world):
    slow, quick = await world.claim("c1"), await world.claim("c2", results=(world.result("d2"),))
    await world.unplug("d1")
    await world.restart_preparer(waits=world.LONG)
    world.attached = [world.make_full_attachment("d1", slow.uid), world.make_full_attachment("d2", quick.uid)]
    (task,) = await start_prepares(world, slow)
    await world.preparer.prepare(quick)
    await world.preparer.unprepare(quick)
    assert not task.done()
    task.cancel()
    with CANCELLED:
        await task


# --- many at once ---


async def test_of_changes_that_wait_together_one_that_cannot_be_made_fails_alone(world):
    names = [await world.claim("c1"), await world.claim("c2"), await world.claim("c3")]
    world.attached = [
        world.make_full_attachment("d1", names[0].uid),
        world.make_full_attachment("d1", names[1].uid),
        world.make_full_attachment("d2", names[2].uid),
    ]
    with world.locking():
        tasks = await start_prepares(world, *names)
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(outcome, errors.PrepareError) for outcome in outcomes] == [False, True, False]
    assert "still in use by claim default/c1" in str(outcomes[1])
    assert world.list_recorded_uids() == sorted([names[0].uid, names[2].uid])


async def test_a_lock_kept_by_another_instance_fails_every_waiting_call(world):
    names = [await world.claim("c1"), await world.claim("c2")]
    await world.restart_preparer(waits=limits.Limits(late_device_seconds=0, lock_seconds=0.1))
    world.attached = [
        world.make_full_attachment("d1", names[0].uid),
        world.make_full_attachment("d2", names[1].uid),
    ]
    with world.locking():
        tasks = await start_prepares(world, *names)
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert ["another instance has kept" in str(outcome) for outcome in outcomes] == [True, True]
    await world.preparer.prepare(names[0])
    assert world.list_recorded_uids() == [names[0].uid]


async def test_of_many_claims_at_once_each_gets_its_own(world):
    """Each claim gets its own share of d1, so one device is enough."""
    results = [world.result("d1", shareID=world.share(number)) for number in range(64)]
    names = [await world.claim(f"c{number}", results=(result,)) for number, result in enumerate(results)]
    world.attached = world.shares(names)
    prepared = await asyncio.gather(*(world.preparer.prepare(name) for name in names))
    assert [devices[0].share_id for devices in prepared] == [result["shareID"] for result in results]
    assert len(world.cdi()) == len(world.list_recorded_uids()) == 64
    await asyncio.gather(*(world.preparer.unprepare(name) for name in names))
    assert (world.cdi(), world.list_recorded_uids()) == ({}, [])


async def test_a_device_freed_by_another_instance_can_be_prepared(world):
    old = world.preparer
    first, second = await world.claim("c1"), await world.claim("c2")
    world.attached = [world.make_full_attachment("d1", first.uid)]
    await old.prepare(first)
    await world.restart_preparer()
    assert world.preparer.store.claims.keys() == {first.uid}
    await old.unprepare(first)
    world.attached = [world.make_full_attachment("d1", second.uid)]
    await world.preparer.prepare(second)
    assert world.list_recorded_uids() == [second.uid]


# --- the kubelet gives up ---


async def test_a_call_cancelled_before_its_write_leaves_nothing(world):
    name = await world.claim()
    world.attached = [world.make_full_attachment("d1", name.uid)]
    with world.locking():
        (task,) = await start_prepares(world, name)
        task.cancel()
        with CANCELLED:
            await task
    assert (world.cdi(), world.list_recorded_uids()) == ({}, [])
    await world.preparer.prepare(name)
    assert world.list_recorded_uids() == [name.uid]


@pytest.fixture
def slow_write(monkeypatch):
    """Make the first write of a record set `began` and wait for `go_on`; return both events."""
    began, go_on, write = threading.Event(), threading.Event(), store.Store._write

    def write_slowly(files, view, claims):
        began.set()
        assert go_on.wait(120)
        return write(files, view, claims)

    monkeypatch.setattr(store.Store, "_write", write_slowly)
    return began, go_on


async def cancel_during_write(call, slow_write):
    """Cancel the call while its write is under way; return its task."""
    task = asyncio.Task(call)
    assert await asyncio.to_thread(slow_write[0].wait, 20)
    for _ in range(3):  # an impatient caller cancels more than once
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
    return task


async def test_a_call_cancelled_during_its_write_ends_before_the_next_begins(world, slow_write):
    name = await world.claim()
    world.attached = [world.make_full_attachment("d1", name.uid)]
    task = await cancel_during_write(world.preparer.prepare(name), slow_write)
    next_one = asyncio.Task(world.preparer.unprepare(name))
    for _ in range(50):
        await asyncio.sleep(0)
    assert not next_one.done()
    slow_write[1].set()
    await asyncio.wait([task])
    assert task.cancelled()
    await next_one
    assert (world.cdi(), world.list_recorded_uids()) == ({}, [])
    assert world.preparer.holders.find("p", "d1") is None


async def test_an_unprepare_cancelled_during_its_write_reports_the_freed_device(world, request):
    name = await world.prepare_claim()
    slow_write = request.getfixturevalue("slow_write")
    task = await cancel_during_write(world.preparer.unprepare(name), slow_write)
    slow_write[1].set()
    await asyncio.wait([task])
    assert task.cancelled()
    assert world.list_recorded_uids() == []
    assert world.released == [("p", "d1")]
    await world.preparer.unprepare(name)
    assert world.released == [("p", "d1")], "once is enough"


async def test_a_prepare_cancelled_during_its_write_reports_the_released_device(world, request):
    name = await world.prepare_claim()
    await world.allocate("c1", ())
    await world.allocate("c1", (world.result("d2"),))
    world.attached = [world.attachment("d1", deleting=True), world.attachment("d2", name.uid)]
    slow_write = request.getfixturevalue("slow_write")
    task = await cancel_during_write(world.preparer.prepare(name), slow_write)
    slow_write[1].set()
    await asyncio.wait([task])
    assert world.released == [("p", "d1")]
    assert world.preparer.holders.find("p", "d1") is None
    assert world.preparer.holders.find("p", "d2") == name.uid


async def test_a_hanging_write_fails_every_waiting_call(world, slow_write):
    world.preparer = world.make_preparer(waits=limits.Limits(late_device_seconds=0, lock_seconds=0.1))
    slow_write[1].set()
    await world.preparer.restore()
    slow_write[0].clear()
    slow_write[1].clear()
    names = [await world.claim("c1"), await world.claim("c2")]
    world.attached = [
        world.make_full_attachment("d1", names[0].uid),
        world.make_full_attachment("d2", names[1].uid),
    ]
    (task,) = await start_prepares(world, names[0])
    assert await asyncio.to_thread(slow_write[0].wait, 20)
    with pytest.raises(errors.CheckpointError, match="the disk does not answer"):
        await world.preparer.prepare(names[1])
    slow_write[1].set()
    await task
    assert world.list_recorded_uids() == [names[0].uid]


# --- the Events of claims ---


async def test_a_claim_gets_one_event_per_reason_and_again_after_a_success(world):
    name = await world.claim()
    world.attached = [world.make_full_attachment("d1", name.uid, deleting=True)]
    for _ in range(3):
        with pytest.raises(errors.PrepareError):
            await world.preparer.prepare(name)
    world.attached = []
    for _ in range(3):
        with pytest.raises(errors.PrepareError):
            await world.preparer.prepare(name)
    assert world.recorder.reasons == ["DeviceDetaching", "DeviceNotAttached"]
    assert world.recorder.events[0][:2] == ("c1", name.uid)
    world.attached = [world.make_full_attachment("d1", name.uid)]
    await world.preparer.prepare(name)
    world.attached = []
    with pytest.raises(errors.PrepareError):
        await world.preparer.prepare(name)
    assert world.recorder.reasons[2:] == ["DeviceNotAttached"]


async def test_a_claim_that_is_gone_gets_no_event(world):
    name = await world.claim()
    await world.remove()
    with pytest.raises(errors.PrepareError):
        await world.preparer.prepare(name)
    assert world.recorder.events == []


async def test_a_checkpoint_that_cannot_be_written_is_reported_too(world):
    name = await world.claim()
    world.attached = [world.make_full_attachment("d1", name.uid)]
    (world.folder / "claims" / f".{name.uid}.json.tmp").mkdir(parents=True)
    with pytest.raises(errors.CheckpointError):
        await world.preparer.prepare(name)
    assert world.recorder.reasons == ["CheckpointFailed"]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        pytest.param({"late_device_seconds": 31}, "late device", id="device-above"),
        pytest.param({"late_device_seconds": -1}, "late device", id="device-below"),
        pytest.param({"late_device_seconds": float("nan")}, "late device", id="device-nan"),
        pytest.param({"lock_seconds": 0}, "checkpoint", id="lock-below"),
        pytest.param({"lock_seconds": 11}, "checkpoint", id="lock-above"),
    ],
)
def test_limits_that_outlast_the_kubelet_are_refused(wrong, words):
    (problem,) = limits.problems(limits.Limits(**wrong))
    assert words in problem
    assert "45 s" in problem


def test_the_limits_by_default_are_sound():
    assert limits.problems(limits.Limits()) == []


async def test_a_device_that_the_claim_has_no_more_is_not_held_by_its_prepare(world):
    name = await world.claim(results=(world.result("d2"),))
    world.attached = [
        world.make_full_attachment("d1", name.uid, deleting=True),
        world.make_full_attachment("d2", name.uid),
    ]
    with world.locking():
        (task,) = await start_prepares(world, name)
        await scenes.eventually(lambda: world.preparer.holders.find("p", "d2"))
        assert world.preparer.holders.list_devices() == {("p", "d2")}
    await task
    assert world.released == []
