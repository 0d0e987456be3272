"""A cluster of doubles for those who develop drivers: it starts, it serves, it leaves nothing behind."""

import asyncio
import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest

from drawbar.driver.kube import kinds
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks import cluster, sysfs
from drawbar.mocks import errors as mock_errors
from drawbar.mocks.cluster import children, errors
from drawbar.mocks.cluster import cluster as running
from drawbar.mocks.fabric import pool

DISK = sysfs.MockDevice(device_class=DeviceClass.NVME, vendor=0x144D, device=0xA824, serial="SN1")


@pytest.fixture
def folder(monkeypatch):
    """Make clusters create their directories in a path shorter than tmp_path, for the sockets in them."""
    path = Path(tempfile.mkdtemp(prefix="d"))
    monkeypatch.setattr(tempfile, "tempdir", str(path))
    yield path
    shutil.rmtree(path)


def doubles(**changes):
    return cluster.Settings(enclosures=pool.make_enclosures({DeviceClass.NVME: 2}), daemons=False, **changes)


def runs(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_the_doubles_serve_and_count_leaks_while_it_lasts_and_nothing_is_left_afterwards(folder):
    happenings = []
    async with cluster.Cluster.running(doubles(nodes=("a", "b")), happenings.append) as world:
        nodes = await world.api.list_all(kinds.NODE, into=dict)
        assert sorted(node["metadata"]["name"] for node in nodes.items) == ["a", "b"]
        classes = await world.api.list_all(kinds.DEVICE_CLASS, into=dict)
        assert "nvme.drawbar.dev" in {device_class["metadata"]["name"] for device_class in classes.items}
        assert (await world.leaks()).total == 0
        pids = world.pids
        assert sorted(pids) == ["apiserver", "fabric", "kubelet", "scheduler"]
        started = {
            happening.name: happening.pid
            for happening in happenings
            if isinstance(happening, cluster.Started)
        }
        assert started == pids
        # What is left in a slot or in the CDI folder counts as leaked.
        node = world.paths.node("a")
        await asyncio.to_thread(sysfs.SysfsTree.open(node.sysfs).attach, 1, DISK)
        (node.cdi / "left.json").write_text("{}")
        assert await world.leaks() == cluster.Leaks(fabric=0, attachments=0, cdi=1, sysfs=1)
    assert not any(runs(pid) for pid in pids.values())
    assert list(folder.iterdir()) == []


async def test_an_error_in_the_block_comes_out_as_it_is_and_keeps_the_logs(folder):
    with pytest.raises(LookupError, match="mine"):
        async with cluster.Cluster.running(doubles()) as world:
            raise LookupError("mine")
    assert [path.name for path in world.paths.directory.iterdir()] == ["logs"]


async def test_a_double_that_dies_cancels_the_block_and_is_named(folder):
    pids = {}

    async def lose_the_scheduler():
        async with cluster.Cluster.running(doubles()) as world:
            pids.update(world.pids)
            os.kill(pids["scheduler"], signal.SIGKILL)
            await asyncio.get_running_loop().create_future()

    with pytest.raises(cluster.ChildEnded, match="scheduler ended with status -9"):
        await lose_the_scheduler()
    assert not any(runs(pid) for pid in pids.values())


async def test_a_double_that_cannot_start_is_named_with_its_last_words(folder):
    with pytest.raises(cluster.ChildEnded, match=r"before it was ready: .*profile") as caught:
        async with cluster.Cluster.running(doubles(profile="0.1")):
            pass
    assert "apiserver.log" in str(caught.value)


async def test_a_start_that_takes_too_long_fails(folder):
    with pytest.raises(cluster.ClusterError, match=r"did not start in 0\.05 s"):
        async with cluster.Cluster.running(doubles(start_seconds=0.05)):
            pass


async def test_building_and_cleaning_up_end_before_a_cancellation_goes_on():
    begun, may_end, ended = asyncio.Event(), asyncio.Event(), []

    async def work():
        begun.set()
        await may_end.wait()
        ended.append(True)

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(running._finish_despite_cancellation(work()))
        await begun.wait()
        task.cancel()
        await asyncio.sleep(0)
        may_end.set()
    assert task.cancelled()
    assert ended == [True]


async def test_a_folder_too_deep_for_sockets_is_refused_with_the_remedy(folder, monkeypatch):
    deep = folder / ("x" * 80)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with pytest.raises(mock_errors.UsageError, match="set TMPDIR"):
        async with cluster.Cluster.running(doubles()):
            pass
    assert list(deep.iterdir()) == []


async def test_a_daemon_that_ends_is_started_again_a_bounded_number_of_times(folder, monkeypatch):
    monkeypatch.setattr(children, "FIRST_PAUSE_SECONDS", 0.001)
    happenings = []
    family = children.Children(folder, happenings.append)
    program = children.Program(name="daemon", arguments=("mock", "no-such-double"), double=False)
    with pytest.raises(errors.ChildEnded, match=f"after {children.MOST_RESTARTS} restarts"):
        await family.run(program)
    assert [happening.restarted for happening in happenings] == [False] + [True] * children.MOST_RESTARTS
    await family.stop()


def test_the_last_line_that_says_something_is_the_one_that_is_told(tmp_path):
    log = tmp_path / "log"
    assert errors.last_line(log) == ""
    log.write_text("first\nlast\n\n")
    assert errors.last_line(log) == "last"
