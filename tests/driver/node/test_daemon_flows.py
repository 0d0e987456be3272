"""Whole lives of a device at a node daemon: what arrives late, wrong or not at all, and what is hard to let go of."""

import asyncio
import dataclasses
import datetime
import shutil

import pytest
from tests.scenes import attachments as scenes
from tests.scenes import nodes, waiting

from drawbar.driver.api import meta
from drawbar.driver.kube import kinds
from drawbar.driver.node.discovery import reader
from drawbar.fabric.contract import DeviceClass
from drawbar.fabric.witnesses import Kind
from drawbar.mocks import sysfs
from drawbar.mocks.testing import worlds

DISK, ANOTHER = nodes.DISK, "fab.another"
GPU = sysfs.MockDevice(device_class=DeviceClass.GPU, vendor=0x10DE, device=0x2330, serial="1654422007043")


def identity(gpu):
    """Return the identity of a GPU with a UUID, as a fabric manager shows it."""
    number = {"kind": "gpu-uuid", "value": gpu.text(Kind.GPU_UUID), "source": "Processor.UUID"}
    return {"deviceClass": "gpu", "serial": "", "identifiers": [number], "pciID": "10de:2330"}


class Node(nodes.Node):
    """What the controller makes of it, and what the node says and does."""

    async def report_attached(self, slot="1", claim=None, **identity):
        """Report, as the controller does, that the fabric connected a device to this slot, for the claim if any."""
        await self.attach(claim, **identity)
        now = meta.timestamp(datetime.datetime.now(datetime.UTC))
        await self.controller_says(
            conditions=[scenes.condition("Attached", at=now)], connection={"port": "1", "slot": slot}
        )

    async def reports(self, kind, status="True", reason=None):
        """Wait until the attachment has this condition; return the attachment."""

        def holds(attachment):
            entry = condition(attachment, kind)
            return entry.get("status") == status and reason in (None, entry["reason"])

        return await waiting.until(self.attachment, holds)

    async def report_visible_before(self, seen, **node):
        """Write the status that a daemon that ran before has written."""
        fields = {"phase": "Ready", "conditions": [condition(seen, "Visible")]}
        report = seen["status"]["node"] | node
        await worlds.apply_status(self.api, nodes.NAME, "drawbar-node", node=report, **fields)

    async def node_until(self, holds):
        """Wait for the node's report of the device."""
        await waiting.until(self.attachment, lambda attachment: holds(attachment["status"]["node"]))

    async def attach_another(self):
        """Attach the disk in slot 2 as well."""
        number = {"kind": "nvme-serial", "value": "sn0001"}
        described = {"deviceClass": "nvme", "identifiers": [number], "pciID": "1b36:0010"}
        body = scenes.document(ANOTHER, nodes.NODE, held=True, identity=described)
        await self.api.create(kinds.ATTACHMENT, body, into=dict)
        await worlds.apply_status(
            self.api, ANOTHER, "drawbar-controller", conditions=[scenes.condition("Attached")]
        )

    async def read_other_attachment(self):
        return await self.api.read(kinds.ATTACHMENT, ANOTHER, into=dict)

    def power(self, slot=1):
        return (self.tree.root / f"bus/pci/slots/{slot}/power").read_text().strip()

    def driver(self, slot=1):
        function = reader.read_function(self.tree.root, self.tree.address(slot))
        return function and function.driver


def condition(attachment, kind):
    return next((entry for entry in attachment["status"].get("conditions", ()) if entry["type"] == kind), {})


IMPATIENT = pytest.mark.parametrize("patience", [3])
"""Of tests that wait until a device has had its time."""

BRIEFLY_PATIENT = pytest.mark.parametrize("patience", [8])
"""Of tests that wait until a card has had its time to show identifiers, a part of that of a device."""


@pytest.fixture
def patience():
    """Return how many seconds a device may take to become ready; on a slow machine the daemon starts late."""
    return 60


@pytest.fixture
async def world(tmp_path, patience):
    async with nodes.serving(tmp_path, Node, visible_timeout_seconds=patience) as node:
        yield node


async def test_a_card_that_waits_for_power_gets_it(world):
    await world.plug(1, DISK, arrival=sysfs.Arrival.UNPOWERED)
    await world.report_attached()
    seen = await world.reports("Visible")
    assert seen["status"]["node"]["slot"] == "1"
    assert world.power() == "1"


@IMPATIENT
async def test_a_card_in_another_slot_gets_no_power(world):
    await world.plug(2, DISK, arrival=sysfs.Arrival.UNPOWERED)
    await world.report_attached()
    seen = await world.reports("Visible", "False", "DeviceNotFound")
    assert "slot 1" in condition(seen, "Visible")["message"]
    assert world.power(2) == "0"


@IMPATIENT
async def test_another_device_in_the_slot_is_named_and_left_alone(world):
    await world.plug(1, dataclasses.replace(DISK, serial="SN0002"))
    await world.report_attached()
    seen = await world.reports("Visible", "False", "WrongDevice")
    assert "sn0002" in condition(seen, "Visible")["message"]
    await world.detach()
    await world.reports("Released")
    assert world.driver() == "nvme"


@IMPATIENT
async def test_a_device_without_a_driver_is_reported_and_can_be_released(world):
    await world.plug(1, dataclasses.replace(DISK, driver=""))
    await world.report_attached()
    seen = await world.reports("Visible", "False", "DriverNotBound")
    assert "0000:01:00.0" in condition(seen, "Visible")["message"]
    await world.detach()
    await world.reports("Released")
    assert world.power() == "0"


@IMPATIENT
async def test_a_device_without_addresses_for_its_memory_says_so_instead_of_its_driver(world):
    await world.plug(1, dataclasses.replace(DISK, unassigned=True))
    await world.report_attached()
    seen = await world.reports("Visible", "False", "ResourcesNotAssigned")
    message = condition(seen, "Visible")["message"]
    assert "BAR 0 of 0000:01:00.0" in message
    assert "drawbar doctor --node" in message


@IMPATIENT
async def test_a_device_whose_link_does_not_come_up_is_reported(world):
    await world.plug(1, DISK, arrival=sysfs.Arrival.NO_LINK)
    await world.report_attached()
    await world.reports("Visible", "False", "LinkDown")


async def test_a_device_without_a_serial_number_is_known_by_its_slot_and_model(world):
    await world.plug(1, dataclasses.replace(DISK, serial=None))
    await world.report_attached(serial="", identifiers=[])
    seen = await world.reports("Visible")
    assert seen["status"]["node"]["recognisedBy"]["kind"] == "slot"


@pytest.mark.parametrize("slot", ["1", ""], ids=["in-its-slot", "without-a-slot"])
async def test_a_gpu_that_shows_its_uuid_later_is_recognised_by_that_and_not_by_its_slot_before(world, slot):
    # What is in when the daemon starts has no event after which it would be read again.
    await world.stop()
    await world.plug(1, dataclasses.replace(GPU, initialised=False))
    await world.plug(2, DISK)
    world.start()
    await world.report_attached(slot, **identity(GPU))
    # The daemon has judged what it knew of the first device by the time that it has recognised the second one.
    await world.attach_another()
    await waiting.until(
        world.read_other_attachment, lambda seen: condition(seen, "Visible").get("status") == "True"
    )
    assert "node" not in (await world.attachment())["status"]
    await asyncio.to_thread(world.tree.initialise, 1)
    seen = await world.reports("Visible")
    by = seen["status"]["node"]["recognisedBy"]
    assert (by["kind"], by["nodeSource"].split("/")[:3]) == ("gpu-uuid", ["", "proc", "driver"])


async def test_a_gpu_detached_before_it_shows_its_uuid_is_released(world):
    await world.stop()
    await world.plug(1, dataclasses.replace(GPU, initialised=False))
    await world.report_attached(**identity(GPU))
    await world.detach()
    world.start()
    await world.reports("Released")
    assert world.power() == "0"


@BRIEFLY_PATIENT
async def test_a_gpu_that_shows_no_uuid_in_time_is_recognised_by_its_slot_and_upgraded_when_it_does(world):
    await world.plug(1, dataclasses.replace(GPU, initialised=False))
    await world.report_attached(**identity(GPU))
    seen = await world.reports("Visible")
    assert seen["status"]["node"]["recognisedBy"]["kind"] == "slot"
    await asyncio.to_thread(world.tree.initialise, 1)
    await world.node_until(lambda node: node["recognisedBy"]["kind"] == "gpu-uuid")


@BRIEFLY_PATIENT
async def test_a_gpu_that_was_taken_for_the_device_by_its_slot_and_shows_another_uuid_is_the_wrong_one(world):
    await world.plug(1, dataclasses.replace(GPU, initialised=False))
    claim = await world.allocate_claim()
    await world.report_attached(claim=claim, **identity(dataclasses.replace(GPU, serial="1654422007099")))
    seen = await world.reports("Visible")
    assert seen["status"]["node"]["recognisedBy"]["kind"] == "slot"
    await asyncio.to_thread(world.tree.initialise, 1)
    seen = await world.reports("Visible", "False", "WrongDevice")
    message = condition(seen, "Visible")["message"]
    assert "was taken for" in message
    assert GPU.text(Kind.GPU_UUID) in message
    assert "was taken for" in (await world.prepare(claim)).error
    # It was handed out as the device, so it leaves as the device.
    await world.detach()
    await world.reports("Released")
    assert world.power() == "0"


async def test_a_device_in_use_is_reported_and_released_afterwards(world, tmp_path):
    await world.plug(1, DISK)
    await world.report_attached()
    await world.reports("Visible")
    (node,) = (world.tree.root / world_path(world)).glob("nvme/nvme0")
    with (node / "uevent").open("w") as file:
        file.write("MAJOR=1\nMINOR=3\nDEVNAME=nvme0\n")
    (node / "dev").write_text("1:3\n")
    process = tmp_path / "proc" / "4711"
    (process / "fd").mkdir(parents=True)
    (process / "comm").write_text("python\n")
    (process / "fd" / "7").symlink_to("/dev/null")
    await world.detach()
    seen = await world.reports("Released", "False", "InUse")
    reported = condition(seen, "Released")["message"]
    assert "pid 4711 (python)" in reported
    assert world.driver() == "nvme", "nothing was undone"
    assert seen["status"]["node"]["pciAddress"] == "0000:01:00.0"

    event = await world.event("InUse")
    assert event["regarding"]["name"] == nodes.NAME
    shutil.rmtree(process)
    seen = await world.reports("Released")
    assert condition(seen, "Visible")["status"] == "True"
    assert world.power() == "0"
    assert world.driver() is None


def world_path(world):
    return f"bus/pci/devices/{world.tree.address(1)}"


async def test_a_release_goes_on_after_a_restart(world):
    await world.plug(1, DISK)
    await world.report_attached()
    await world.reports("Visible")
    await world.stop()
    await world.detach()
    # As far as the last daemon came: a disk without its driver shows no serial number.
    (world.tree.root / "bus/pci/drivers/nvme/unbind").write_text(world.tree.address(1))

    await waiting.eventually(lambda: world.driver() is None)
    world.start()
    await world.reports("Released")
    assert world.power() == "0"


async def test_a_card_that_appears_after_its_detach_is_released_too(world):
    await world.report_attached()
    await world.detach()
    await world.reports("Released")
    await world.plug(1, DISK)

    await waiting.eventually(lambda: world.power() == "0")
    assert 1 in world.tree.list_attached_cards()


async def test_a_device_that_is_pulled_is_lost_and_does_not_come_back_by_itself(world):
    await world.plug(1, DISK)
    await world.report_attached()
    await world.reports("Visible")
    await asyncio.to_thread(world.tree.surprise_remove, 1)
    seen = await world.reports("Visible", "False", "DeviceLost")
    assert seen["status"]["node"]["slot"] == "1", "where it was is kept"
    await world.plug(1, DISK, arrival=sysfs.Arrival.UNPOWERED)
    await world.stop()
    world.start()
    await world.detach()
    await world.reports("Released")
    assert world.power() == "0"


async def test_a_device_that_is_held_after_a_restart_of_the_host_is_verified(world):
    await world.plug(1, DISK)
    await world.report_attached()
    seen = await world.reports("Visible")
    await world.stop()
    await world.report_visible_before(seen, bootID="the-last-boot")
    world.start()
    boot_id = seen["status"]["node"]["bootID"]
    await world.node_until(lambda node: node["bootID"] == boot_id)


async def test_a_device_that_a_claim_has_used_is_reset_before_it_is_handed_on(world):
    await world.plug(1, DISK)
    await world.report_attached()
    seen = await world.reports("Visible")
    await world.stop()
    await world.report_visible_before(
        seen, claimUID="the-last-claim", allocationTimestamp="2026-01-02T03:04:05Z"
    )
    assert world.tree.resets(1) == 0
    world.start()
    await world.node_until(lambda node: "claimUID" not in node)
    # The tree reacts a moment after the write.
    assert await waiting.eventually(lambda: world.tree.resets(1)) == 1
