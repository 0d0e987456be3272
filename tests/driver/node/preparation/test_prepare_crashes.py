"""kill -9 at every await point and at every file operation of Prepare, Unprepare and of the start; see `dying.py`."""

import importlib.util
import itertools
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from drawbar.driver.node import classes, errors
from drawbar.driver.node.discovery import reader
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks import sysfs

SCRIPT = Path(__file__).with_name("dying.py")
_spec = importlib.util.spec_from_file_location("dying", SCRIPT)
dying = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(dying)

# What is prepared before, and how many steps there are at least: fewer would mean that nothing is counted.
SCENARIOS = {
    "prepare": ((), 25),
    "unprepare": (("u1",), 20),
    "replace": (("u1",), 45),
    "restore": (("u1", "u2"), 15),
    "reboot": (("u1", "u2"), 28),
}


@pytest.fixture
def world(tmp_path):
    """Return the discovered node, and its host."""
    folder = tmp_path / "sys"
    tree = sysfs.SysfsTree.create(folder)
    for slot, serial in enumerate(dying.SERIALS.values(), start=1):
        disk = sysfs.MockDevice(device_class=DeviceClass.NVME, vendor=0x1B36, device=0x10, serial=serial)
        tree.attach(slot, disk)
    return reader.read(folder), classes.Host.from_sysfs(folder)


@pytest.fixture
def kill(tmp_path, world):
    """Yield `kill(step, scenario, folder)`, which returns the answer of `dying.py` for `world`'s node."""
    command = (sys.executable, str(SCRIPT), str(tmp_path / "sys"))
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:

        def ask(step, scenario, folder):
            process.stdin.write(f"{step} {scenario} {folder}\n")
            process.stdin.flush()
            answer = process.stdout.readline().strip()
            assert answer not in ("", "failed"), "the scenario itself fails"
            return answer

        yield ask


def files(folder):
    return {
        path.name.removeprefix("drawbar.dev-").removesuffix(".json") for path in folder.glob("cdi/*.json")
    }


def list_recorded_uids(folder):
    return {path.name.removesuffix(".json") for path in folder.glob("claims/*.json")}


async def can_prepare(instance, uid):
    """Return whether the claim could be prepared."""
    try:
        await instance.prepare(dying.claim(uid))
    except errors.PrepareError:
        return False
    return True


async def judge(folder, world, boot_id):
    """Assert that a fresh instance recovers from the files left."""
    assert files(folder) <= list_recorded_uids(folder), "a CDI file that no record explains"
    instance, _ = dying.make_preparer(folder, *world, boot_id)
    await instance.restore()
    assert files(folder) <= list_recorded_uids(folder)
    assert not list(folder.glob("**/*.corrupt-*")), "a torn file"
    holder = instance.holders.find("p", "d1")
    assert holder in (None, "u1")
    # Another claim gets the device if and only if no claim has it.
    assert await can_prepare(instance, "u3") == (holder is None)
    assert ("u3" in files(folder)) == (holder is None)
    await instance.unprepare(dying.claim("u3"))
    for uid in ("u1", "u2"):
        assert await can_prepare(instance, uid)
    assert files(folder) == list_recorded_uids(folder) == {"u1", "u2"}
    for uid in ("u1", "u2", "u1"):
        await instance.unprepare(dying.claim(uid))
    assert (files(folder), list_recorded_uids(folder)) == (set(), set())
    assert instance.holders.find("p", "d1") is instance.holders.find("p", "d2") is None


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_killed_at_any_step_nothing_leaks_is_lost_or_used_twice(tmp_path, world, kill, scenario):
    before, at_least = SCENARIOS[scenario]
    (tmp_path / "before").mkdir()
    instance, _ = dying.make_preparer(tmp_path / "before", *world)
    await instance.restore()
    for uid in before:
        await instance.prepare(dying.claim(uid))
    folder = tmp_path / "run"
    for step in itertools.count(1):
        shutil.copytree(tmp_path / "before", folder)
        answer = kill(step, scenario, folder)
        await judge(folder, world, "boot-2" if scenario == "reboot" else "boot-1")
        shutil.rmtree(folder)
        if answer != "killed":
            break
    assert step > at_least, step
