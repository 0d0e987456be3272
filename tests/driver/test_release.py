"""Letting go of devices on a mocked host that does what a kernel does when it is written to."""

import asyncio
import contextlib
import errno
import itertools
import os
import shutil
import types

import pytest

from drawbar.driver.node import classes, errors, inventory, kernel, release
from drawbar.driver.node.release import outcomes
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks.sysfs import MockDevice, SysfsTree

GPU = MockDevice(device_class=DeviceClass.GPU, vendor=0x1002, device=0x740F, serial="00-11-22-33-44-55-66-77")
NVME = MockDevice(device_class=DeviceClass.NVME, vendor=0x144D, device=0xA824, serial="SN0001")
FPGA = MockDevice(
    device_class=DeviceClass.FPGA, vendor=0x8086, device=0x0B2B, total_vfs=4, vf_driver="dfl-pci"
)
NIC = MockDevice(device_class=DeviceClass.NIC, vendor=0x15B3, device=0x1021)
BARE = MockDevice(device_class=DeviceClass.ACCELERATOR, vendor=0x1DA3, device=0x1020, driver="")
CXL = MockDevice(
    device_class=DeviceClass.CXL_MEMORY, vendor=0x8086, device=0x0D93, serial="4660", memory_bytes=1 << 29
)
SLOT = 1
LEAST_AWAITS = 6
"""Of a whole release: each step looks and acts, in a thread."""
CARDS = [
    pytest.param(GPU, id="gpu"),
    pytest.param(NVME, id="nvme"),
    pytest.param(FPGA, id="fpga with virtual functions"),
    pytest.param(NIC, id="nic"),
    pytest.param(BARE, id="no driver"),
    pytest.param(CXL, id="cxl memory, online"),
]


class Place:
    """A host with one card in slot 1, and whoever lets go of it."""

    def __init__(self, tree, **limits):
        self.tree, self.limits = tree, release.Timeouts(**({"blocked_seconds": 0.01} | limits))
        self.releaser = self.fresh()

    def fresh(self):
        """A releaser that remembers nothing, as after a restart."""
        return release.Releaser(kernel.Kernel(self.tree.root), limits=self.limits)

    def card(self):
        """As a node finds its device: by what it is, and not at all once the driver that tells its serial is gone."""
        functions = inventory.read(self.tree.root).functions
        address = self.tree.address(SLOT)
        own = tuple(one for one in functions if address in (one.address, one.physical_function))
        named = [one for one in own if one.serial or one.driver or one.device == BARE.device]
        return inventory.model.Card(functions=own) if named else None

    async def step(self):
        return await self.releaser.step(self.card(), str(SLOT))

    async def until(self, wanted, *, each=lambda: None, told=""):
        async with asyncio.timeout(20):
            while True:
                outcome = await self.step()
                if isinstance(outcome, wanted) and told in getattr(outcome, "message", ""):
                    return outcome
                assert not isinstance(outcome, release.Released)
                each()
                await asyncio.sleep(outcome.seconds)

    def functions(self):
        """What of the card is left: the port above it stays."""
        return [one.address for one in inventory.read(self.tree.root).functions if one.slot == str(SLOT)]

    def power(self, slot=SLOT):
        return (self.tree.root / f"bus/pci/slots/{slot}/power").read_text().strip()

    def is_off(self):
        return not self.functions() and self.power() == "0" and not regions(self.tree)


def regions(tree):
    return list((tree.root / "bus/cxl/devices").glob("region*"))


def put_in(tree, card):
    tree.attach(SLOT, card)
    if card.total_vfs:
        tree.set_vfs(SLOT, 2)
    if card is CXL:
        tree.create_region([SLOT])


@contextlib.asynccontextmanager
async def place(path, card, **limits):
    path.mkdir(exist_ok=True)
    tree = SysfsTree.create(path / "sys", slots=2)
    async with tree.reacting():
        await asyncio.to_thread(put_in, tree, card)
        yield Place(tree, **limits)


@pytest.mark.parametrize("card", CARDS)
async def test_a_device_that_nobody_uses_is_released_and_its_slot_is_off(tmp_path, card):
    async with place(tmp_path, card) as host:
        await host.until(release.Released)
        assert host.is_off()
        assert isinstance(await host.step(), release.Released)


@pytest.mark.parametrize("card", CARDS)
async def test_a_release_goes_on_after_a_crash_at_every_step(tmp_path, card):
    # Whoever remembers nothing asks again at once, and a mocked kernel answers every time: so not too often.
    async with place(tmp_path, card, next_seconds=0.1) as host:

        def crash():
            host.releaser = host.fresh()

        await host.until(release.Released, each=crash)
        assert host.is_off()


class Budget:
    """How many suspensions are left before a coroutine is thrown away, as kill -9 does."""

    def __init__(self, suspensions):
        self.left = suspensions

    @types.coroutine
    def spend(self, coroutine):
        """Runs it; gives None if it was abandoned at a suspension."""
        while True:
            try:
                future = coroutine.send(None)
            except StopIteration as done:
                return done.value
            if self.left == 0:
                coroutine.close()
                return None
            self.left -= 1
            yield future


@pytest.mark.timeout(240)  # some forty hosts for CXL memory, one for each await
@pytest.mark.parametrize("card", [NVME, FPGA, CXL], ids=["nvme", "fpga", "cxl memory"])
async def test_a_release_goes_on_when_it_is_abandoned_at_any_await(tmp_path, card, until):
    """Every await of a whole release in turn, each on a host of its own; what its threads do, they do to the end."""

    async def is_off():
        return host.is_off()

    for suspensions in itertools.count():
        async with place(tmp_path / str(suspensions), card) as host:
            budget, outcome = Budget(suspensions), host.limits
            while outcome is not None and not isinstance(outcome, release.Released):
                outcome = await budget.spend(host.step())
                await asyncio.sleep(getattr(outcome, "seconds", 0))
            host.releaser = host.fresh()
            await host.until(release.Released)
            # A thread of the abandoned step may be about to write the same once more.
            await until(is_off, bool)
        if outcome is not None:
            break
    assert suspensions >= LEAST_AWAITS


async def test_a_slot_that_was_switched_off_by_hand_is_released(tmp_path, until):
    async with place(tmp_path, GPU) as host:
        (host.tree.root / "bus/pci/slots/1/power").write_text("0\n")

        async def left():
            return host.functions()

        await until(left, lambda functions: not functions)
        assert isinstance(await host.step(), release.Released)


async def test_a_release_goes_on_for_a_device_that_the_inventory_has_lost_sight_of(tmp_path):
    async with place(tmp_path, GPU) as host:
        assert isinstance(await host.step(), release.Working)
        host.card = lambda: None
        await host.until(release.Released)
        assert host.is_off()


async def test_a_card_that_was_pulled_is_released(tmp_path):
    async with place(tmp_path, NVME) as host:
        await asyncio.to_thread(host.tree.surprise_remove, SLOT)
        await host.until(release.Released)
        assert host.functions() == []


async def test_what_is_in_no_slot_and_was_never_seen_is_released(tmp_path):
    host = Place(SysfsTree.create(tmp_path / "sys"))
    assert isinstance(await host.releaser.step(None, ""), release.Released)
    assert isinstance(await host.releaser.step(None, "77"), release.Released)


async def test_another_card_in_the_slot_by_now_is_left_alone(tmp_path):
    async with place(tmp_path, NVME) as host:
        old = host.card()
        await asyncio.to_thread(host.tree.detach, SLOT)
        await asyncio.to_thread(host.tree.attach, SLOT, GPU)
        for seen in (None, old):
            assert isinstance(await host.releaser.step(seen, str(SLOT)), release.Released)
        assert host.functions()
        assert host.power() == "1"


async def test_a_slot_whose_switch_always_says_on_counts_as_off_after_a_moment(tmp_path):
    """So it is where the port has no power controller; here nobody reacts, and the file is put back."""
    tree = SysfsTree.create(tmp_path / "sys", slots=1)
    power = tree.root / "bus/pci/slots/1/power"
    (tree.root / "bus/pci/slots/1/adapter").write_text("1\n")
    now = [5.0]
    releaser = release.Releaser(kernel.Kernel(tree.root), clock=lambda: now[0])
    for _ in range(3):
        power.write_text("1\n")
        outcome = await releaser.step(None, "1")
        assert isinstance(outcome, release.Working)
        now[0] += 0.1
    now[0] += 0.1
    assert isinstance(await releaser.step(None, "1"), release.Released)


async def test_the_neighbour_slot_is_left_alone(tmp_path):
    async with place(tmp_path, NVME) as host:
        await asyncio.to_thread(host.tree.attach, 2, GPU)
        await host.until(release.Released)
        assert inventory.read_function(host.tree.root, host.tree.address(2)).driver == "amdgpu"
        assert host.power(2) == "1"


async def test_a_device_without_a_slot_is_unbound_and_removed(tmp_path):
    async with place(tmp_path, GPU) as host:
        shutil.rmtree(host.tree.root / "bus/pci/slots/1")
        card = host.card()
        outcome = None
        while not isinstance(outcome, release.Released):
            outcome = await host.releaser.step(card, "")
        assert host.card() is None


# --- what blocks ---


@pytest.fixture
def open_by(tmp_path):
    """`open_by(pid, name, device)`: a process that has a device file open, in the proc beside the tree."""

    def make(pid, name, device):
        folder = tmp_path / "proc" / str(pid)
        (folder / "fd").mkdir(parents=True)
        (folder / "comm").write_text(name + "\n")
        (folder / "fd/3").symlink_to(device)
        return folder

    return make


def number(tree, path, numbers):
    """Gives a mocked device the numbers of a device that this machine has."""
    target = tree.root / path
    text = target.read_text()
    major, minor = numbers
    lines = [line for line in text.splitlines() if not line.startswith(("MAJOR", "MINOR"))]
    target.write_text("\n".join([f"MAJOR={major}", f"MINOR={minor}", *lines]) + "\n")


async def test_an_open_device_file_blocks_everything_and_is_named(tmp_path, open_by):
    async with place(tmp_path, GPU) as host:
        number(host.tree, "class/drm/card0/uevent", (1, 3))
        process = open_by(4711, "python", "/dev/null")
        blocked = await host.until(release.Blocked)
        assert blocked.reason == outcomes.IN_USE
        assert blocked.message == "held by pid 4711 (python), /dev/dri/card0"
        assert inventory.read_function(host.tree.root, host.tree.address(SLOT)).driver == "amdgpu"
        assert host.power() == "1"
        shutil.rmtree(process)
        await host.until(release.Released)


async def test_a_mounted_disk_blocks(tmp_path):
    async with place(tmp_path, NVME) as host:
        folder = tmp_path / "proc/1"
        folder.mkdir(parents=True)
        (folder / "mountinfo").write_text(
            "36 35 259:0 / /var/my\\040data rw,noatime shared:1 - xfs /dev/nvme0n1 rw\n"
        )
        blocked = await host.until(release.Blocked)
        assert blocked.message == "mounted at /var/my data, /dev/nvme0n1"
        assert not isinstance(await host.step(), release.Working)


async def test_a_disk_that_the_kernel_has_to_itself_blocks_at_the_flush(tmp_path):
    """What shows neither in sysfs nor in proc is found when the disk is opened exclusively."""

    class Busy(kernel.Kernel):
        async def run(self, target, what, function):
            if what.startswith("to flush"):
                raise errors.KernelRefused("/dev/nvme0n1 is in use inside the kernel", number=errno.EBUSY)
            return await super().run(target, what, function)

    async with place(tmp_path, NVME) as host:
        host.releaser = release.Releaser(Busy(host.tree.root), limits=host.limits)
        blocked = await host.until(release.Blocked)
        assert (blocked.reason, "inside the kernel" in blocked.message) == (outcomes.REFUSED, True)
        assert host.card().first.driver == "nvme"


async def test_an_interleaved_region_blocks(tmp_path):
    async with place(tmp_path, GPU) as host:
        await asyncio.to_thread(host.tree.detach, SLOT)
        for slot, serial in ((1, "1"), (2, "2")):
            card = MockDevice(
                device_class=DeviceClass.CXL_MEMORY, vendor=1, device=2, serial=serial, memory_bytes=1 << 28
            )
            await asyncio.to_thread(host.tree.attach, slot, card)
        await asyncio.to_thread(host.tree.create_region, [1, 2])
        blocked = await host.until(release.Blocked)
        assert "region0 is interleaved with other devices" in blocked.message
        assert len(regions(host.tree)) == 1


class KeepsOnline(kernel.Kernel):
    """Comes back from a write only when the block says again that it is online: a mocked kernel takes a moment."""

    async def set_memory(self, block, state):
        await super().set_memory(block, state)
        file = self.sysfs / f"devices/system/memory/{block}/state"
        async with asyncio.timeout(20):
            while "online" not in file.read_text():  # noqa: ASYNC110 - a file tells nobody
                await asyncio.sleep(0.01)


async def test_memory_that_will_not_go_offline_blocks(tmp_path):
    async with place(tmp_path, CXL, progress_seconds=0.2) as host:
        await asyncio.to_thread(host.tree.keep_online, "region0")
        host.releaser = release.Releaser(KeepsOnline(host.tree.root), limits=host.limits)
        # Where the machine is slow, the step before may be told of as well.
        blocked = await host.until(release.Blocked, told="2 memory blocks are online")
        assert blocked.reason == outcomes.STUCK
        assert len(regions(host.tree)) == 1
        assert host.power() == "1"


async def test_a_kernel_that_does_nothing_is_reported_and_not_asked_all_the_time(tmp_path):
    tree = SysfsTree.create(tmp_path / "sys", slots=1)
    await asyncio.to_thread(tree.attach, SLOT, GPU)  # and nobody reacts
    now = [100.0]
    releaser = release.Releaser(kernel.Kernel(tree.root), clock=lambda: now[0])
    card = Place(tree).card()
    unbind = tree.root / "bus/pci/drivers/amdgpu/unbind"
    assert isinstance(await releaser.step(card, "1"), release.Working)
    unbind.write_text("")
    now[0] += 0.5
    assert isinstance(await releaser.step(card, "1"), release.Working)
    assert unbind.read_text() == ""
    now[0] += 1
    assert isinstance(await releaser.step(card, "1"), release.Working)
    assert unbind.read_text() == f"{card.address}\n"
    now[0] += 10
    blocked = await releaser.step(card, "1")
    assert blocked.reason == outcomes.STUCK
    assert f"asked to unbind the driver of {card.address}, the kernel has not for 12 s" in blocked.message


async def test_a_kernel_that_hangs_is_reported_and_holds_nobody_up(tmp_path, until):
    tree = SysfsTree.create(tmp_path / "sys", slots=2)
    for slot, card in ((1, GPU), (2, NIC)):
        await asyncio.to_thread(tree.attach, slot, card)
    unbind = tree.root / "bus/pci/drivers/amdgpu/unbind"
    unbind.unlink()
    os.mkfifo(unbind)
    asked = kernel.Kernel(tree.root, deadline_seconds=0.3)
    releaser = release.Releaser(asked)
    cards = {
        slot: inventory.model.Card(functions=(function,))
        for slot in "12"
        if (function := inventory.read_function(tree.root, tree.address(int(slot))))
    }
    for _ in range(2):
        blocked = await releaser.step(cards["1"], "1")
        assert blocked.reason == outcomes.SILENT
        assert "the kernel has not answered for" in blocked.message

    async def other():
        return await releaser.step(cards["2"], "2")

    # The deadline is short for the one that hangs: a slow machine may miss it for the other, too, and is asked again.
    await until(other, lambda outcome: isinstance(outcome, release.Working))
    os.close(os.open(unbind, os.O_RDONLY | os.O_NONBLOCK))


async def test_a_refusal_of_the_kernel_is_told_with_its_remedy(tmp_path):
    async with place(tmp_path, BARE) as host:
        (host.tree.root / f"bus/pci/devices/{host.tree.address(SLOT)}/remove").unlink()
        blocked = await host.until(release.Blocked)
        assert blocked.reason == outcomes.REFUSED
        assert "/remove" in blocked.message
        assert "ENOENT" in blocked.message


def test_a_host_is_real_only_at_sys(tmp_path):
    assert classes.Host.of(classes.Host().sysfs) == classes.Host()
    assert classes.Host.of(tmp_path / "sys").proc == tmp_path / "proc"


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), 1e9])
def test_a_time_that_cannot_be_is_said(value):
    found = release.problems(release.Timeouts(progress_seconds=value))
    assert len(found) == 1
    assert "progress_seconds" in found[0]
    assert release.problems(release.Timeouts()) == []
