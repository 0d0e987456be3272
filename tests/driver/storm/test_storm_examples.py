"""What the storm found once, as the few steps that matter."""

import asyncio

import pytest

from drawbar.driver.kube import kinds
from drawbar.fabric import contract
from drawbar.fabric import errors as fabric_errors
from drawbar.mocks.fabric import faults

DEVICE, NODE = "d0", "n1"


async def lose_the_record(storm, kind):
    """Remove the record of an attachment while its attach, or its detach, hangs."""
    if kind is contract.OperationKind.DETACH:
        await storm.allocate(DEVICE, NODE)
        await asyncio.sleep(5)
        await storm.nodes_do_their_duty()
    storm.fabric.console.add_fault(faults.Stick(method=kind))
    if kind is contract.OperationKind.DETACH:
        await storm.release(0, deletes=True)
        await asyncio.sleep(1)
        await storm.nodes_do_their_duty()
    else:
        await storm.allocate(DEVICE, NODE)
    await asyncio.sleep(5)
    assert [entry.operation.kind for entry in storm.fabric._world.list_unfinished_records()] == [kind]
    if kind is contract.OperationKind.ATTACH:
        await storm.release(0, deletes=True)
    await storm.an_attachment_vanishes(DEVICE)


async def until_free(storm, seconds):
    """Wait until nothing is attached or recorded, after the claims are gone."""
    for _ in range(seconds // 5):
        await storm.nodes_do_their_duty()
        await asyncio.sleep(5)
        if not await storm.attachments() and not storm.connections():
            return
    raise AssertionError(f"after {seconds} s: {await storm.attachments()}, {storm.connections()}")


@pytest.mark.parametrize("dies", [False, True], ids=["the-controller-lives", "another-controller"])
@pytest.mark.parametrize("kind", [contract.OperationKind.ATTACH, contract.OperationKind.DETACH])
def test_an_operation_whose_record_vanished_is_ended_and_the_device_is_usable_again(in_storm, kind, dies):
    async def steps(storm):
        await lose_the_record(storm, kind)
        if dies:
            # It alone saw the record; the next one finds by the mark which cluster's operation it is.
            await storm.kill_controller()
            storm.start_controller()
            await asyncio.sleep(1)
        await storm.allocate(DEVICE, NODE)
        await asyncio.sleep(30)
        assert storm.fabric._world.list_unfinished_records(), "it may still come to its end by itself"
        for _ in range(24):
            await storm.nodes_do_their_duty()
            await asyncio.sleep(5)
        await storm.release(0, deletes=True)
        await until_free(storm, 60)
        assert (await storm.condition("Degraded"))["status"] == "False"

    in_storm(steps)


def test_a_fabric_that_cannot_cancel_is_reported_until_the_operation_ends(in_storm, monkeypatch):
    async def steps(storm):
        offered = await storm.fabric.capabilities()
        without = contract.Capabilities(
            watch=offered.watch, marks=offered.marks, force_detach=offered.force_detach
        )

        async def capabilities():
            return without

        async def cancel(operation_id):
            raise fabric_errors.Unimplemented(f"operation {operation_id} cannot be cancelled")

        monkeypatch.setattr(storm.fabric, "capabilities", capabilities)
        monkeypatch.setattr(storm.fabric, "cancel", cancel)
        await storm.kill_controller()
        storm.start_controller()
        await asyncio.sleep(1)
        await lose_the_record(storm, contract.OperationKind.DETACH)
        for _ in range(60):
            await storm.nodes_do_their_duty()
            await asyncio.sleep(5)
        (stuck,) = storm.fabric._world.list_unfinished_records()
        condition = await storm.condition("Degraded")
        assert condition["status"] == "True"
        assert f"detach operation {stuck.operation.id}" in condition["message"]
        assert "of this cluster, without a DeviceAttachment" in condition["message"]
        events = (await storm.api.list_all(kinds.EVENT, into=dict)).items
        (reported,) = [event for event in events if event["reason"] == "OperationPending"]
        assert reported["regarding"]["kind"] == "DeviceAttachment"
        # An administrator ends it at the fabric manager.
        await storm.fabric._works.cancel(stuck.operation.id)
        await until_free(storm, 120)
        await asyncio.sleep(1)
        assert (await storm.condition("Degraded"))["status"] == "False"

    in_storm(steps)


@pytest.mark.parametrize("dies", [True, False], ids=["the controller dies", "the manager is silent"])
def test_a_device_that_is_connected_again_before_its_release_shows_is_detached_again(in_storm, dies):
    async def steps(storm):
        await storm.allocate(DEVICE, NODE)
        await asyncio.sleep(5)
        await storm.nodes_do_their_duty()
        await storm.release(0, deletes=True)
        await asyncio.sleep(0.1)
        await storm.nodes_do_their_duty()
        await asyncio.sleep(0.5)
        (detach,) = storm.fabric._world.list_unfinished_records()
        assert detach.operation.kind is contract.OperationKind.DETACH
        # The detach ends unseen, and a program that sets no mark connects the device again. What the fabric answers about
        # that operation, as the device was at its end, is old by then.
        if dies:
            await storm.kill_controller()
        else:
            storm.fabric.console.pause()
        await asyncio.sleep(40)
        assert storm.connections() == {}
        await storm.somebody_else_attaches(DEVICE, NODE, None)
        if dies:
            storm.start_controller()
        else:
            storm.fabric.console.resume()
        await until_free(storm, 180)

    in_storm(steps)
