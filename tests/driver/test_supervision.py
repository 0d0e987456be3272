"""Running a daemon: signals, errors and exit statuses."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from drawbar.driver import errors, supervision


class Clean:
    """A daemon that waits forever, and whether it was let to clean up."""

    def __init__(self):
        self.done = []

    async def part(self, name, ready):
        ready.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            self.done.append(name)

    async def run(self, number):
        ready = [asyncio.Event(), asyncio.Event()]
        async with asyncio.TaskGroup() as tasks:
            for name, event in zip("ab", ready, strict=True):
                tasks.create_task(self.part(name, event), name=name)
            for event in ready:
                await event.wait()
            os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_everything_in_order_with_status_0(number):
    daemon = Clean()
    assert supervision.run(daemon.run(number)) == 0
    assert sorted(daemon.done) == ["a", "b"]


def test_a_daemon_that_ends_by_itself_has_status_0():
    async def daemon():
        await asyncio.sleep(0)

    assert supervision.run(daemon()) == 0


def test_the_threads_of_a_daemon_have_stacks_that_take_no_huge_page():
    sizes = []

    async def look():
        sizes.append(threading.stack_size())

    assert supervision.run(look()) == 0
    assert 0 < sizes[0] < 2 << 20


async def fail_in_tasks(*raised):
    async def fail(error):
        raise error

    async with asyncio.TaskGroup() as outer:
        outer.create_task(asyncio.Event().wait(), name="idle")
        async with asyncio.TaskGroup() as inner:
            for error in raised:
                inner.create_task(fail(error), name="failing")


def test_an_error_deep_in_task_groups_comes_out_as_itself():
    wanted = errors.UsageError("say it otherwise")
    with pytest.raises(errors.UsageError) as raised:
        supervision.run(fail_in_tasks(wanted))
    assert raised.value is wanted
    assert raised.value.exit_code == 2


def test_of_several_errors_the_first_comes_out():
    with pytest.raises(errors.DrawbarError, match="first"):
        supervision.run(fail_in_tasks(errors.DrawbarError("first"), errors.DrawbarError("second")))


def test_an_error_outside_of_task_groups_comes_out_as_itself():
    async def daemon():
        raise errors.DrawbarError("plain")

    with pytest.raises(errors.DrawbarError, match="plain"):
        supervision.run(daemon())


@pytest.mark.parametrize(
    "raised",
    [
        pytest.param((KeyError("bug"),), id="a-bug"),
        pytest.param((errors.DrawbarError("known"), KeyError("bug")), id="a-bug-beside-a-known-error"),
    ],
)
def test_an_unforeseen_error_is_logged_with_its_traceback_and_gives_status_1(raised, caplog):
    assert supervision.run(fail_in_tasks(*raised)) == 1
    (record,) = caplog.records
    assert record.levelname == "CRITICAL"
    assert record.exc_info is not None
    assert "bug" in caplog.text


# What does not end when it is cancelled: each waits forever. A thread is ready once it runs: before, it ends.
HANGING = {
    "a-task-that-swallows-its-end": """
    ready()
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass
""",
    "a-read-in-a-thread": """
    reading, writing = os.pipe()
    def read():
        ready()
        os.read(reading, 1)
    await asyncio.to_thread(read)
""",
    "a-loop-that-turns-no-more": """
    ready()
    try:
        await asyncio.Event().wait()
    finally:
        threading.Event().wait()
""",
    "a-log-that-is-not-read": """
    ready()
    try:
        await asyncio.Event().wait()
    finally:
        os.set_blocking(2, True)
        logging.getLogger().warning("x" * (1 << 20))
""",
}
PROGRAM = """
import asyncio, logging, os, sys, threading
from drawbar.driver import errors, logs, supervision
logs.configure("json")
begun = threading.Event()
def ready():
    os.write(1, b"ready\\n")
    begun.set()
async def hang():{body}
async def daemon():
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(hang(), name="the-one-that-hangs")
{more}
sys.exit(supervision.run(daemon(), stop_seconds=0.3))
"""


def start_program(body, more=""):
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(body=body, more=more)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("case", HANGING)
def test_the_process_ends_even_if_clean_up_hangs(case):
    with start_program(HANGING[case]) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 1
        reported = process.stderr.read()
    if case != "a-log-that-is-not-read":
        (record,) = [json.loads(line) for line in reported.splitlines()]
        assert "clean-up hangs" in record["message"]
        assert any("the-one-that-hangs" in name or "thread blocking" in name for name in record["hanging"])


def test_the_cause_of_the_end_is_logged_even_if_clean_up_hangs():
    body, more = HANGING["a-read-in-a-thread"], "        raise errors.DrawbarError('the reason')"
    with start_program(body, "        await asyncio.to_thread(begun.wait)\n" + more) as process:
        assert process.wait(120) == 1
        assert json.loads(process.stderr.read())["cause"] == "the reason"


def test_a_daemon_ends_within_five_seconds():
    assert supervision.STOP_SECONDS + supervision.LAST_WORD_SECONDS < 5


def test_a_clean_end_is_not_followed_by_another(capfd):
    daemon = Clean()
    # Longer than a busy machine takes to clean up: the countdown ends with that, and here would end pytest.
    assert supervision.run(daemon.run(signal.SIGTERM), stop_seconds=10) == 0
    for thread in [thread for thread in threading.enumerate() if thread.name == "deadline"]:
        thread.join()
    assert "hangs" not in capfd.readouterr().err
