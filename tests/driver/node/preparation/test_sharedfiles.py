"""The lock between the instances of a node's daemon, and the files that are written again."""

import asyncio
import os
import sys

from drawbar.driver.node.preparation import sharedfiles

HOLD = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


async def test_a_lock_is_waited_for_as_long_as_it_takes_and_is_free_once_its_holder_is_killed(tmp_path):
    path = tmp_path / "acting.lock"
    pipe = asyncio.subprocess.PIPE
    holder = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLD, str(path), stdin=pipe, stdout=pipe
    )
    try:
        assert await holder.stdout.readline() == b"held\n"
        waits = []

        def wait():
            # Another process has it: nothing but its death frees it.
            waits.append(path)
            holder.kill()

        async with asyncio.timeout(30), sharedfiles.held(path, None, taken=wait):
            assert waits == [path]
        async with sharedfiles.held(path, None, taken=lambda: waits.append(path)):
            assert waits == [path], "free, so no process is waited for"
    finally:
        if holder.returncode is None:
            holder.kill()
        await holder.wait()


def _created(spares, path, raw):
    os.close(spares.create(str(path), raw))


def test_a_file_is_whole_whether_it_is_shorter_or_longer_than_the_one_that_it_is_written_over(tmp_path):
    spares = sharedfiles.Spares()
    first, second = tmp_path / "first", tmp_path / "second"
    for before, after in ((b"{12345}", b"{1}"), (b"{1}", b"{12345}")):
        _created(spares, first, before)
        spares.keep(str(first))
        _created(spares, second, after)
        assert second.read_bytes().rstrip(b"\n") == after
        second.unlink()
        assert list(tmp_path.iterdir()) == []


def test_spare_files_are_few_and_small(tmp_path):
    spares = sharedfiles.Spares()
    large = tmp_path / "large"
    _created(spares, large, b"x" * (spares.BYTES_MAX + 1))
    spares.keep(str(large))
    assert list(tmp_path.iterdir()) == []
    paths = [tmp_path / str(number) for number in range(spares.LIMIT + 1)]
    for path in paths:
        _created(sharedfiles.Spares(), path, b"x")
    for path in (*paths, tmp_path / "gone"):
        spares.keep(str(path))
    assert len(list(tmp_path.iterdir())) == spares.LIMIT
    assert all(path.name.startswith(".") and path.name.endswith(".tmp") for path in tmp_path.iterdir())
