"""The drain hook of a device, and the settings of all hooks."""

import asyncio
import gc
from pathlib import Path

import pytest
from tests.scenes import attachments as scenes
from tests.scenes import cards, waiting

from drawbar.driver.api import attachments
from drawbar.driver.node import kernel
from drawbar.driver.node.inventory import model
from drawbar.driver.node.treatment import hooks, plan

CARD = model.Card(functions=(cards.function("0000:03:00.0", dsn="00-11"),))


@pytest.fixture
def hook_settings(tmp_path):
    """Return the settings; the directory of hooks is there."""
    settings = hooks.Settings(hooks=tmp_path / "hooks")
    settings.hooks.mkdir(mode=0o755)
    return settings


def put(settings, text):
    path = settings.hooks / "h"
    path.write_text(text)
    path.chmod(0o755)


def test_settings_that_cannot_be_are_named():
    wrong = hooks.problems(hooks.Settings(hooks=Path("x")))
    assert wrong == ["hooks x is not an absolute path"]
    assert hooks.problems(hooks.Settings()) == []


class Drained:
    """A device that is drained by runs that the test ends."""

    def __init__(self):
        self.draining = hooks.Draining()
        self.drain = hooks.Drain(hook="d", begin=self.begin)
        self.runs: list[asyncio.Future[str]] = []

    def begin(self, _):
        self.runs.append(asyncio.get_running_loop().create_future())
        return self.runs[-1]

    def observe(self, now):
        return self.draining.observe(self.drain, now)


RUNS = plan.Draining(is_running=True, message="hook d is draining the device")
AGAIN = plan.Draining(message="hook d has run and will run again")


async def test_a_device_is_drained_by_one_run_at_a_time_and_again_only_after_a_while():
    device = Drained()
    assert device.observe(0).is_due
    device.draining.begin(device.drain, CARD)
    assert device.observe(1) == RUNS
    device.runs[0].set_result("")
    assert device.observe(3) == AGAIN
    assert device.observe(3 + hooks.DRAIN_AGAIN_SECONDS - 0.1) == AGAIN
    assert device.observe(3 + hooks.DRAIN_AGAIN_SECONDS).is_due
    device.draining.begin(device.drain, CARD)
    device.runs[1].set_result("d ended with status 3")
    assert device.observe(40) == plan.Draining(message="d ended with status 3")
    assert len(device.runs) == 2


def test_a_device_without_a_drain_hook_has_nothing_to_wait_for():
    assert hooks.Draining().observe(None, 0) == plan.NO_DRAINING


async def test_the_end_of_a_release_ends_its_drain_hook(hook_settings):
    put(hook_settings, "#!/bin/sh\necho $$ > $(dirname $0)/../pid; exec sleep 600\n")
    runner, draining = (
        hooks.Runner(hook_settings, kernel.Kernel(hook_settings.hooks.parent / "sys")),
        hooks.Draining(),
    )
    attachment = scenes.attachment(device="card-1", device_class="gpu")

    drain = runner.drain(attachment, attachments.Hook(hook="h"))

    def process():
        file = hook_settings.hooks.parent / "pid"
        number = file.read_text().strip() if file.exists() else ""
        return Path(f"/proc/{number}") if number else None

    async with asyncio.TaskGroup() as tasks:
        runner.tasks = tasks
        draining.begin(drain, CARD)
        running = await waiting.eventually(process)
        assert running.exists()
        draining.end()
    assert not running.exists()


async def test_a_drain_hook_that_fails_is_quoted(hook_settings):
    put(hook_settings, "#!/bin/sh\necho 'no such GPU' >&2\nexit 4\n")
    runner = hooks.Runner(hook_settings, kernel.Kernel(hook_settings.hooks.parent / "sys"))
    async with asyncio.TaskGroup() as tasks:
        runner.tasks = tasks
        task = runner.drain(scenes.attachment(device="card-1"), attachments.Hook(hook="h")).begin(CARD)
    assert task.result().endswith("ended with status 4; it wrote last: no such GPU")


async def test_a_hook_cancelled_before_its_first_step_leaves_nothing_behind(hook_settings):
    # An unawaited coroutine would be a warning, and each warning fails a test.
    runner = hooks.Runner(hook_settings, kernel.Kernel(hook_settings.hooks.parent / "sys"))
    drain = runner.drain(scenes.attachment(device="card-1"), attachments.Hook(hook="h"))
    async with asyncio.TaskGroup() as tasks:
        runner.tasks = tasks
        task = drain.begin(CARD)
        task.cancel()
    assert task.cancelled()
    gc.collect()
