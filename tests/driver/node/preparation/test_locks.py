"""The lock between the instances of a node's daemon."""

import asyncio
import sys

from drawbar.driver.node.preparation import locks

LOCKING_PROGRAM = """
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
        sys.executable, "-c", LOCKING_PROGRAM, str(path), stdin=pipe, stdout=pipe
    )
    try:
        assert await holder.stdout.readline() == b"held\n"
        waits = []

        def wait():
            # Another process has it: nothing but its death frees it.
            waits.append(path)
            holder.kill()

        lock = locks.Lock(path)
        async with asyncio.timeout(120), lock.hold(None, on_wait=wait):
            assert waits == [path]
        async with lock.hold(None, on_wait=lambda: waits.append(path)):
            assert waits == [path], "free, so no process is waited for"
    finally:
        if holder.returncode is None:
            holder.kill()
        await holder.wait()
