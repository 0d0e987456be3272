"""Devices of one fabric that would have the same name in Kubernetes: one is shown, and the others are reported."""

import asyncio

from tests.driver.controller.test_names import SHARE, TWINS
from tests.scenes import sessions

from drawbar.driver.controller import names
from drawbar.driver.controller.fabrics import inventory
from drawbar.fabric import contract
from drawbar.mocks.testing import virtualtime

FIRST, SECOND = (contract.Device(id=twin, device_class=contract.DeviceClass.GPU) for twin in TWINS)
NAMED_AS_SHARE = contract.Device(id=SHARE, device_class=contract.DeviceClass.GPU)
NAME = names.label(FIRST.id)


def manager(*devices):
    made = sessions.Manager()
    made.devices_now, made.hosts_now = devices, (contract.Host(id="h", name="h"),)
    return made


@virtualtime.in_virtual_time
async def test_of_two_devices_of_one_name_the_first_is_shown_and_the_other_reported():
    async with sessions.running(manager(SECOND, FIRST)) as opened:
        assert opened.device(NAME) == FIRST
        assert SECOND.id in opened.troubles[inventory.NAMESAKES]


@virtualtime.in_virtual_time
async def test_a_device_keeps_its_name_over_later_namesakes():
    served = manager(SECOND)
    async with sessions.running(served) as opened:
        assert opened.troubles.get(inventory.NAMESAKES) is None
        for event in (
            contract.DeviceChanged(version="2", device=FIRST),
            contract.DeviceGone(version="3", device_id=FIRST.id),
        ):
            served.events.put_nowait(event)
            await asyncio.sleep(1)
            assert opened.device(NAME) == SECOND
        served.devices_now = (FIRST, SECOND)
        await opened.read()
        assert opened.device(NAME) == SECOND
        assert FIRST.id in opened.troubles[inventory.NAMESAKES]
        served.devices_now = (SECOND,)
        await opened.read()
        assert opened.troubles.get(inventory.NAMESAKES) is None


@virtualtime.in_virtual_time
async def test_a_device_with_the_name_of_a_share_is_not_shown_and_reported():
    served = manager(NAMED_AS_SHARE)
    async with sessions.running(served) as opened:
        served.events.put_nowait(contract.DeviceChanged(version="2", device=NAMED_AS_SHARE))
        await asyncio.sleep(1)
        assert opened.device(SHARE) is None
        assert f"{SHARE} (as a share)" in opened.troubles[inventory.NAMESAKES]
