"""What blocks a release: who uses the device, and a kernel that refuses, does nothing or hangs."""

import asyncio
import errno
import os
import shutil

import pytest
from tests.scenes.treatment import BARE, CXL, GPU, NIC, NVME, SLOT, TreatedHost, regions, running_host

from drawbar.driver.catalogue import reasons
from drawbar.driver.node import errors, kernel, treatment
from drawbar.driver.node.discovery import reader
from drawbar.driver.node.inventory import model
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks.sysfs import MockDevice, SysfsTree


@pytest.fixture
def open_by(tmp_path):
    """Return a function: `open_by(pid, name, device)` creates a process that has opened a device file."""

    def make(pid, name, device):
        folder = tmp_path / "proc" / str(pid)
        (folder / "fd").mkdir(parents=True)
        (folder / "comm").write_text(name + "\n")
        (folder / "fd/3").symlink_to(device)
        return folder

    return make


def number(tree, path, numbers):
    """Give a mocked device the numbers of a device that this machine has."""
    target = tree.root / path
    text = target.read_text()
    major, minor = numbers
    lines = [line for line in text.splitlines() if not line.startswith(("MAJOR", "MINOR"))]
    target.write_text("\n".join([f"MAJOR={major}", f"MINOR={minor}", *lines]) + "\n")


async def test_an_open_device_file_blocks_everything_and_is_named(tmp_path, open_by):
    async with running_host(tmp_path, GPU) as host:
        number(host.tree, "class/drm/card0/uevent", (1, 3))
        process = open_by(4711, "python", "/dev/null")
        blocked = await host.until(treatment.Blocked)
        assert blocked.reason == reasons.IN_USE
        assert blocked.message == "held by pid 4711 (python), /dev/dri/card0"
        assert reader.read_function(host.tree.root, host.tree.address(SLOT)).driver == "amdgpu"
        assert host.power() == "1"
        shutil.rmtree(process)
        await host.until(treatment.Done)


async def test_a_mounted_disk_blocks(tmp_path):
    async with running_host(tmp_path, NVME) as host:
        folder = tmp_path / "proc/1"
        folder.mkdir(parents=True)
        (folder / "mountinfo").write_text(
            "36 35 259:0 / /var/my\\040data rw,noatime shared:1 - xfs /dev/nvme0n1 rw\n"
        )
        blocked = await host.until(treatment.Blocked)
        assert blocked.message == "mounted at /var/my data, /dev/nvme0n1"
        assert not isinstance(await host.step(), treatment.InProgress)


async def test_a_disk_that_the_kernel_has_to_itself_blocks_at_the_flush(tmp_path):
    """Opening the disk exclusively shows a use that neither sysfs nor proc shows."""

    class Busy(kernel.Kernel):
        async def run(self, target, what, function):
            if what.startswith("to flush"):
                raise errors.KernelRefused("/dev/nvme0n1 is in use inside the kernel", number=errno.EBUSY)
            return await super().run(target, what, function)

    async with running_host(tmp_path, NVME) as host:
        host.use(Busy(host.tree.root))
        blocked = await host.until(treatment.Blocked)
        assert (blocked.reason, "inside the kernel" in blocked.message) == (reasons.KERNEL_REFUSED, True)
        assert host.card().first.driver == "nvme"


async def test_an_interleaved_region_blocks(tmp_path):
    async with running_host(tmp_path, GPU) as host:
        await asyncio.to_thread(host.tree.detach, SLOT)
        for slot, serial in ((1, "1"), (2, "2")):
            card = MockDevice(
                device_class=DeviceClass.CXL_MEMORY, vendor=1, device=2, serial=serial, memory_bytes=1 << 28
            )
            await asyncio.to_thread(host.tree.attach, slot, card)
        await asyncio.to_thread(host.tree.create_region, [1, 2])
        blocked = await host.until(treatment.Blocked)
        assert "region0 is interleaved with other devices" in blocked.message
        assert len(regions(host.tree)) == 1


class KeepsOnline(kernel.Kernel):
    """Comes back from a write only when the block says again that it is online: a mocked kernel takes a moment."""

    async def set_memory(self, block, state):
        await super().set_memory(block, state)
        file = self.sysfs / f"devices/system/memory/{block}/state"
        async with asyncio.timeout(120):
            while "online" not in file.read_text():  # noqa: ASYNC110 - a file sends no events
                await asyncio.sleep(0.01)


async def test_memory_that_will_not_go_offline_blocks(tmp_path):
    async with running_host(tmp_path, CXL, progress_seconds=0.2) as host:
        await asyncio.to_thread(host.tree.keep_online, "region0")
        host.use(KeepsOnline(host.tree.root))
        # Where the machine is slow, the step before may be reported as well.
        blocked = await host.until(treatment.Blocked, message="2 memory blocks are online")
        assert blocked.reason == reasons.NO_PROGRESS
        assert len(regions(host.tree)) == 1
        assert host.power() == "1"


async def test_a_kernel_that_does_nothing_is_reported_and_not_asked_all_the_time(tmp_path):
    tree = SysfsTree.create(tmp_path / "sys", slots=1)
    await asyncio.to_thread(tree.attach, SLOT, GPU)  # and no kernel reacts
    now = [100.0]
    host = TreatedHost(tree)
    host.use(kernel.Kernel(tree.root), clock=lambda: now[0])
    card = host.card()
    unbind = tree.root / "bus/pci/drivers/amdgpu/unbind"
    assert isinstance(await host.treat(card, "1"), treatment.InProgress)
    unbind.write_text("")
    now[0] += 0.5
    assert isinstance(await host.treat(card, "1"), treatment.InProgress)
    assert unbind.read_text() == ""
    now[0] += 1
    assert isinstance(await host.treat(card, "1"), treatment.InProgress)
    assert unbind.read_text() == f"{card.address}\n"
    now[0] += 10
    blocked = await host.treat(card, "1")
    assert blocked.reason == reasons.NO_PROGRESS
    assert f"asked to unbind the driver of {card.address}, the kernel has not for 12 s" in blocked.message


async def test_a_kernel_that_hangs_is_reported_and_holds_no_device_up(tmp_path, until):
    tree = SysfsTree.create(tmp_path / "sys", slots=2)
    for slot, card in ((1, GPU), (2, NIC)):
        await asyncio.to_thread(tree.attach, slot, card)
    unbind = tree.root / "bus/pci/drivers/amdgpu/unbind"
    unbind.unlink()
    os.mkfifo(unbind)
    asked = kernel.Kernel(tree.root, deadline_seconds=0.3)
    hosts = {slot: TreatedHost(tree) for slot in "12"}
    for host in hosts.values():
        host.use(asked)
    cards = {
        slot: model.Card(functions=(function,))
        for slot in "12"
        if (function := reader.read_function(tree.root, tree.address(int(slot))))
    }
    for _ in range(2):
        blocked = await hosts["1"].treat(cards["1"], "1")
        assert blocked.reason == reasons.KERNEL_SILENT
        assert "the kernel has not answered for" in blocked.message

    async def treat_other():
        return await hosts["2"].treat(cards["2"], "2")

    # The deadline is short for the one that hangs: a slow machine may miss it for the other, too, and is asked again.
    await until(treat_other, lambda outcome: isinstance(outcome, treatment.InProgress))
    os.close(os.open(unbind, os.O_RDONLY | os.O_NONBLOCK))


async def test_a_refusal_of_the_kernel_is_reported_with_its_remedy(tmp_path):
    async with running_host(tmp_path, BARE) as host:
        (host.tree.root / f"bus/pci/devices/{host.tree.address(SLOT)}/remove").unlink()
        blocked = await host.until(treatment.Blocked)
        assert blocked.reason == reasons.KERNEL_REFUSED
        assert "/remove" in blocked.message
        assert "ENOENT" in blocked.message
