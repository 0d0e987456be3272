"""Whole lives of a device at a node daemon: what arrives late, wrong or not at all, and what is hard to let go of."""

import asyncio
import contextlib
import dataclasses
import datetime
import shutil

import pytest
from tests.scenes import attachments as scenes

from drawbar.driver.api import meta
from drawbar.driver.kube import client, config, kinds
from drawbar.driver.node import daemon, settings
from drawbar.driver.node.discovery import reader
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks import apiserver, sysfs
from drawbar.mocks.cluster import deployment

NODE = "node-1"
NAME = "fab.nvme-0"
DISK = sysfs.MockDevice(device_class=DeviceClass.NVME, vendor=0x1B36, device=0x0010, serial="SN0001")


class World:
    """An API server with the deployed files, a node with empty slots, and its daemon."""

    def __init__(self, api, tree, options, until):
        self.api, self.tree, self.options = api, tree, options
        self._until = until
        self._task = None

    async def start(self):
        self._task = asyncio.Task(daemon.run(self.options))

    async def stop(self):
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def attached(self, **identity):
        """What the controller makes once the fabric has connected a device to slot 1, for no claim."""
        body = scenes.document(
            NAME,
            NODE,
            held=True,
            identity={"deviceClass": "nvme", "serial": "SN0001", "pciID": "1b36:0010"} | identity,
        )
        await self.api.create(kinds.ATTACHMENT, body, into=dict)
        now = meta.timestamp(datetime.datetime.now(datetime.UTC))
        attached = scenes.condition("Attached", at=now)
        place = {"port": "1", "slot": "1"}
        await scenes.apply_status(
            self.api, NAME, "drawbar-controller", conditions=[attached], connection=place
        )

    async def until(self, kind, status="True", reason=None):
        """The attachment once it has this condition."""

        async def read():
            return await self.api.read(kinds.ATTACHMENT, NAME, into=dict)

        def holds(found):
            one = condition(found, kind)
            return one.get("status") == status and reason in (None, one["reason"])

        return await self._until(read, holds)

    async def said_before(self, seen, **node):
        """What a daemon that ran before has said."""
        known = {"phase": "Ready", "conditions": [condition(seen, "Visible")]}
        await scenes.apply_status(self.api, NAME, "drawbar-node", node=seen["status"]["node"] | node, **known)

    async def node_until(self, holds):
        """Waits for what the node says of the device."""

        async def read():
            return (await self.api.read(kinds.ATTACHMENT, NAME, into=dict))["status"]["node"]

        await self._until(read, holds)

    async def detach(self):
        await self.api.delete(kinds.ATTACHMENT, NAME)

    async def put_in(self, slot, card, **how):
        await asyncio.to_thread(self.tree.attach, slot, card, **how)

    def power(self, slot=1):
        return (self.tree.root / f"bus/pci/slots/{slot}/power").read_text().strip()

    def driver(self, slot=1):
        function = reader.read_function(self.tree.root, self.tree.address(slot))
        return function and function.driver


def condition(found, kind):
    return next((one for one in found["status"].get("conditions", ()) if one["type"] == kind), {})


IMPATIENT = pytest.mark.parametrize("patience", [3])
"""Of tests that wait until a device has had its time."""


@pytest.fixture
def patience():
    """For how many seconds a device may take to become ready: on a slow machine the daemon is up after some only."""
    return 60


@pytest.fixture
async def world(tmp_path, until, patience):
    tree = sysfs.SysfsTree.create(tmp_path / "sys", uevent_socket=tmp_path / "uevents")
    async with apiserver.serving() as server, tree.reacting():
        server.kubeconfig(tmp_path / "admin", "admin")
        server.kubeconfig(tmp_path / "node", "drawbar:drawbar-node", node=NODE)
        async with client.connecting(config.from_kubeconfig(tmp_path / "admin")) as api:
            await deployment.apply(api)
            options = settings.Settings(
                node_name=NODE,
                kubeconfig=str(tmp_path / "node"),
                kubelet_dir=tmp_path / "k",
                cdi_dir=tmp_path / "cdi",
                sysfs=tmp_path / "sys",
                uevents=f"unix:{tmp_path / 'uevents'}",
                visible_timeout_seconds=patience,
            )
            found = World(api, tree, options, until)
            await found.start()
            yield found
            await found.stop()


async def test_a_card_that_waits_for_power_gets_it(world):
    await world.put_in(1, DISK, arrival=sysfs.Arrival.UNPOWERED)
    await world.attached()
    seen = await world.until("Visible")
    assert seen["status"]["node"]["slot"] == "1"
    assert world.power() == "1"


@IMPATIENT
async def test_a_card_in_another_slot_gets_no_power(world):
    await world.put_in(2, DISK, arrival=sysfs.Arrival.UNPOWERED)
    await world.attached()
    seen = await world.until("Visible", "False", "DeviceNotFound")
    assert "slot 1" in condition(seen, "Visible")["message"]
    assert world.power(2) == "0"


@IMPATIENT
async def test_another_device_in_the_slot_is_named_and_left_alone(world):
    await world.put_in(1, dataclasses.replace(DISK, serial="SN0002"))
    await world.attached()
    seen = await world.until("Visible", "False", "WrongDevice")
    assert "SN0002" in condition(seen, "Visible")["message"]
    await world.detach()
    await world.until("Released")
    assert world.driver() == "nvme"


@IMPATIENT
async def test_a_device_that_no_driver_takes_is_reported_and_can_be_given_back(world):
    await world.put_in(1, dataclasses.replace(DISK, driver=""))
    await world.attached()
    seen = await world.until("Visible", "False", "DriverNotBound")
    assert "0000:01:00.0" in condition(seen, "Visible")["message"]
    await world.detach()
    await world.until("Released")
    assert world.power() == "0"


@IMPATIENT
async def test_a_device_whose_link_does_not_come_up_is_reported(world):
    await world.put_in(1, DISK, arrival=sysfs.Arrival.NO_LINK)
    await world.attached()
    await world.until("Visible", "False", "LinkDown")


async def test_a_device_without_a_serial_number_is_known_by_its_slot_and_model(world):
    await world.put_in(1, dataclasses.replace(DISK, serial=None))
    await world.attached(serial="")
    await world.until("Visible")


async def test_what_holds_a_device_is_said_and_then_it_goes(world, tmp_path):
    await world.put_in(1, DISK)
    await world.attached()
    await world.until("Visible")
    (node,) = (world.tree.root / world_path(world)).glob("nvme/nvme0")
    with (node / "uevent").open("w") as file:
        file.write("MAJOR=1\nMINOR=3\nDEVNAME=nvme0\n")
    (node / "dev").write_text("1:3\n")
    process = tmp_path / "proc" / "4711"
    (process / "fd").mkdir(parents=True)
    (process / "comm").write_text("python\n")
    (process / "fd" / "7").symlink_to("/dev/null")
    await world.detach()
    seen = await world.until("Released", "False", "InUse")
    said = condition(seen, "Released")["message"]
    assert "pid 4711 (python)" in said
    assert world.driver() == "nvme", "nothing was undone"
    assert seen["status"]["node"]["pciAddress"] == "0000:01:00.0"

    async def events():
        found = (await world.api.list_all(kinds.EVENT, into=dict, namespace="default")).items
        return [one for one in found if one["reason"] == "InUse"]

    (event,) = await world._until(events, bool)
    assert event["regarding"]["name"] == NAME
    shutil.rmtree(process)
    seen = await world.until("Released")
    assert condition(seen, "Visible")["status"] == "True"
    assert world.power() == "0"
    assert world.driver() is None


def world_path(world):
    return f"bus/pci/devices/{world.tree.address(1)}"


async def test_a_release_goes_on_after_a_restart(world):
    await world.put_in(1, DISK)
    await world.attached()
    await world.until("Visible")
    await world.stop()
    await world.detach()
    # As far as the last daemon came: a disk without its driver shows no serial number.
    (world.tree.root / "bus/pci/drivers/nvme/unbind").write_text(world.tree.address(1))

    async def driver():
        return world.driver()

    await world._until(driver, lambda found: found is None)
    await world.start()
    await world.until("Released")
    assert world.power() == "0"


async def test_a_card_that_shows_up_after_it_was_given_back_is_released_too(world):
    await world.attached()
    await world.detach()
    await world.until("Released")
    await world.put_in(1, DISK)

    async def power():
        return world.power()

    await world._until(power, lambda found: found == "0")
    assert 1 in world.tree.attached()


async def test_a_device_that_is_pulled_is_lost_and_does_not_come_back_by_itself(world):
    await world.put_in(1, DISK)
    await world.attached()
    await world.until("Visible")
    await asyncio.to_thread(world.tree.surprise_remove, 1)
    seen = await world.until("Visible", "False", "DeviceLost")
    assert seen["status"]["node"]["slot"] == "1", "where it was is kept"
    await world.put_in(1, DISK, arrival=sysfs.Arrival.UNPOWERED)
    await world.stop()
    await world.start()
    await world.detach()
    await world.until("Released")
    assert world.power() == "0"


async def test_a_device_that_is_held_after_a_restart_of_the_host_is_verified(world):
    await world.put_in(1, DISK)
    await world.attached()
    seen = await world.until("Visible")
    await world.stop()
    await world.said_before(seen, bootID="the-last-boot")
    await world.start()
    boot_id = seen["status"]["node"]["bootID"]
    await world.node_until(lambda node: node["bootID"] == boot_id)


async def test_a_device_that_a_claim_has_used_is_reset_before_it_is_handed_on(world, until):
    async def resets():
        return world.tree.resets(1)

    await world.put_in(1, DISK)
    await world.attached()
    seen = await world.until("Visible")
    await world.stop()
    await world.said_before(seen, claimUID="the-last-claim", allocationTimestamp="2026-01-02T03:04:05Z")
    assert await resets() == 0
    await world.start()
    await world.node_until(lambda node: "claimUID" not in node)
    # The tree reacts a moment after the write.
    await until(resets, bool)
    assert await resets() == 1
