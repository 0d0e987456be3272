"""Composites of a rule while claims come and go of which nothing is attached: their node is on no fabric."""

import asyncio

from drawbar.driver.controller import names
from drawbar.driver.controller.offers import group
from drawbar.driver.kube import client, kinds

SECONDS = 20  # all that is gathered is done, and nothing is looked at again without a reason


async def rule(storm, *, count, name="pair"):
    parts = [{"class": "gpu", "count": count}]
    spec = {"compositeRules": [{"name": name, "within": "enclosure", "devices": parts}]}
    await storm.api.patch(kinds.FABRIC, "f", {"spec": spec}, content=client.Patch.MERGE, into=dict)
    await asyncio.sleep(SECONDS)


async def read_members(storm):
    """Return by the name of each device in the slices its members."""
    return {
        device["name"]: tuple(
            device["attributes"][name]["string"] for name in group.MEMBERS if name in device["attributes"]
        )
        for spec in await storm.specs()
        for device in spec.get("devices", ())
    }


def members_by_name(*devices, name="pair"):
    return {names.composite(name, devices): devices}


def test_a_device_claimed_alone_becomes_a_member_after_its_claim_ends(in_storm):
    async def steps(storm):
        await storm.allocate("d0", "n9")
        await rule(storm, count=2)
        assert await read_members(storm) == {"d0": ()} | members_by_name("d1", "d2")
        await storm.release(0, deletes=True)
        await asyncio.sleep(SECONDS)
        assert await read_members(storm) == members_by_name("d1", "d2") | members_by_name("d0", "d3")

    in_storm(steps)


def test_an_allocated_composite_keeps_its_devices_until_the_claim_ends(in_storm):
    async def steps(storm):
        await rule(storm, count=2)
        first = members_by_name("d0", "d1")
        assert await read_members(storm) == first | members_by_name("d2", "d3")
        await storm.allocate(*first, "n9")
        await rule(storm, count=3)
        assert await read_members(storm) == first
        await storm.kill_controller()
        storm.start_controller()
        await asyncio.sleep(SECONDS)
        assert await read_members(storm) == first
        await storm.release(0, deletes=True)
        await asyncio.sleep(SECONDS)
        assert await read_members(storm) == members_by_name("d0", "d1", "d2")

    in_storm(steps)
