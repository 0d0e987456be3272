"""What is done about what a claim leaves on a device of the node's own pool."""

import asyncio
import contextlib
import threading
from pathlib import Path

import pytest

from drawbar.driver.api import claims, meta
from drawbar.driver.kube import errors as kube_errors
from drawbar.driver.node import classes, errors, kernel, treatment
from drawbar.driver.node.classes import nvme_erase
from drawbar.driver.node.discovery import reader as tree_reader
from drawbar.driver.node.local import demands, residents, selections
from drawbar.driver.node.preparation import cleaning, records
from drawbar.driver.node.treatment import hooks
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks import sysfs

DISK, CARD = "nvme-sn1", "nic-94-6d-ae-00-00-00-00-05"
FUNCTION = f"{CARD}-vf0"
NIC = sysfs.MockDevice(
    device_class=DeviceClass.NIC,
    vendor=0x15B3,
    device=0x1021,
    serial="94-6d-ae-00-00-00-00-05",
    total_vfs=4,
    vf_driver="mlx5_core",
)
SSD = sysfs.MockDevice(device_class=DeviceClass.NVME, vendor=0x1B36, device=0x10, serial="SN1")


def make_prepared_claim(*devices, uid="u1", pool="n", **more):
    listed = tuple(records.PreparedDevice(pool=pool, device=name, cdi_id=name, **more) for name in devices)
    return records.PreparedClaim(
        namespace="default", name="c1", uid=uid, state=records.COMPLETED, devices=listed
    )


class Disk:
    """Erases when it is let, or fails."""

    def __init__(self):
        self.runs, self.error = 0, None
        self.begun, self.let = threading.Event(), threading.Event()

    def __call__(self, report):
        self.runs += 1
        self.begun.set()
        assert self.let.wait(120)
        if self.error is not None:
            raise self.error


class CleaningNode:
    """A node with a disk and a virtual function, and claims as the API server has them."""

    def __init__(self, folder, tree, monkeypatch):
        self.folder, self.tree = folder, tree
        self.claims, self.held, self.changes = {}, {}, asyncio.Condition()
        self.disk, self.asked = Disk(), 0
        monkeypatch.setattr(nvme_erase, "eraser", lambda *_: self.disk)
        monkeypatch.setattr(cleaning, "LOOK_SECONDS", 0.01)
        monkeypatch.setattr(cleaning, "GONE_FIRST_SECONDS", 0.01)
        monkeypatch.setattr(cleaning, "GONE_MAX_SECONDS", 0.02)
        self.cleaner, self.over = None, []

    async def read(self, name, namespace):
        self.asked += 1
        if name not in self.claims:
            raise kube_errors.NotFound(f"claim {namespace}/{name}")
        if isinstance(self.claims[name], Exception):
            raise self.claims[name]
        return self.claims[name]

    def card(self, pool, device):
        inventory = tree_reader.read(self.tree.root)
        listed = {resident.name: resident.card for resident in residents.residents(inventory.cards)}
        return listed.get(device)

    def allocate(self, *devices, uid="u1", at=None):
        results = tuple(
            claims.AllocationResult(request="r", driver="drawbar.dev", pool="n", device=name)
            for name in devices
        )
        allocation = claims.Allocation(
            devices=claims.DeviceAllocation(results=results), allocation_timestamp=at
        )
        self.claims["c1"] = claims.ResourceClaim(
            metadata=meta.ObjectMeta(name="c1", namespace="default", uid=uid),
            status=claims.ClaimStatus(allocation=allocation),
        )

    def make_cleaner(self, *, clean=selections.Clean.BY_CLASS):
        root = self.tree.root
        asked = kernel.Kernel(root, deadline_seconds=20)
        self.hooks = hooks.Runner(hooks.Settings(hooks=self.folder / "hooks"), asked)
        around = cleaning.Surroundings(
            node_name="n",
            treatment=treatment.Executor(
                asked, host=classes.Host(sysfs=root, proc=self.folder / "proc", dev=Path("/dev"))
            ),
            card=self.card,
            reader=self,
            holder=lambda pool, device: self.held.get((pool, device)),
            hooks=self.hooks,
            changed=lambda: None,
        )
        self.works = cleaning.Works()
        self.cleaner = cleaning.Cleaner(cleaning.Marks(self.folder), self.works, around, clean=clean)
        return self.cleaner

    @contextlib.asynccontextmanager
    async def running(self):
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(self.cleaner.run(self.over.append))
            yield
            task.cancel()

    def marks(self):
        return cleaning.Marks(self.folder).all()

    async def until(self, holds):
        async with asyncio.timeout(120):
            while not holds():  # noqa: ASYNC110 - an erase runs in a thread, and files have no event
                await asyncio.sleep(0.005)

    def resets(self):
        """Return whether the virtual functions were reset, and whether their card was."""
        devices = self.tree.root / "bus/pci/devices"
        card = self.card("n", CARD).first
        files = (devices / address / "reset" for address in (*card.sriov.virtual_functions, card.address))
        return [file.read_text().strip() == "1" for file in files]


@pytest.fixture
def world(tmp_path, monkeypatch):
    tree = sysfs.SysfsTree.create(tmp_path / "sys")
    tree.attach(1, SSD)
    tree.attach(2, NIC)
    tree.set_vfs(2, 1)
    (tmp_path / "proc").mkdir()
    world = CleaningNode(tmp_path, tree, monkeypatch)
    world.make_cleaner()
    return world


async def test_a_disk_is_refused_to_others_until_it_is_erased(world):
    world.allocate(DISK)
    await world.cleaner.mark_for_cleaning(make_prepared_claim(DISK))
    async with world.running():
        world.cleaner.start_cleaning("n", DISK)
        # The claim keeps its allocation, and so its data.
        await world.until(lambda: world.asked > 2)
        assert (world.disk.runs, world.works.taint(DISK)) == (0, None)
        assert world.cleaner.refusal("n", DISK, "u1") is None
        assert world.cleaner.refusal("n", DISK, None) is None, "admin access to the claim's device"
        assert "being removed" in world.cleaner.refusal("n", DISK, "u2")
        del world.claims["c1"]
        await world.until(world.disk.begun.is_set)
        assert world.works.taint(DISK).key == "cleaning"
        # From now on it is of no claim.
        assert world.cleaner.refusal("n", DISK, "u1") is not None
        assert world.cleaner.refusal("n", DISK, None) is not None
        world.disk.let.set()
        await world.until(lambda: not world.marks() and world.works.taint(DISK) is None)
        assert world.disk.runs == 1
        assert world.cleaner.refusal("n", DISK, "u2") is None


@pytest.mark.parametrize("after", ["deallocated", "another device", "another claim"])
async def test_an_allocation_that_is_over_is_known_by_the_claim(world, after):
    world.disk.let.set()
    world.allocate(
        *{"deallocated": (), "another device": ("nvme-x",), "another claim": (DISK,)}[after],
        uid="u2" if after == "another claim" else "u1",
    )
    await world.cleaner.mark_for_cleaning(make_prepared_claim(DISK))
    async with world.running():
        await world.until(lambda: not world.marks())
    assert world.disk.runs == 1


async def test_while_the_api_server_does_not_answer_nothing_is_erased(world):
    world.claims["c1"] = kube_errors.Unreachable("no answer")
    world.disk.let.set()
    await world.cleaner.mark_for_cleaning(make_prepared_claim(DISK))
    async with world.running():
        await world.until(lambda: world.asked > 1)
        assert world.disk.runs == 0
        del world.claims["c1"]
        await world.until(lambda: not world.marks())


async def test_another_pod_of_the_same_claim_keeps_its_data(world):
    world.allocate(DISK)
    await world.cleaner.mark_for_cleaning(make_prepared_claim(DISK))
    world.held["n", DISK] = "u1"
    async with world.running():
        world.cleaner.start_cleaning("n", DISK)
        await world.until(lambda: len(world.cleaner._queue) == 0)
    assert (world.asked, world.disk.runs) == (0, 0)
    assert set(world.marks()) == {DISK}


async def test_a_claim_that_waits_for_the_device_does_not_keep_it_from_being_cleaned(world):
    world.disk.let.set()
    await world.cleaner.mark_for_cleaning(make_prepared_claim(DISK))
    world.held["n", DISK] = "u2"
    async with world.running():
        await world.until(lambda: not world.marks())


async def test_a_claim_allocated_the_device_again_keeps_its_data(world):
    await world.cleaner.mark_for_cleaning(make_prepared_claim(DISK))
    # Its Prepare began when the former allocation was just over.
    answers = iter([None, "u1"])
    world.held = Answers(answers)
    async with world.running():
        await world.until(lambda: world.held.asked > 2)
    assert world.disk.runs == 0
    assert world.works.taint(DISK) is None


class Answers(dict):
    """Who has a device: one answer after the other, the last one from then on."""

    def __init__(self, answers):
        super().__init__()
        self.answers, self.last, self.asked = answers, None, 0

    def get(self, _):
        self.asked += 1
        self.last = next(self.answers, self.last)
        return self.last


async def test_a_failed_erase_keeps_the_device_out_of_service_and_is_retried(world, monkeypatch):
    monkeypatch.setattr("drawbar.driver.node.treatment.erasing.AGAIN_SECONDS", 0.05)
    world.disk.error = errors.NotCleaned("the disk refuses a format: freeze lock is set; power-cycle it")
    world.disk.let.set()
    await world.cleaner.mark_for_cleaning(make_prepared_claim(DISK))
    async with world.running():
        await world.until(lambda: world.works.taint(DISK) and world.works.taint(DISK).key == "not-cleaned")
        assert "freeze lock" in world.works.taint(DISK).message
        assert "freeze lock" in world.cleaner.refusal("n", DISK, "u2")
        world.disk.error = None
        await world.until(lambda: not world.marks())
    assert world.disk.runs > 1


async def test_a_restart_in_the_middle_erases_again_and_offers_nothing_before(world):
    await world.cleaner.mark_for_cleaning(make_prepared_claim(DISK))
    async with world.running():
        await world.until(world.disk.begun.is_set)
        world.disk, before = Disk(), world.disk
        world.make_cleaner()
        assert world.cleaner.refusal("n", DISK, "u2") is not None
        world.disk.let.set()
        async with world.running():
            await world.until(lambda: not world.marks())
        before.let.set()
    assert world.disk.runs == 1


async def test_a_virtual_function_is_reset_and_its_card_is_not(world):
    await world.cleaner.mark_for_cleaning(make_prepared_claim(FUNCTION))
    async with world.running():
        await world.until(lambda: not world.marks())
    assert world.resets() == [True, False]


async def test_a_device_that_is_away_is_cleaned_when_it_comes_back(world):
    world.disk.let.set()
    world.tree.detach(1)
    await world.cleaner.mark_for_cleaning(make_prepared_claim(DISK))
    async with world.running():
        await world.until(lambda: world.works.taint(DISK) is not None)
        assert set(world.marks()) == {DISK}
        world.tree.attach(1, SSD)
        world.cleaner.look()
        await world.until(lambda: not world.marks())


async def test_a_process_that_still_has_it_open_is_named(world):
    node = world.card("n", DISK).device_nodes[0]
    process = world.folder / "proc" / "4711"
    (process / "fd").mkdir(parents=True)
    (process / "comm").write_text("python\n")
    uevent = next((world.tree.root / world.card("n", DISK).first.path).glob("nvme/nvme*/uevent"))
    uevent.write_text(f"MAJOR=1\nMINOR=3\nDEVNAME={node.path.removeprefix('/dev/')}\n")
    (uevent.parent / "dev").write_text("1:3\n")
    (process / "fd" / "7").symlink_to("/dev/null")
    world.disk.let.set()
    await world.cleaner.mark_for_cleaning(make_prepared_claim(DISK))
    async with world.running():
        await world.until(lambda: world.works.taint(DISK) and world.works.taint(DISK).message)
        assert "4711" in world.works.taint(DISK).message
        (process / "fd" / "7").unlink()
        await world.until(lambda: not world.marks())


@pytest.mark.parametrize(
    "claim",
    [
        make_prepared_claim("none", "none-1", "cxl-memory-1", "../x"),
        make_prepared_claim(DISK, pool="fab/enc"),
        make_prepared_claim(DISK, admin=True),
    ],
    ids=["null, memory and no name", "a fabric's", "admin access"],
)
async def test_a_device_without_cleaning_gets_no_mark(world, claim):
    await world.cleaner.mark_for_cleaning(claim)
    assert world.marks() == {}


async def test_turned_off_no_device_gets_a_mark_and_one_goes_without_a_cleaning(world):
    await world.cleaner.mark_for_cleaning(make_prepared_claim(DISK))
    world.make_cleaner(clean=selections.Clean.NONE)
    await world.cleaner.mark_for_cleaning(make_prepared_claim(FUNCTION))
    assert set(world.marks()) == {DISK}
    async with world.running():
        await world.until(lambda: not world.marks())
    assert world.disk.runs == 0
    assert [mark.device for mark in world.over] == [DISK]


async def test_a_card_is_reset_and_keeps_the_virtual_functions_of_its_administrator(world):
    await world.cleaner.mark_for_cleaning(make_prepared_claim(CARD))
    async with world.running():
        await world.until(lambda: not world.marks())
    assert world.resets() == [False, True]
    assert world.card("n", FUNCTION) is not None


async def test_virtual_functions_that_were_made_for_the_claim_go_with_it(world):
    mark = demands.Mark(pool="n", device=CARD, name="c1", namespace="default", uid="u1", makes_functions=True)
    cleaning.Marks(world.folder).put([mark])
    async with world.running():
        await world.until(lambda: not world.marks())
    assert world.card("n", FUNCTION) is None


async def test_a_disk_that_is_only_to_be_reset_keeps_its_data(world):
    world.make_cleaner(clean=selections.Clean.RESET)
    await world.cleaner.mark_for_cleaning(make_prepared_claim(DISK))
    async with world.running():
        await world.until(lambda: not world.marks())
    assert world.disk.runs == 0


HOOKS = {"drain": {"hook": "drains"}, "cleanUp": {"hook": "blanks"}}
SAYS = '#!/bin/sh\necho "$(basename "$0") $DRAWBAR_DEVICE $DRAWBAR_CLASS" >> "$(dirname "$0")/../ran"\n'


def put_hooks(world, **texts):
    folder = world.folder / "hooks"
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)


async def test_the_hook_of_the_class_cleans_the_device_and_its_failure_keeps_the_device_out_of_service(
    world, monkeypatch
):
    monkeypatch.setattr("drawbar.driver.node.treatment.erasing.AGAIN_SECONDS", 0.05)
    put_hooks(world, blanks="#!/bin/sh\necho 'no such port' >&2\nexit 3\n")
    await world.cleaner.mark_for_cleaning(make_prepared_claim(CARD, parameters=HOOKS))
    async with world.running():
        await world.until(lambda: world.works.taint(CARD) and world.works.taint(CARD).key == "not-cleaned")
        assert "no such port" in world.cleaner.failure(CARD)
        put_hooks(world, blanks=SAYS)
        await world.until(lambda: not world.marks())
    assert (world.folder / "ran").read_text() == f"blanks {CARD} nic\n"
    assert world.resets() == [False, True]


async def test_the_drain_hook_of_the_class_makes_others_let_go_of_a_device(world):
    block = next(world.tree.root.glob("class/block/nvme*"))
    holder = block / "holders" / "dm-3"
    holder.mkdir(parents=True)
    put_hooks(world, drains=SAYS + f"rmdir {holder}\n")
    world.disk.let.set()
    await world.cleaner.mark_for_cleaning(make_prepared_claim(DISK, parameters={"drain": {"hook": "drains"}}))
    async with asyncio.TaskGroup() as tasks:
        world.hooks.tasks = tasks
        async with world.running():
            await world.until(lambda: not world.marks())
    assert (world.folder / "ran").read_text() == f"drains {DISK} nvme\n"
    assert world.disk.runs == 1


async def test_another_allocation_of_the_same_claim_gets_a_clean_device(world):
    world.disk.let.set()
    mark = demands.Mark(
        pool="n", device=DISK, name="c1", namespace="default", uid="u1", allocation_timestamp="T1"
    )
    cleaning.Marks(world.folder).put([mark])
    world.allocate(DISK, at="T2")
    assert world.cleaner.refusal("n", DISK, "u1", "T1") is None
    assert world.cleaner.refusal("n", DISK, "u1", "T2") is not None
    async with world.running():
        await world.until(lambda: not world.marks())
    assert world.disk.runs == 1


async def test_the_mark_of_a_device_that_was_made_ready_tells_more_than_the_end_of_its_pod(world):
    mark = demands.Mark(pool="n", device=DISK, name="c1", namespace="default", uid="u1", boot_id="b")
    cleaning.Marks(world.folder).put([mark])
    await world.cleaner.mark_for_cleaning(make_prepared_claim(DISK))
    assert world.marks() == {DISK: mark}
    await world.cleaner.mark_for_cleaning(make_prepared_claim(DISK, uid="u2"))
    assert world.marks()[DISK].uid == "u2"


async def test_a_mark_that_cannot_be_read_is_of_an_unknown_claim(world):
    world.disk.let.set()
    (world.folder / "unclean").mkdir()
    (world.folder / "unclean" / f"{DISK}.json").write_bytes(b"{")
    assert world.cleaner.refusal("n", DISK, "u1") is not None
    async with world.running():
        await world.until(lambda: not world.marks())
    assert (world.asked, world.disk.runs) == (0, 1)


async def test_a_claim_whose_devices_cannot_be_marked_keeps_them(world):
    (world.folder / "unclean").write_text("")
    with pytest.raises(errors.CheckpointError, match="read-write"):
        await world.cleaner.mark_for_cleaning(make_prepared_claim(DISK))
