"""A card that is taken out and put in again is another arrival, with and without the events of it."""

import pytest

from drawbar.driver.node.discovery import devices
from drawbar.fabric.classes import DeviceClass
from drawbar.mocks import sysfs

DISK = sysfs.MockDevice(device_class=DeviceClass.NVME, vendor=0x144D, device=0xA824, serial="SN1")


@pytest.fixture
def tree(tmp_path):
    made = sysfs.SysfsTree.create(tmp_path / "sys")
    made.attach(1, DISK)
    return made


def replug(tree):
    tree.detach(1)
    tree.attach(1, DISK)


async def test_no_arrival_has_the_number_of_an_earlier_one(tree):
    seen, known = set(), devices.Devices(tree.root)
    for _ in range(20):
        await known.read()
        seen.add(known.card_at(tree.address(1)).arrival)
        replug(tree)
    assert len(seen) == 20


async def test_a_driver_that_binds_again_is_no_arrival(tree):
    known = devices.Devices(tree.root)
    await known.read()
    before = known.card_at(tree.address(1))
    (folder,) = tree.root.glob(f"devices/**/{before.address}")
    (folder / "driver").unlink()
    shown = folder / "uevent"
    shown.write_text(shown.read_text().replace("DRIVER=nvme\n", ""))
    await known.read()
    bare = known.card_at(tree.address(1))
    assert bare != before
    assert bare.has_stayed(before.address, before.arrival)


@pytest.mark.parametrize("is_heard", [True, False], ids=["by its events", "by the audit"])
async def test_an_arrival_between_two_looks_is_a_change_of_the_card(tree, is_heard):
    changes, known = [], devices.Devices(tree.root)
    await known.read()
    before = known.card_at(tree.address(1))
    known.subscribe(changes.append)
    replug(tree)
    if is_heard:
        await known.refresh(tree.address(1))
    else:
        await known.audit()
    after = known.card_at(tree.address(1))
    assert any(after.address in each.functions for each in changes)
    assert not after.has_stayed(before.address, before.arrival)
