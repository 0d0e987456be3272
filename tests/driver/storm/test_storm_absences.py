"""A Node object that goes and comes back, and a fabric manager that never does."""

import asyncio

from drawbar.driver.kube import client, kinds


def test_a_node_that_is_deleted_and_created_again_keeps_its_devices(in_storm):
    async def steps(storm):
        await storm.use("d0")
        for _ in range(3):
            await storm.a_node_dies("n1")
            # Its pods are deleted with it, and the kubelet is still ending them.
            if await storm.claims():
                await storm.release(0, deletes=True)
            await asyncio.sleep(40)
            assert storm.connections() == {"d0": "h-n1"}
            await storm.a_node_comes_back("n1")
            await asyncio.sleep(40)
            assert storm.connections() == {"d0": "h-n1"}, "its kubelet has not released the device"
        await storm.nodes_do_their_duty()
        await asyncio.sleep(5)
        assert (storm.connections(), await storm.attachments()) == ({}, [])

    in_storm(steps)


def test_the_devices_of_a_node_that_stays_away_come_back_after_the_grace_period(in_storm):
    async def steps(storm):
        await storm.use("d0")
        await storm.release(0, deletes=True)
        await asyncio.sleep(1)
        await storm.a_node_dies("n1")
        await asyncio.sleep(55)
        assert storm.connections() == {"d0": "h-n1"}
        await asyncio.sleep(15)
        assert (storm.connections(), await storm.attachments()) == ({}, [])

    in_storm(steps)


async def annotate(storm, value):
    body = {"metadata": {"annotations": {"drawbar.dev/give-up": value}}}
    await storm.api.patch(kinds.FABRIC, "f", body, content=client.Patch.MERGE, into=dict)
    await asyncio.sleep(1)


def test_abandoning_a_dead_fabric_reports_the_devices_left_attached(in_storm):
    async def steps(storm):
        await storm.use("d0")
        storm.fabric.console.pause()
        await storm.kill_controller()
        storm.start_controller()
        await asyncio.sleep(60)
        await storm.release(0, deletes=True)
        await annotate(storm, "true")
        reported = await storm.condition("Degraded")
        assert "their devices stay connected" in reported["message"]
        assert "devices-stay-connected" in reported["message"]
        await annotate(storm, "devices-stay-connected")
        assert "has no effect" in (await storm.condition("Degraded"))["message"], "it is not being deleted"
        await storm.nodes_do_their_duty()
        assert len(await storm.attachments()) == 1
        await storm.api.begin_delete(kinds.FABRIC, "f", into=dict)
        await asyncio.sleep(5)
        assert (await storm.attachments(), (await storm.api.list_all(kinds.FABRIC, into=dict)).items) == (
            [],
            (),
        )
        assert storm.connections() == {"d0": "h-n1"}
        events = (await storm.api.list_all(kinds.EVENT, into=dict)).items
        (reported,) = [event["note"] for event in events if event["reason"] == "GivenUp"]
        assert "d0 was not detached" in reported

    in_storm(steps)


def test_an_abandoned_fabric_that_answers_again_still_detaches(in_storm):
    async def steps(storm):
        await storm.use("d0")
        await annotate(storm, "devices-stay-connected")
        await storm.api.begin_delete(kinds.FABRIC, "f", into=dict)
        await asyncio.sleep(1)
        assert (await storm.condition("Published"))["reason"] == "GivenUp"
        await storm.release(0, deletes=True)
        await asyncio.sleep(1)
        await storm.nodes_do_their_duty()
        await asyncio.sleep(5)
        assert (storm.connections(), await storm.attachments()) == ({}, [])

    in_storm(steps)
