"""Letting go of devices on a mocked host that does what a kernel does when it is written to."""

import asyncio
import dataclasses
import errno
import functools
import itertools
import shutil
import threading
import types

import pytest
from tests.scenes.treatment import BARE, CXL, FPGA, GPU, NIC, NVME, SLOT, TreatedHost, regions, running_host

from drawbar.driver.api.attachments import Clean
from drawbar.driver.catalogue import reasons
from drawbar.driver.node import classes, errors, kernel, treatment
from drawbar.driver.node.classes import nvme
from drawbar.driver.node.discovery import reader
from drawbar.driver.node.inventory import model
from drawbar.driver.node.treatment import erasing, executor, hooks
from drawbar.mocks.sysfs import SysfsTree

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


@pytest.mark.parametrize("card", CARDS)
async def test_a_device_that_no_process_uses_is_released_and_its_slot_is_off(tmp_path, card):
    async with running_host(tmp_path, card) as host:
        await host.until(treatment.Done)
        assert host.is_off()
        assert isinstance(await host.step(), treatment.Done)


@pytest.mark.parametrize(
    "card",
    [
        pytest.param(GPU, id="gpu"),
        pytest.param(BARE, id="no driver"),
        pytest.param(CXL, id="cxl memory without a way to sanitize"),
        pytest.param(dataclasses.replace(CXL, persistent=True), id="persistent memory"),
    ],
)
async def test_a_used_device_of_which_nothing_is_erased_leaves(tmp_path, card):
    async with running_host(tmp_path, card) as host:
        host.order = {"is_used": True}
        await host.until(treatment.Done)
        assert host.is_off()


@pytest.mark.parametrize("card", CARDS)
async def test_a_release_goes_on_after_a_crash_at_every_step(tmp_path, card):
    # Whoever remembers nothing asks again at once, and a mocked kernel answers every time: so not too often.
    async with running_host(tmp_path, card, next_seconds=0.1) as host:

        def crash():
            host.restart()

        await host.until(treatment.Done, each=crash)
        assert host.is_off()


class Budget:
    """How many suspensions are left before a coroutine is thrown away, as kill -9 does."""

    def __init__(self, suspensions):
        self.left = suspensions

    @types.coroutine
    def spend(self, coroutine):
        """Run it; return None if it was abandoned at a suspension."""
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


@pytest.mark.parametrize("card", [NVME, FPGA, CXL], ids=["nvme", "fpga", "cxl memory"])
async def test_a_release_goes_on_when_it_is_abandoned_at_any_await(tmp_path, card, until):
    """A whole release is abandoned at each await in turn, on a new host each time; its threads finish."""

    async def is_off():
        return host.is_off()

    for suspensions in itertools.count():
        async with running_host(tmp_path / str(suspensions), card) as host:
            budget, outcome = Budget(suspensions), host.limits
            while outcome is not None and not isinstance(outcome, treatment.Done):
                outcome = await budget.spend(host.step())
                await asyncio.sleep(getattr(outcome, "seconds", 0))
            host.restart()
            await host.until(treatment.Done)
            # A thread of the abandoned step may be about to write the same once more.
            await until(is_off, bool)
        if outcome is not None:
            break
    assert suspensions >= LEAST_AWAITS


async def test_a_slot_that_was_switched_off_by_hand_is_released(tmp_path, until):
    async with running_host(tmp_path, GPU) as host:
        (host.tree.root / "bus/pci/slots/1/power").write_text("0\n")

        async def list_functions():
            return host.functions()

        await until(list_functions, lambda functions: not functions)
        assert isinstance(await host.step(), treatment.Done)


async def test_a_release_goes_on_for_a_device_that_the_inventory_has_lost_sight_of(tmp_path):
    async with running_host(tmp_path, GPU) as host:
        assert isinstance(await host.step(), treatment.InProgress)
        host.card = lambda: None
        await host.until(treatment.Done)
        assert host.is_off()


class Recording(kernel.Kernel):
    """Keeps what it was asked to do to functions, in order, and refuses what is in `refused`."""

    def __init__(self, sysfs, refused=()):
        super().__init__(sysfs)
        self.asked, self.refused = [], set(refused)

    async def unbind(self, address):
        self.asked.append(("unbind", address))
        await super().unbind(address)

    async def reset(self, address):
        self.asked.append(("reset", address))
        if "reset" in self.refused:
            raise errors.KernelRefused("cannot write '1' to reset: it does not answer", number=errno.ENOTTY)
        await super().reset(address)

    async def remove(self, address):
        self.asked.append(("remove", address))
        await super().remove(address)


@pytest.mark.parametrize("card", CARDS)
async def test_each_function_is_reset_without_a_driver_right_before_it_is_removed(tmp_path, card):
    async with running_host(tmp_path, card) as host:
        recording = Recording(host.tree.root)
        # No time passes, so no step is made again.
        host.use(recording, clock=lambda: 0.0)
        await host.until(treatment.Done)
    steps = [call for call in recording.asked if call[0] != "unbind"]
    assert steps
    assert [what for what, _ in steps] == ["reset", "remove"] * (len(steps) // 2)
    assert [address for _, address in steps[::2]] == [address for _, address in steps[1::2]]
    assert len(set(steps)) == len(steps)
    assert not any(what == "unbind" for what, _ in recording.asked[recording.asked.index(steps[0]) :])


async def test_a_device_that_is_not_reset_is_not_removed_until_it_is(tmp_path):
    async with running_host(tmp_path, NVME) as host:
        recording = Recording(host.tree.root, refused={"reset"})
        host.use(recording)
        blocked = await host.until(treatment.Blocked)
        address = host.tree.address(SLOT)
        assert blocked.reason == reasons.NOT_CLEANED
        assert blocked.message.startswith(f"{address} is not reset, so the device stays on this node: cannot")
        assert isinstance(await host.step(), treatment.Blocked)
        assert (host.functions(), host.power()) == ([address], "1")
        recording.refused.clear()
        await host.until(treatment.Done)
        assert host.is_off()


class Data:
    """What a disk has of its user, and what erases it when it is let."""

    def __init__(self, host, monkeypatch, *, way=None, error=None):
        self.host, self.error, self.left, self.driver = host, error, True, None
        self.let = threading.Event()
        monkeypatch.setattr(nvme.Nvme, "eraser", lambda _, host, card: functools.partial(self.erase, card))
        host.order = {"is_used": True, "clean": way}

    def erase(self, card, report):
        self.driver = card.first.driver
        report("half of it is erased")
        assert self.let.wait(120)
        if self.error is not None:
            raise self.error
        self.left = False


@pytest.fixture
def quick_progress(monkeypatch):
    """Make the executor report every erase, however short."""
    monkeypatch.setattr(executor, "ERASE_REPORTED_SECONDS", 0)
    monkeypatch.setattr(executor, "ERASE_LOOK_SECONDS", 0.01)


async def test_a_disk_is_erased_by_its_driver_before_it_leaves(tmp_path, monkeypatch, quick_progress):
    async with running_host(tmp_path, NVME) as host:
        data, recording = Data(host, monkeypatch), Recording(host.tree.root)
        host.use(recording)
        erasing = await host.until(treatment.InProgress, message="half")
        assert erasing.message == "half of it is erased"
        assert recording.asked == []
        data.let.set()
        await host.until(treatment.Done)
        assert (data.left, data.driver, host.is_off()) == (False, "nvme", True)


async def test_a_disk_that_is_in_use_is_not_erased(tmp_path, monkeypatch):
    async with running_host(tmp_path, NVME) as host:
        data = Data(host, monkeypatch)
        data.let.set()
        with monkeypatch.context() as patch:
            patch.setattr(nvme.Nvme, "current_users", lambda *_: ("held by pid 1 (x), /dev/nvme0n1",))
            assert (await host.until(treatment.Blocked)).reason == reasons.IN_USE
            assert data.left
        await host.until(treatment.Done)
        assert not data.left


async def test_a_disk_that_cannot_be_erased_stays_and_is_tried_again(tmp_path, monkeypatch, quick_progress):
    monkeypatch.setattr(erasing, "AGAIN_SECONDS", 0.2)
    async with running_host(tmp_path, NVME) as host:
        data = Data(host, monkeypatch, error=errors.NotCleaned("/dev/nvme0 is not erased: it is broken"))
        data.let.set()
        blocked = await host.until(treatment.Blocked, message="broken")
        assert blocked.reason == reasons.NOT_CLEANED
        assert (host.card().first.driver, host.power()) == ("nvme", "1")
        data.error = None
        await host.until(treatment.Done)
        assert not data.left


@pytest.mark.parametrize("way", [Clean.RESET, Clean.NONE])
async def test_an_administrator_may_let_go_of_a_disk_whose_erase_failed_at_once(
    tmp_path, monkeypatch, quick_progress, way
):
    async with running_host(tmp_path, NVME) as host:
        data = Data(host, monkeypatch, error=errors.NotCleaned("it is broken"))
        data.let.set()
        await host.until(treatment.Blocked, message="broken")
        host.order |= {"clean": way}
        assert isinstance(await host.step(), treatment.InProgress), "though the next try is not due yet"
        await host.until(treatment.Done)
        assert data.left


async def test_a_running_erase_finishes_despite_a_new_order(tmp_path, monkeypatch, quick_progress):
    async with running_host(tmp_path, NVME) as host:
        data = Data(host, monkeypatch)
        await host.until(treatment.InProgress, message="half")
        host.order |= {"clean": Clean.NONE}
        assert (await host.step()).message == "half of it is erased"
        data.let.set()
        await host.until(treatment.Done)


async def test_a_disk_whose_driver_is_gone_gets_it_back_to_be_erased(tmp_path, monkeypatch):
    async with running_host(tmp_path, NVME) as host:
        data = Data(host, monkeypatch)
        data.let.set()
        card = host.card()
        await kernel.Kernel(host.tree.root).unbind(card.address)
        host.card = lambda: card
        await host.until(treatment.Done)
        assert (data.left, data.driver, host.is_off()) == (False, "nvme", True)


@pytest.mark.parametrize(
    ("way", "erased", "reset"),
    [(None, True, True), (Clean.ERASE, True, True), (Clean.RESET, False, True), (Clean.NONE, False, False)],
)
async def test_a_device_is_cleaned_as_its_fabric_says(tmp_path, monkeypatch, way, erased, reset):
    async with running_host(tmp_path, NVME) as host:
        data, recording = Data(host, monkeypatch, way=way), Recording(host.tree.root)
        data.let.set()
        host.use(recording)
        await host.until(treatment.Done)
        assert data.left != erased
        assert ("reset" in {what for what, _ in recording.asked}) == reset


async def test_a_reset_that_hangs_is_reported_and_nothing_is_removed(tmp_path):
    class Hangs(Recording):
        async def reset(self, address):
            raise errors.KernelSilent(f"to reset {address}", seconds=30)

    async with running_host(tmp_path, NVME) as host:
        hanging = Hangs(host.tree.root)
        host.use(hanging)
        assert (await host.until(treatment.Blocked)).reason == reasons.KERNEL_SILENT
        assert isinstance(await host.step(), treatment.Blocked)
        assert [what for what, _ in hanging.asked] == ["unbind"]
        assert host.functions()


async def test_a_function_that_the_kernel_cannot_reset_is_removed_as_it_is(tmp_path):
    async with running_host(tmp_path, GPU) as host:
        recording = Recording(host.tree.root)
        host.use(recording)
        for address in host.functions():
            (host.tree.root / f"bus/pci/devices/{address}/reset").unlink()
        await host.until(treatment.Done)
        assert "reset" not in {what for what, _ in recording.asked}


async def test_a_card_that_was_pulled_is_released(tmp_path):
    async with running_host(tmp_path, NVME) as host:
        await asyncio.to_thread(host.tree.surprise_remove, SLOT)
        await host.until(treatment.Done)
        assert host.functions() == []


async def test_an_unseen_device_without_a_slot_is_released(tmp_path):
    host = TreatedHost(SysfsTree.create(tmp_path / "sys"))
    assert isinstance(await host.treat(None, ""), treatment.Done)
    assert isinstance(await host.treat(None, "77"), treatment.Done)


async def test_another_card_in_the_slot_by_now_is_left_alone(tmp_path):
    async with running_host(tmp_path, NVME) as host:
        old = host.card()
        await asyncio.to_thread(host.tree.detach, SLOT)
        await asyncio.to_thread(host.tree.attach, SLOT, GPU)
        for seen in (None, old):
            assert isinstance(await host.treat(seen, str(SLOT)), treatment.Done)
        assert host.functions()
        assert host.power() == "1"


async def test_a_slot_whose_switch_always_says_on_counts_as_off_after_a_moment(tmp_path):
    """So it is where the port has no power controller; here no kernel reacts, and the file is put back."""
    tree = SysfsTree.create(tmp_path / "sys", slots=1)
    power = tree.root / "bus/pci/slots/1/power"
    (tree.root / "bus/pci/slots/1/adapter").write_text("1\n")
    now = [5.0]
    host = TreatedHost(tree)
    host.use(kernel.Kernel(tree.root), clock=lambda: now[0])
    for _ in range(3):
        power.write_text("1\n")
        outcome = await host.treat(None, "1")
        assert isinstance(outcome, treatment.InProgress)
        now[0] += 0.1
    now[0] += 0.1
    assert isinstance(await host.treat(None, "1"), treatment.Done)


async def test_the_neighbour_slot_is_left_alone(tmp_path):
    async with running_host(tmp_path, NVME) as host:
        await asyncio.to_thread(host.tree.attach, 2, GPU)
        await host.until(treatment.Done)
        assert reader.read_function(host.tree.root, host.tree.address(2)).driver == "amdgpu"
        assert host.power(2) == "1"


class Gate(asyncio.Lock):
    """A lock that shows that it is waited for."""

    def __init__(self):
        super().__init__()
        self.wanted = asyncio.Event()

    async def acquire(self):
        self.wanted.set()
        return await super().acquire()


async def test_a_member_of_a_composite_keeps_its_driver_while_another_one_makes_a_region_with_it(
    tmp_path, until
):
    tree = SysfsTree.create(tmp_path / "sys", slots=2)
    for slot in (1, 2):
        tree.attach(slot, dataclasses.replace(CXL, serial=str(slot)))
    card, companion = (
        model.Card(functions=(reader.read_function(tree.root, tree.address(slot)),)) for slot in (1, 2)
    )
    asked = kernel.Kernel(tree.root)
    asked.changing_region = Gate()
    host = TreatedHost(tree)
    host.use(asked)

    def step():
        return host.treat(card, "1", companions=(companion,))

    async with tree.reacting():
        async with asyncio.TaskGroup() as tasks, asked.changing_region:  # as its making has it
            asked.changing_region.wanted.clear()
            tasks.create_task(step())  # it is about to unbind
            await asked.changing_region.wanted.wait()
            await asyncio.to_thread(tree.create_region, [1, 2])
        assert reader.read_function(tree.root, card.address).driver == "cxl_pci"
        await until(step, lambda outcome: isinstance(outcome, treatment.Done))
        assert list((tree.root / "bus/cxl/devices").glob("region*")) == []
        assert list((tree.root / "devices/system/memory").glob("memory[0-9]*")) == [], "all of it went"


async def test_a_device_without_a_slot_is_unbound_and_removed(tmp_path):
    async with running_host(tmp_path, GPU) as host:
        shutil.rmtree(host.tree.root / "bus/pci/slots/1")
        card = host.card()
        outcome = None
        while not isinstance(outcome, treatment.Done):
            outcome = await host.treat(card, "")
        assert host.card() is None


def test_a_host_is_real_only_at_sys(tmp_path):
    assert classes.Host.from_sysfs(classes.Host().sysfs) == classes.Host()
    assert classes.Host.from_sysfs(tmp_path / "sys").proc == tmp_path / "proc"


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), 1e9])
def test_a_time_that_cannot_be_is_reported(value):
    problems = treatment.problems(treatment.Timeouts(progress_seconds=value))
    assert len(problems) == 1
    assert "progress_seconds" in problems[0]
    assert treatment.problems(treatment.Timeouts()) == []


async def test_a_device_in_use_is_drained_by_its_hook_and_then_leaves(tmp_path):
    async with running_host(tmp_path, NVME) as host:
        holders = host.tree.root / "class/block/nvme0n1/holders/dm-3"
        holders.mkdir(parents=True)
        runs = []

        def begin(card):
            runs.append((card.address, asyncio.get_running_loop().create_future()))
            return runs[-1][1]

        host.order = {"drain": hooks.Drain(hook="d", begin=begin)}
        first = await host.step()
        assert first == treatment.Blocked(
            reason=reasons.IN_USE,
            message="part of dm-3, /dev/nvme0n1; hook d is draining the device",
            seconds=first.seconds,
        )
        holders.rmdir()
        second = await host.step()
        assert (second.reason, second.message) == (reasons.IN_USE, "hook d is draining the device")
        runs[0][1].set_result("")
        assert isinstance(await host.step(), treatment.InProgress)
        assert [address for address, _ in runs] == [host.tree.address(SLOT)]


STAYS = {"leaves": False, "is_used": True}


@pytest.mark.parametrize("card", CARDS)
async def test_a_device_that_stays_is_reset_once_and_keeps_its_driver_and_its_power(tmp_path, card):
    async with running_host(tmp_path, card) as host:
        recording, driver = Recording(host.tree.root), host.card().first.driver
        host.use(recording)
        host.order = STAYS
        await host.until(treatment.Done)
        own = [function for function in host.card().functions if function.physical_function is None]
        assert sorted(recording.asked) == sorted(("reset", function.address) for function in own)
        assert (host.card().first.driver, host.power(), regions(host.tree)) == (driver, "1", [])
        assert len(host.card().functions) == len(own), "its virtual functions went"


@pytest.mark.parametrize("card", CARDS)
async def test_a_device_that_stays_is_clean_after_a_crash_at_every_step(tmp_path, card):
    async with running_host(tmp_path, card, next_seconds=0.1) as host:
        host.order = STAYS
        steps = 0
        while not isinstance(outcome := await host.step(), treatment.Done):
            steps += 1
            await asyncio.sleep(outcome.seconds)
        if card.total_vfs:
            await asyncio.to_thread(host.tree.set_vfs, SLOT, 2)
        recording = Recording(host.tree.root)
        host.use(recording)
        for _ in range(steps):
            assert not isinstance(await host.step(), treatment.Done), "a new daemon resets again"
            host.restart()
        await host.until(treatment.Done)
        assert host.power() == "1"


async def test_a_device_that_stays_is_erased_before_its_reset(tmp_path, monkeypatch, quick_progress):
    async with running_host(tmp_path, NVME) as host:
        data, recording = Data(host, monkeypatch), Recording(host.tree.root)
        host.use(recording)
        host.order |= STAYS
        await host.until(treatment.InProgress, message="half")
        assert recording.asked == []
        data.let.set()
        await host.until(treatment.Done)
        assert (data.left, recording.asked) == (False, [("reset", host.tree.address(SLOT))])


async def test_a_user_who_comes_between_two_resets_has_both_made_again(tmp_path, monkeypatch):
    async with running_host(tmp_path, GPU) as host:
        recording = Recording(host.tree.root)
        host.use(recording)
        host.order = STAYS
        while not recording.asked:
            await host.step()
        with monkeypatch.context() as patch:
            patch.setattr(classes.Class, "current_users", lambda *_: ("held by pid 1 (x), /dev/dri/card0",))
            assert (await host.step()).reason == reasons.IN_USE
        await host.until(treatment.Done)
        assert recording.asked == [("reset", host.tree.address(SLOT))] * 2


async def test_a_device_that_stays_and_is_not_reset_is_not_done(tmp_path):
    async with running_host(tmp_path, NVME) as host:
        recording = Recording(host.tree.root, refused={"reset"})
        host.use(recording)
        host.order = STAYS
        blocked = await host.until(treatment.Blocked)
        assert blocked.reason == reasons.NOT_CLEANED
        assert blocked.message.startswith(
            f"{host.tree.address(SLOT)} is not reset, so no other claim gets the device: "
        )
        recording.refused.clear()
        await host.until(treatment.Done)


async def test_a_device_that_stays_and_has_gone_is_not_done(tmp_path):
    async with running_host(tmp_path, NVME) as host:
        card = host.card()
        await asyncio.to_thread(host.tree.detach, SLOT)
        blocked = await host.treat(card, "", **STAYS)
        assert (blocked.reason, "does not show the device" in blocked.message) == (
            reasons.KERNEL_REFUSED,
            True,
        )
