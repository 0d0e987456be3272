"""Listings of the fabric manager that are empty or lack what is there: nothing is evicted, and nothing is left attached."""

import asyncio
import dataclasses

import pytest

from drawbar.driver.kube import kinds


@pytest.fixture
def remove_from_listings(monkeypatch):
    """Return a function that removes devices from the next listings of a storm's fabric, or from all."""

    def remove(storm, names, listings=None):
        whole, left = storm.fabric.devices, [listings]

        async def devices():
            inventory = await whole()
            if left[0] is not None and left[0] <= 0:
                return inventory
            left[0] = left[0] and left[0] - 1
            devices = tuple(device for device in inventory.devices if device.id not in names)
            return dataclasses.replace(inventory, devices=devices)

        monkeypatch.setattr(storm.fabric, "devices", devices)
        storm.fabric.console.resync()

    return remove


LABEL = "fabric.drawbar.dev/f"
ALL = ("d0", "d1", "d2", "d3")


@pytest.mark.parametrize("restarted", [False, True], ids=["while-it-runs", "at-its-start"])
def test_one_empty_listing_evicts_no_pod(in_storm, remove_from_listings, restarted):
    async def steps(storm):
        await storm.use("d0", "d1")
        before = await storm.attachments()
        if restarted:
            await storm.kill_controller()
        remove_from_listings(storm, ALL, listings=1)
        if restarted:
            storm.start_controller()
        await asyncio.sleep(5)
        condition = await storm.condition("Degraded")
        assert (condition["status"], condition["reason"]) == ("True", "DevicesMissing")
        assert await storm.taints() == {name: [] for name in ALL}
        await asyncio.sleep(60)
        assert await storm.taints() == {name: [] for name in ALL}
        assert await storm.attachments() == before
        assert (await storm.condition("Degraded"))["status"] == "False"

    in_storm(steps)


async def list_labelled_nodes(storm):
    """Return the nodes to which pods with the fabric's devices can come."""
    nodes = (await storm.api.list_all(kinds.NODE, into=dict)).items
    return sorted(node["metadata"]["name"] for node in nodes if LABEL in node["metadata"].get("labels", {}))


@pytest.mark.parametrize("restarted", [False, True], ids=["while-it-runs", "at-its-start"])
def test_one_listing_without_hosts_takes_no_node_away_and_fails_no_claim(in_storm, monkeypatch, restarted):
    async def steps(storm):
        await storm.use("d0")
        before = await list_labelled_nodes(storm)
        assert before
        if restarted:
            await storm.kill_controller()
        whole, left = storm.fabric.hosts, [1]

        async def hosts():
            left[0] -= 1
            return () if left[0] >= 0 else await whole()

        monkeypatch.setattr(storm.fabric, "hosts", hosts)
        storm.fabric.console.resync()
        if restarted:
            storm.start_controller()
        await asyncio.sleep(5)
        assert left == [0]
        assert (await storm.condition("Degraded"))["reason"] == "DevicesMissing"
        assert await list_labelled_nodes(storm) == before
        await storm.allocate("d1", "n2")
        await asyncio.sleep(15)
        assert await list_labelled_nodes(storm) == before
        assert (await storm.condition("Degraded"))["status"] == "False"
        assert storm.connections().keys() == {"d0", "d1"}

    in_storm(steps)


def test_a_device_that_no_listing_shows_is_kept_while_its_node_shows_it_and_is_detached_before_its_record_goes(
    in_storm, remove_from_listings
):
    async def steps(storm):
        await storm.use("d0")
        remove_from_listings(storm, ("d0",))
        await asyncio.sleep(120)
        assert (await storm.taints())["d0"] == []
        assert "(d0)" in (await storm.condition("Degraded"))["message"]
        await storm.release(0, deletes=True)
        for _ in range(24):
            await asyncio.sleep(5)
            await storm.nodes_do_their_duty()
            if not await storm.attachments():
                assert storm.connections() == {}, "the record is gone and the device is still connected"
                return
        raise AssertionError(await storm.attachments())

    in_storm(steps)


def test_a_device_that_was_taken_out_is_lost_when_its_node_agrees_and_its_record_goes(in_storm):
    async def steps(storm):
        await storm.use("d0")
        await storm.fabric.console.remove_device("d0")
        await asyncio.sleep(60)
        assert (await storm.taints())["d0"] == []
        (attachment,) = await storm.attachments()
        await storm._node_says(attachment, "Visible", "False", reason="DeviceLost")
        await asyncio.sleep(1)
        assert "device-lost" in (await storm.taints())["d0"]
        await storm.release(0, deletes=True)
        await asyncio.sleep(1)
        await storm.nodes_do_their_duty()
        await asyncio.sleep(5)
        assert await storm.attachments() == []

    in_storm(steps)
