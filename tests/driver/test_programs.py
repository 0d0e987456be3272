"""An administrator's program: its output, its environment, and its bounds."""

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import pytest
from tests.scenes import waiting

from drawbar.driver import programs

BOUNDS = programs.Bounds(timeout_seconds=30, memory_bytes=256 << 20, output_bytes=1 << 20)
HASTY = programs.Bounds(timeout_seconds=1, memory_bytes=256 << 20, output_bytes=1 << 20)


@pytest.fixture
def script(tmp_path):
    def write(text):
        path = tmp_path / "program"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    return write


def is_running(pid_file: Path) -> bool:
    """Return whether the process runs whose id is in the file; a zombie does not."""
    try:
        status = Path(f"/proc/{int(pid_file.read_text())}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


async def test_a_program_inherits_no_variables_of_the_daemon(script, monkeypatch):
    monkeypatch.setenv("SECRET", "x")
    path = script('echo "secret: $SECRET, device: $DEVICE, at $(pwd)"; echo noise >&2; cat')
    assert await programs.output(path, BOUNDS, {"DEVICE": "0000:01:00.0"}) == (
        b"secret: , device: 0000:01:00.0, at /\n"
    )


@pytest.mark.parametrize(
    ("text", "bounds", "words"),
    [
        (
            "echo '{}'; echo no such card >&2; exit 3",
            BOUNDS,
            "ended with status 3; it wrote last: no such card$",
        ),
        ("kill -9 $$", BOUNDS, "was ended by signal 9$"),
        ("echo waiting; exec sleep 1000", HASTY, "was killed after 1 s; it wrote last: waiting$"),
        ("(trap '' TERM; sleep 1000) & wait", HASTY, "was killed after 1 s"),
        ("exec head -c 2000000 /dev/zero", BOUNDS, "more than 1048576 bytes"),
        ("exec head -c 1000000000 /dev/zero >&2", BOUNDS, "more than 1048576 bytes"),
        ("exec cat /dev/zero", BOUNDS, "more than 1048576 bytes"),
        ("exec tail /dev/zero", BOUNDS, "ended with status 1; it wrote last: .*memory"),
    ],
    ids=[
        "fails",
        "is killed",
        "hangs",
        "has children that hang",
        "writes too much",
        "writes 1 GB of errors",
        "writes without end",
        "takes memory without end",
    ],
)
async def test_a_run_beyond_its_bounds_is_one_sentence(script, text, bounds, words):
    with pytest.raises(programs.Failed, match=words) as failed:
        await programs.output(script(text), bounds)
    assert "\n" not in str(failed.value)


async def test_an_unusable_program_is_one_sentence(script, tmp_path):
    (tmp_path / "text").write_text("x")
    for path in (tmp_path / "no", tmp_path / "text", tmp_path):
        with pytest.raises(programs.Failed, match="is it an executable file"):
            await programs.output(path, BOUNDS)
    (tmp_path / "program").write_bytes(b"\x7fELF of another kind")
    (tmp_path / "program").chmod(0o755)
    with pytest.raises(programs.Failed, match="cannot be executed: Exec format error"):
        await programs.output(tmp_path / "program", BOUNDS)


@pytest.mark.parametrize(
    ("child", "text", "bounds"),
    [
        ("", "", BOUNDS),
        ("", "wait", HASTY),
        ("setsid", "", BOUNDS),
        ("setsid", "sleep 1000", HASTY),
    ],
    ids=["left behind", "waited for", "left behind in another session", "in another session at the deadline"],
)
async def test_no_child_outlives_it(script, tmp_path, child, text, bounds):
    pid_file = tmp_path / "pid"
    path = script(
        f"{child} sh -c 'echo $$ > {pid_file}.new; mv {pid_file}.new {pid_file}; exec sleep 1000' &\n"
        f"while ! [ -e {pid_file} ]; do :; done; {text}"
    )
    with pytest.raises(programs.Failed) if bounds is HASTY else contextlib.nullcontext():
        await programs.output(path, bounds)
    # A killed process needs a moment to end, longer on a busy machine.
    await waiting.eventually(lambda: not is_running(pid_file))


async def test_nothing_outlives_the_cancellation_of_its_caller(script, tmp_path):
    fifo, pid_file = tmp_path / "fifo", tmp_path / "pid"
    os.mkfifo(fifo)
    path = script(f"echo $$ > {pid_file}; echo started > {fifo}; exec sleep 1000")
    async with asyncio.TaskGroup() as group:
        run = group.create_task(programs.output(path, BOUNDS), name="run")
        await asyncio.to_thread(fifo.read_text)
        run.cancel()
    assert run.cancelled()
    assert not is_running(pid_file)


async def test_a_process_that_hides_and_keeps_the_pipe_does_not_hold_the_caller(script, tmp_path):
    pid_file = tmp_path / "pid"
    path = script(
        f"env -i /usr/bin/setsid /bin/sh -c 'echo $$ > {pid_file}.new; /bin/mv {pid_file}.new {pid_file}; exec /bin/sleep 1000' &\n"
        f"while ! [ -e {pid_file} ]; do :; done; echo done"
    )
    try:
        assert await programs.output(path, BOUNDS) == b"done\n"
    finally:
        os.kill(int(pid_file.read_text()), signal.SIGKILL)
