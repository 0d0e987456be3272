"""What the simulated fabric does wrong with a fault, one effect a test."""

import asyncio

import pytest
from tests.mocks.faultyfabric import attach, describe, detach, fabric_with

from drawbar.fabric import contract, errors
from drawbar.fabric.grpc import server
from drawbar.fabric.grpc.adapter import GrpcAdapter
from drawbar.mocks.fabric import faults
from drawbar.mocks.testing.virtualtime import in_virtual_time


async def until(fabric, holds):
    """Wait until something holds of the connections by device id; list the devices again at each event."""
    async with asyncio.timeout(120):
        while True:
            inventory = await fabric.devices()
            if holds({device.id: device.connection for device in inventory.devices}):
                return
            async with fabric.watch(inventory.version) as events:
                async for event in events:
                    if not isinstance(event, contract.Bookmark):
                        break


# --- refusals and failures ---


async def test_a_call_is_refused_with_the_error_that_was_asked_for_and_then_no_more():
    fault = {
        "effect": "refuse",
        "method": "attach",
        "device": "d1",
        "code": "PERMISSION_DENIED",
        "reason": "LOCKED",
        "message": "locked",
        "times": 2,
    }
    async with fabric_with(fault) as fabric:
        assert (await fabric.attach(attach("d2"))).succeeded
        for _ in range(2):
            with pytest.raises(errors.PermissionDenied, match="locked") as caught:
                await fabric.attach(attach("d1"))
            assert (caught.value.reason, caught.value.retryable) == ("LOCKED", False)
        assert (await fabric.attach(attach("d1"))).succeeded


@pytest.mark.parametrize("method", ["capabilities", "hosts", "devices", "operations"])
async def test_any_call_can_be_refused(method):
    async with fabric_with({"effect": "refuse", "method": method}) as fabric:
        with pytest.raises(errors.Unavailable):
            await getattr(fabric, method)()
        await getattr(fabric, method)()


async def test_calls_that_go_well_first_are_skipped_and_null_is_for_ever():
    async with fabric_with({"effect": "refuse", "method": "hosts", "skip": 2, "times": None}) as fabric:
        await fabric.hosts()
        await fabric.hosts()
        for _ in range(5):
            with pytest.raises(errors.Unavailable):
                await fabric.hosts()


def test_the_first_fault_that_fits_counts_and_others_wait():
    first, second = (faults.Refuse(method="hosts", reason=reason) for reason in ("A", "B"))
    deck = faults.Deck([first, second])
    drawn = [deck.draw((faults.Refuse,), "hosts") for _ in range(3)]
    assert drawn == [first, second, None]
    assert deck.draw((faults.Hang,), "hosts") is None


async def test_an_operation_can_fail_although_it_happened():
    fault = {
        "effect": "fail",
        "method": "attach",
        "code": "DEADLINE_EXCEEDED",
        "happens": True,
        "sideEffectsUnknown": True,
    }
    async with fabric_with(fault) as fabric:
        operation = await fabric.attach(attach())
        assert operation.error.code is errors.Code.DEADLINE_EXCEEDED
        assert operation.side_effects_unknown
        assert (await fabric.devices()).device("d1").connection.host_id == "h1"
        assert (await fabric.attach(attach(request_id="again"))).succeeded


async def test_a_detach_that_fails_leaves_the_device_where_it_is():
    async with fabric_with({"effect": "fail", "method": "detach", "code": "UNAVAILABLE"}) as fabric:
        await fabric.attach(attach())
        assert (await fabric.detach(detach())).error.retryable
        assert (await fabric.devices()).device("d1").connection.host_id == "h1"
        assert (await fabric.detach(detach(request_id="again"))).succeeded


# --- replies ---


async def test_a_lost_reply_leaves_a_device_attached_that_the_caller_can_find_again():
    async with fabric_with({"effect": "lose-reply", "method": "attach"}) as fabric:
        with pytest.raises(errors.Unavailable) as caught:
            await fabric.attach(attach())
        assert caught.value.side_effects_unknown
        assert (await fabric.operation(request_id="a-d1-h1")).succeeded
        assert (await fabric.devices()).device("d1").connection.host_id == "h1"
        assert (await fabric.attach(attach())).succeeded


async def test_a_reply_that_never_comes_ends_at_the_callers_deadline(tmp_path):
    endpoint = f"unix:{tmp_path}/f.sock"
    config = contract.AdapterConfig(name="f", endpoint=endpoint, timeout_seconds=1.0)
    async with (
        fabric_with({"effect": "lose-reply", "method": "attach", "hang": True}) as fabric,
        server.serving(fabric, endpoint, name="test", version="1"),
        await GrpcAdapter.connect(config) as adapter,
    ):
        with pytest.raises(errors.DeadlineExceeded) as caught:
            await adapter.attach(attach())
        assert caught.value.side_effects_unknown
        assert (await fabric.devices()).device("d1").connection.host_id == "h1"


async def test_a_call_that_is_never_heard_has_no_effect():
    async with fabric_with({"effect": "hang", "method": "attach"}) as fabric:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await fabric.attach(attach())
        assert (await fabric.devices()).device("d1").connection is None
        assert (await fabric.attach(attach())).succeeded


async def test_a_call_that_hangs_ends_with_the_fabric():
    async with asyncio.TaskGroup() as tasks:
        async with fabric_with({"effect": "hang", "method": "hosts"}) as fabric:
            call = tasks.create_task(asyncio.wait_for(outcome(fabric.hosts()), 10))
            await asyncio.sleep(0)
        assert isinstance(await call, errors.Unavailable)


async def outcome(call):
    try:
        return await call
    except errors.FabricError as error:
        return error


# --- operations ---


async def test_a_stuck_operation_ends_when_it_is_cancelled_and_not_before():
    async with fabric_with({"effect": "stick", "method": "attach"}) as fabric:
        operation = await fabric.attach(attach())
        assert not operation.done
        with pytest.raises(errors.Aborted):
            await fabric.detach(detach())
        cancelled = await fabric.cancel(operation.id)
        assert cancelled.error.reason == errors.Reason.CANCELLED
        assert (await fabric.attach(attach(request_id="again"))).succeeded


# --- watches ---


async def test_lost_events_are_made_good_by_a_new_listing():
    fault = {"effect": "lose-events", "times": None, "resyncSeconds": 0.05}
    async with fabric_with(fault) as fabric:
        version = (await fabric.devices()).version
        async with asyncio.timeout(120), fabric.watch(version) as events:
            assert isinstance(await anext(events), contract.Bookmark)
            await fabric.attach(attach())
            assert [event async for event in events] == [contract.Resync()]
        assert (await fabric.devices()).device("d1").connection is not None


async def test_only_events_of_the_device_that_was_named_get_lost():
    fault = {"effect": "lose-events", "device": "d1", "times": None, "resyncSeconds": 60}
    async with fabric_with(fault) as fabric:
        version = (await fabric.devices()).version
        await fabric.attach(attach("d1"))
        await fabric.attach(attach("d2"))
        async with asyncio.timeout(120), fabric.watch(version) as events:
            async for event in events:
                if isinstance(event, contract.DeviceChanged):
                    assert event.device.id == "d2"
                    break


# --- times ---


@in_virtual_time
async def test_times_differ_between_their_bounds_and_are_the_same_in_each_run():
    async def durations():
        async with fabric_with(attachSeconds=30, mostAttachSeconds=60) as fabric:
            begun = [await fabric.attach(attach(device)) for device in ("d1", "d2")]
            return [operation.retry_after_seconds for operation in begun]

    first = await durations()
    assert all(30 <= seconds <= 60 for seconds in first)
    assert len(set(first)) == 2
    assert await durations() == first


# --- the file ---


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"effect": "explode"}, "faults[0]: Invalid value"),
        ({"effect": "stick", "method": "hosts"}, "faults[0]: Invalid enum value"),
        ({"effect": "stick", "method": "attach", "color": 1}, "unknown field"),
        ({"effect": "stick", "method": "attach", "device": "d9"}, "the device d9, which no"),
        ({"effect": "stick", "method": "attach", "host": "h9"}, "the host h9, which there is not"),
        ({"effect": "refuse", "method": "hosts", "device": "d1"}, "about no device"),
        ({"effect": "refuse", "method": "hosts", "times": 0}, "times at least 1"),
        ({"effect": "lose-events", "resyncSeconds": -1}, "resyncSeconds is negative"),
    ],
)
def test_a_fault_that_cannot_be_is_told_in_one_sentence(fault, words):
    with pytest.raises(errors.InvalidConfiguration) as caught:
        describe(faults=[fault])
    assert len([problem for problem in caught.value.problems if words in problem]) == 1


async def test_the_use_of_a_fault_is_remembered_over_a_restart(tmp_path):
    fault = {"effect": "fail", "method": "attach", "skip": 1, "times": 1}
    async with fabric_with(fault, state=tmp_path / "s") as fabric:
        assert (await fabric.attach(attach("d1"))).succeeded
    async with fabric_with(fault, state=tmp_path / "s") as fabric:
        assert not (await fabric.attach(attach("d2"))).succeeded
    async with fabric_with(fault, state=tmp_path / "s") as fabric:
        assert (await fabric.attach(attach("d3"))).succeeded
