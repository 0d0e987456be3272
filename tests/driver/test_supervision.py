"""Running a daemon: signals, errors and exit statuses."""

import asyncio
import os
import signal

import pytest

from drawbar.driver import errors, supervision


class Clean:
    """A daemon that waits for ever, and whether it was let to clean up."""

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


async def failing(*found):
    async def fail(error):
        raise error

    async with asyncio.TaskGroup() as outer:
        outer.create_task(asyncio.Event().wait(), name="idle")
        async with asyncio.TaskGroup() as inner:
            for error in found:
                inner.create_task(fail(error), name="failing")


def test_an_error_deep_in_task_groups_comes_out_as_itself():
    wanted = errors.UsageError("say it otherwise")
    with pytest.raises(errors.UsageError) as raised:
        supervision.run(failing(wanted))
    assert raised.value is wanted
    assert raised.value.exit_code == 2


def test_of_several_errors_the_first_comes_out():
    with pytest.raises(errors.DrawbarError, match="first"):
        supervision.run(failing(errors.DrawbarError("first"), errors.DrawbarError("second")))


def test_an_error_outside_of_task_groups_comes_out_as_itself():
    async def daemon():
        raise errors.DrawbarError("plain")

    with pytest.raises(errors.DrawbarError, match="plain"):
        supervision.run(daemon())


@pytest.mark.parametrize(
    "found",
    [
        pytest.param((KeyError("bug"),), id="a-bug"),
        pytest.param((errors.DrawbarError("known"), KeyError("bug")), id="a-bug-beside-a-known-error"),
    ],
)
def test_what_nobody_foresaw_is_logged_with_its_traceback_and_gives_status_1(found, caplog):
    assert supervision.run(failing(*found)) == 1
    (record,) = caplog.records
    assert record.levelname == "CRITICAL"
    assert record.exc_info is not None
    assert "bug" in caplog.text
