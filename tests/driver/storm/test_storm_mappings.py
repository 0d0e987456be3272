"""A Fabric whose hosts are mapped to other nodes, or whose devices move to another pool, while a claim waits."""

import asyncio

import pytest

from drawbar.driver.kube import client, kinds


async def swap_the_hosts(storm):
    hosts = [{"host": "h-n1", "node": "n2"}, {"host": "h-n2", "node": "n1"}]
    await storm.api.patch(
        kinds.FABRIC, "f", {"spec": {"hosts": hosts}}, content=client.Patch.MERGE, into=dict
    )


@pytest.mark.parametrize("seconds", [0.5, 1.5, 5.0], ids=["asked", "nearly-connected", "connected"])
def test_a_mapping_that_changes_in_mid_attach_ends_on_the_right_host_and_blames_no_device(in_storm, seconds):
    async def steps(storm):
        await storm.allocate("d0", "n1")
        await asyncio.sleep(seconds)
        await swap_the_hosts(storm)
        tainted = []
        for _ in range(20):
            await asyncio.sleep(1)
            for attachment in await storm.attachments():
                # The node sees what its host has, and reports what it is asked to release.
                if attachment["spec"]["hostID"] == "h-n2" or "deletionTimestamp" in attachment["metadata"]:
                    await storm._node_acts(attachment)
            tainted += [key for keys in (await storm.taints()).values() for key in keys]
        assert storm.connections() == {"d0": "h-n2"}
        (attachment,) = await storm.attachments()
        assert (attachment["spec"]["hostID"], attachment["spec"]["nodeName"]) == ("h-n2", "n1")
        (claim,) = await storm.claims()
        (reported,) = claim["status"]["devices"]
        assert [condition["type"] for condition in reported["conditions"]] == ["drawbar.dev/attached"]
        assert tainted == []

    in_storm(steps)


def test_a_device_in_use_stays_where_it_is_when_the_mapping_changes(in_storm):
    async def steps(storm):
        await storm.use("d0")
        before = await storm.attachments()
        await swap_the_hosts(storm)
        await asyncio.sleep(60)
        assert await storm.attachments() == before
        assert storm.connections() == {"d0": "h-n1"}

    in_storm(steps)


def test_a_claim_whose_device_was_published_in_another_pool_meanwhile_has_it_alone(in_storm):
    async def steps(storm):
        await storm.allocate("d0", "n1", pool="f/before")
        await asyncio.sleep(5)
        offered = [
            (spec["pool"]["name"], device["name"])
            for spec in await storm.specs()
            for device in spec["devices"]
        ]
        assert [pool for pool, name in offered if name == "d0"] == ["f/before"]
        await storm.nodes_do_their_duty()
        (attachment,) = await storm.attachments()
        await storm._node_says(attachment, "Visible", "False", reason="DeviceLost")
        await asyncio.sleep(1)
        (marked,) = [
            (spec["pool"]["name"], {taint["key"] for taint in device["taints"]})
            for spec in await storm.specs()
            for device in spec["devices"]
            if device.get("taints")
        ]
        assert marked[0] == "f/before"
        assert "drawbar.dev/device-lost" in marked[1]
        await storm.release(0, deletes=True)
        await asyncio.sleep(1)
        await storm.nodes_do_their_duty()
        await asyncio.sleep(900)
        offered = [
            (spec["pool"]["name"], device["name"])
            for spec in await storm.specs()
            for device in spec["devices"]
        ]
        assert sorted(offered) == [("f/e", name) for name in ("d0", "d1", "d2", "d3")]

    in_storm(steps)
