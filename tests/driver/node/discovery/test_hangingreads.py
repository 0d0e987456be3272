"""An object whose reading hangs: the others are read, and it is read when the kernel answers."""

import asyncio
import contextlib
import gc
import threading

import pytest
from tests.scenes import waiting
from tests.scenes.hangs import hanging_function

from drawbar.driver.node import uevents
from drawbar.driver.node.discovery import devices, functions, reader
from drawbar.driver.node.uevents import sources
from drawbar.fabric.classes import DeviceClass
from drawbar.mocks import sysfs

FIRST, SECOND = (
    sysfs.MockDevice(device_class=DeviceClass.NVME, vendor=0x144D, device=0xA80A, serial=f"S4EVNX{number}")
    for number in (1, 2)
)
QUICK = devices.Tracking(coalesce_seconds=0, audit_seconds=0)
PATIENCE = 0.05


@pytest.fixture
def tree(tmp_path):
    made = sysfs.SysfsTree.create(tmp_path / "sys", slots=2)
    made.attach(1, FIRST)
    return made


def follow(tree):
    return devices.Devices(tree.root, settings=QUICK, patience_seconds=PATIENCE)


def event(tree, address):
    (path,) = tree.root.glob(f"devices/**/{address}")
    return uevents.parse(f"change@/{path.relative_to(tree.root)}\0SUBSYSTEM=pci\0".encode())


@contextlib.asynccontextmanager
async def following(known):
    source = sources.Backlog(16)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(known.follow(source))
        yield source
        task.cancel()


async def test_a_card_that_hangs_at_the_start_is_left_out_and_read_when_it_answers(tree):
    tree.attach(2, SECOND)
    first, second = tree.address(1), tree.address(2)
    known = follow(tree)
    with hanging_function(tree, first):
        await known.read()
        assert known.hanging == (f"function {first}",)
        assert known.card_at(first) is None
        assert known.card_at(second).slot.name == "2"
    async with following(known):
        await waiting.eventually(lambda: known.inventory == reader.read(tree.root))
    assert known.hanging == ()


async def test_a_card_that_hangs_later_keeps_its_state_and_delays_no_other(tree):
    known = follow(tree)
    await known.read()
    first = tree.address(1)
    before = known.card_at(first)
    async with following(known) as source:
        with hanging_function(tree, first):
            source.put(event(tree, first))
            tree.attach(2, SECOND)
            source.put(event(tree, tree.address(2)))
            await waiting.eventually(lambda: known.card_at(tree.address(2)) is not None)
            assert known.card_at(first) == before
            assert known.losses == 0
        await waiting.eventually(lambda: not known.hanging and known.inventory == reader.read(tree.root))


def list_started_threads(before):
    """Return the reading threads that were started since."""
    return [each for each in set(threading.enumerate()) - before if each.name == "drawbar-discovery"]


async def test_many_readings_take_one_thread_which_ends_with_its_owner(tree):
    before = set(threading.enumerate())
    known = follow(tree)
    for _ in range(20):
        await known.read()
    (thread,) = list_started_threads(before)
    del known

    def has_ended():
        # The thread may hold its last piece of work, and so the owner, for a moment.
        gc.collect()
        return not thread.is_alive()

    await waiting.eventually(has_ended)


async def test_an_object_that_hung_is_waited_for_once(tree, caplog):
    known = follow(tree)
    await known.read()
    first = tree.address(1)
    with hanging_function(tree, first):
        await known.refresh(first)
        before = set(threading.enumerate())
        await known.refresh(first)
        await known.audit()
        assert len(list_started_threads(before)) == 1, "the one that reads the other objects"
        (waited,) = [record for record in caplog.records if record.levelname == "WARNING"]
        assert first in waited.getMessage()


async def test_an_object_that_answers_in_time_again_is_read_with_the_others(tree):
    known = follow(tree)
    await known.read()
    first = tree.address(1)
    with hanging_function(tree, first):
        await known.refresh(first)
    async with following(known) as source:
        await waiting.eventually(lambda: not known.hanging)
        (config,) = tree.root.glob(f"devices/**/{first}/numa_node")
        config.write_text("1\n")
        source.put(event(tree, first))
        await waiting.eventually(lambda: known.card_at(first).first.numa_node == 1)
    config.write_text("0\n")
    assert (await known.refresh(first)).first.numa_node == 0


async def test_a_change_during_the_hanging_is_read_after_it(tree):
    known = follow(tree)
    await known.read()
    first = tree.address(1)
    async with following(known) as source:
        with hanging_function(tree, first):
            source.put(event(tree, first))
            await waiting.eventually(lambda: known.hanging)
            (link,) = tree.root.glob(f"devices/**/{first}/driver")
            link.unlink()
            (shown,) = tree.root.glob(f"devices/**/{first}/uevent")
            shown.write_text(shown.read_text().replace("DRIVER=nvme\n", ""))
            source.put(event(tree, first))
        await waiting.eventually(lambda: known.card_at(first).first.driver is None)


async def test_an_unknown_card_that_hangs_puts_the_order_of_arrivals_in_doubt(tree):
    known = follow(tree)
    await known.read()
    tree.attach(2, SECOND)
    with hanging_function(tree, tree.address(2)):
        await known.refresh(tree.address(2))
        assert known.losses == 1


async def test_an_error_of_the_reader_is_raised(tree, monkeypatch):
    known = follow(tree)
    await known.read()

    def fail(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(functions, "read", fail)
    with pytest.raises(ZeroDivisionError):
        await known.refresh(tree.address(1))
