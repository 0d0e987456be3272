"""Hooks as programs: what they are given, how they end, and which files are not run. Bitstreams that are loaded without one."""

import asyncio
import hashlib
import os
import re
import threading
import types

import msgspec
import pytest
from tests.scenes import attachments as scenes
from tests.scenes import bitstreams, cards

from drawbar.driver.api import attachments
from drawbar.driver.api.attachments import Initialisation
from drawbar.driver.node import errors, kernel
from drawbar.driver.node.attachments import initialisation, loading
from drawbar.driver.node.attachments.context import Memory
from drawbar.driver.node.classes import dfl
from drawbar.driver.node.discovery import reader
from drawbar.driver.node.inventory import model
from drawbar.driver.node.treatment import hooks
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks.sysfs import MockDevice, SysfsTree, reconfiguration

CARD = model.Card(functions=(cards.function("0000:03:00.0", dsn="00-11"),))
BITS = b"x" * (3 << 20)
DIGEST = hashlib.sha256(BITS).hexdigest()


@pytest.fixture
def hook_settings(tmp_path):
    """Return the settings; both directories are there, with a bitstream."""
    settings = hooks.Settings(hooks=tmp_path / "hooks", bitstreams=tmp_path / "bitstreams")
    for folder in (settings.hooks, settings.bitstreams):
        folder.mkdir(mode=0o755)
    (settings.bitstreams / "b.bit").write_bytes(BITS)
    return settings


def put(settings, text, name="h"):
    path = settings.hooks / name
    path.write_text(text)
    path.chmod(0o755)
    return path


async def outcome(settings, card=CARD, **asked):
    """Return the reason why the device is not ready; empty if it is."""
    runner = hooks.Runner(settings, kernel.Kernel(settings.hooks.parent / "sys"))
    attachment = scenes.attachment(device="card-1", device_class="fpga")
    async with asyncio.TaskGroup() as tasks:
        runner.tasks = tasks
        task = loading.begin(runner, attachment, Initialisation(**{"hook": "h"} | asked), card)
    return task.result()


def with_manager(settings, state):
    """Return the card with an `fpga_manager` in that state."""
    folder = settings.hooks.parent / "sys/devices/x/fpga0"
    folder.mkdir(parents=True)
    (folder / "state").write_text(f"{state}\n")
    manager = model.FpgaManager(name="fpga0", path="devices/x/fpga0", title=None, state=None)
    return model.Card(functions=(msgspec.structs.replace(CARD.first, fpga_managers=(manager,)),))


@pytest.mark.parametrize("state", ["operating", "unknown", "power off"])
async def test_a_bitstream_counts_as_loaded_where_the_kernel_reports_nothing_else(hook_settings, state):
    put(hook_settings, "#!/bin/sh\n")
    assert (
        await outcome(hook_settings, with_manager(hook_settings, state), bitstream="b.bit", sha256=DIGEST)
        == ""
    )


@pytest.mark.parametrize("state", ["write error", "write complete error", "write", "firmware request"])
async def test_a_bitstream_that_the_kernel_reports_as_not_loaded_fails_the_hook(hook_settings, state):
    put(hook_settings, "#!/bin/sh\n")
    card = with_manager(hook_settings, state)
    reported = await outcome(hook_settings, card, bitstream="b.bit", sha256=DIGEST)
    assert f"fpga0 of the card shows '{state}': b.bit is not loaded" in reported
    assert await outcome(hook_settings, card) == "", "a hook that loads none is not judged by it"


async def test_a_hook_gets_the_device_in_its_environment_and_no_other(hook_settings, monkeypatch):
    monkeypatch.setenv("DRAWBAR_SECRET", "of the daemon")
    path = put(
        hook_settings, "#!/bin/sh\nenv | grep ^DRAWBAR_ | grep -v RUN | sort > $(dirname $0)/../reported\n"
    )
    assert await outcome(hook_settings, bitstream="b.bit", sha256=DIGEST) == ""
    reported = dict(line.split("=", 1) for line in (path.parents[1] / "reported").read_text().splitlines())
    assert reported == {
        "DRAWBAR_BITSTREAM": str(hook_settings.bitstreams / "b.bit"),
        "DRAWBAR_CLASS": "fpga",
        "DRAWBAR_DEVICE": "card-1",
        "DRAWBAR_FABRIC": "fab",
        "DRAWBAR_PCI_ADDRESS": "0000:03:00.0",
        "DRAWBAR_SERIAL": "00-11",
        "DRAWBAR_SYSFS": str(hook_settings.hooks.parent / "sys"),
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("#!/bin/sh\necho no port >&2; exit 3\n", "ended with status 3; it wrote last: no port"),
        ("#!/bin/sh\necho begun; sleep 600\n", "was killed after 1 s; it wrote last: begun"),
        ("#!/bin/sh\nyes\n", "wrote more than 65536 bytes, and was killed"),
        ("#!/no/such/interpreter\n", "cannot be executed: No such file"),
    ],
)
async def test_a_hook_that_does_not_succeed_ends_in_its_words(hook_settings, text, words):
    put(hook_settings, text)
    assert words in await outcome(hook_settings, timeout_seconds=1 if "600" in text else 20)


async def test_a_hook_ends_with_the_daemon(hook_settings):
    put(hook_settings, "#!/bin/sh\necho $$ > $(dirname $0)/../pid; exec sleep 600\n")
    runner = hooks.Runner(hook_settings, kernel.Kernel(hook_settings.hooks))
    file = hook_settings.hooks.parent / "pid"

    async def daemon():
        async with asyncio.TaskGroup() as tasks:
            runner.tasks = tasks
            asked = Initialisation(hook="h", timeout_seconds=600)
            loading.begin(runner, scenes.attachment(), asked, CARD)
            while not (file.exists() and file.read_text().strip()):  # noqa: ASYNC110 - a file has no event
                await asyncio.sleep(0.01)
            raise RuntimeError("it ends")

    with pytest.raises(ExceptionGroup):
        await asyncio.wait_for(daemon(), 20)
    with pytest.raises(ProcessLookupError):
        os.kill(int(file.read_text()), 0)


@pytest.mark.parametrize(
    ("spoil", "asked", "words"),
    [
        (
            lambda hook_settings: None,
            {"hook": "other"},
            "there is no hook .*other on this node .*put it there",
        ),
        (lambda hook_settings: None, {"hook": "../h"}, "hook '../h' is not the name of a file"),
        (
            lambda hook_settings: (hook_settings.hooks / "h").chmod(0o777),
            {},
            "may be written by others than root: chown root",
        ),
        (
            lambda hook_settings: hook_settings.hooks.chmod(0o777),
            {},
            "hooks may be written by others than root",
        ),
        (
            lambda hook_settings: (hook_settings.hooks / "l").symlink_to("/bin/sh"),
            {"hook": "l"},
            "others than root|not a regular file",
        ),
        (lambda hook_settings: (hook_settings.hooks / "d").mkdir(), {"hook": "d"}, "is not a regular file"),
        (lambda hook_settings: (hook_settings.hooks / "h").chmod(0o644), {}, "is it an executable file"),
        (
            lambda hook_settings: None,
            {"bitstream": "no.bit", "sha256": DIGEST},
            "there is no bitstream .*no.bit",
        ),
        (
            lambda hook_settings: None,
            {"bitstream": "b.bit", "sha256": "0" * 64},
            f"has the SHA-256 {DIGEST}, and 0000",
        ),
        (
            lambda hook_settings: (hook_settings.bitstreams / "b.bit").chmod(0o666),
            {"bitstream": "b.bit", "sha256": DIGEST},
            "b.bit may be written by others than root",
        ),
    ],
)
async def test_a_missing_or_untrusted_hook_is_not_run(hook_settings, spoil, asked, words):
    path = put(hook_settings, "#!/bin/sh\ntouch $(dirname $0)/../ran\n")
    spoil(hook_settings)
    assert re.search(words, await outcome(hook_settings, **asked))
    assert not (path.parents[1] / "ran").exists()


GBS = bitstreams.gbs()
GBS_DIGEST = hashlib.sha256(GBS).hexdigest()


@pytest.fixture
def answers(hook_settings, monkeypatch):
    """Answer the ioctl of a host with a DFL card and a bitstream by a double; return the double."""
    monkeypatch.setattr(dfl, "SETTLE_SECONDS", 0)
    tree = SysfsTree.create(hook_settings.hooks.parent / "sys", slots=1)
    tree.attach(1, MockDevice(device_class=DeviceClass.FPGA, vendor=0x8086, device=0x0B30))
    reconfiguration.device_files(tree.root)
    (hook_settings.bitstreams / "b.gbs").write_bytes(GBS)
    double = reconfiguration.PortReconfiguration()
    monkeypatch.setattr(kernel, "ioctl", double)
    return double


def read_dfl_card(settings):
    """Return the host's DFL card."""
    functions = reader.read(settings.hooks.parent / "sys").functions
    return model.Card(functions=tuple(each for each in functions if each.driver == "dfl-pci"))


async def load_bitstream(settings, **asked):
    """Return why the card is not ready, where its class names no hook; empty where it is."""
    reported = {"hook": "", "bitstream": "b.gbs", "sha256": GBS_DIGEST} | asked
    return await outcome(settings, read_dfl_card(settings), **reported)


async def test_a_dfl_card_without_a_hook_gets_the_very_bytes_that_were_checked(hook_settings, answers):
    assert await load_bitstream(hook_settings) == ""
    assert [done.design for done in answers.loaded] == [bitstreams.DESIGN]
    assert await load_bitstream(hook_settings) == "", "again, as after a crash"
    assert [done.design for done in answers.loaded] == [bitstreams.DESIGN] * 2


async def test_a_hook_is_run_in_place_of_the_cards_driver(hook_settings, answers):
    path = put(hook_settings, "#!/bin/sh\ntouch $(dirname $0)/../ran\n")
    assert await load_bitstream(hook_settings, hook="h") == ""
    assert (path.parents[1] / "ran").exists()
    assert answers.loaded == []


@pytest.mark.parametrize(
    ("spoil", "asked", "words"),
    [
        (lambda file: file.unlink(), {}, "there is no bitstream .*b.gbs on this node .*put it there"),
        (lambda file: file.chmod(0o666), {}, "b.gbs may be written by others than root"),
        (lambda file: None, {"sha256": "0" * 64}, f"has the SHA-256 {GBS_DIGEST}, and 0000"),
        (lambda file: None, {"bitstream": "b.bit", "sha256": DIGEST}, "b.bit has no metadata of OPAE"),
        (lambda file: None, {"bitstream": "../b.gbs"}, "is not the name of a file"),
        (
            lambda file: os.truncate(file, loading.BITSTREAM_BYTES + 1),
            {},
            "b.gbs has 67108865 bytes, and 67108864 are the most",
        ),
    ],
)
async def test_a_file_that_is_missing_or_wrong_never_reaches_the_card(
    hook_settings, answers, spoil, asked, words
):
    spoil(hook_settings.bitstreams / "b.gbs")
    assert re.search(words, await load_bitstream(hook_settings, **asked))
    assert answers.loaded == []


@pytest.mark.parametrize("state", ["write error", "write"])
async def test_a_load_that_the_kernel_shows_to_have_failed_is_none(hook_settings, answers, state):
    answers.state = state
    reported = await load_bitstream(hook_settings)
    assert reported == (
        f"the kernel took b.gbs, and fpga0 of the card shows '{state}': it is not loaded; look at the kernel's log"
    )


async def test_a_refusal_of_the_kernel_is_the_answer(hook_settings, answers):
    answers.refuses = 16
    assert "is not loaded: cannot reconfigure port 0" in await load_bitstream(hook_settings)


async def test_a_bitstream_for_another_card_than_dfl_needs_a_hook(hook_settings):
    reported = await outcome(hook_settings, hook="", bitstream="b.bit", sha256=DIGEST)
    assert reported == (
        "0000:03:00.0 is not a DFL card, so its bitstream is loaded by a hook, and its DeviceClass names none: have an administrator "
        "set initialise.hook of the class's parameters"
    )


async def test_a_hanging_kernel_call_times_out_and_blocks_the_card(hook_settings, answers):
    answers.gate = threading.Event()
    asked = {"hook": "", "bitstream": "b.gbs", "sha256": GBS_DIGEST}
    runner = hooks.Runner(hook_settings, kernel.Kernel(hook_settings.hooks.parent / "sys"))

    async def load(claim, seconds):
        reference = attachments.ClaimReference(namespace="n", name=claim, uid=claim)
        attachment = scenes.attachment(device="card-1", device_class="fpga", claim=reference)
        async with asyncio.TaskGroup() as tasks:
            runner.tasks = tasks
            task = loading.begin(
                runner,
                attachment,
                Initialisation(**asked, timeout_seconds=seconds),
                read_dfl_card(hook_settings),
            )
        return task.result()

    waited = "the kernel has not answered for .* s, asked to load bitstream b.gbs into .* for claim n/first"
    try:
        assert re.search(waited, await load("first", 1))
        assert re.search(waited, await load("second", 600))
    finally:
        answers.gate.set()
    while len(answers.loaded) < 1 or await load("second", 600):  # noqa: ASYNC110 - a thread has no event
        await asyncio.sleep(0.01)
    assert len(answers.loaded) == 2


async def test_a_load_cancelled_before_it_began_never_happens(hook_settings, answers, monkeypatch):
    held, reached = threading.Event(), threading.Event()
    read = loading._read_bitstream

    def read_slowly(*arguments):
        reached.set()
        held.wait(60)
        return read(*arguments)

    monkeypatch.setattr(loading, "_read_bitstream", read_slowly)
    runner = hooks.Runner(hook_settings, kernel.Kernel(hook_settings.hooks.parent / "sys"))
    asked = Initialisation(hook="", bitstream="b.gbs", sha256=GBS_DIGEST)
    async with asyncio.TaskGroup() as tasks:
        runner.tasks = tasks
        task = loading.begin(runner, scenes.attachment(), asked, read_dfl_card(hook_settings))
        await asyncio.to_thread(reached.wait, 60)
        task.cancel()
    thread = next(each for each in threading.enumerate() if each.name.startswith("kernel: the design"))
    held.set()
    await asyncio.to_thread(thread.join, 60)
    assert answers.loaded == []


def test_a_load_without_a_hook_has_its_own_reason():
    context = types.SimpleNamespace(boot_id="boot-1")
    context.memory = lambda _: Memory(uid="", hook_for=("claim-1", ""), hook=make_ended_task("no port"))
    for hook, failure in (("h", errors.HookFailed), ("", errors.BitstreamNotLoaded)):
        work = initialisation.Initialisation(
            context, make_claimed_attachment((), Initialisation(hook=hook, bitstream="b", sha256=DIGEST))
        )
        with pytest.raises(failure, match="no port"):
            work._hook(CARD)


def make_ended_task(why):
    """Return a task that has made a device ready, or has the reason why not."""
    return types.SimpleNamespace(done=lambda: True, result=lambda: why)


HOOK = Initialisation(hook="h")


def make_claimed_attachment(conditions, asked=HOOK):
    """Return an attachment with these conditions, for a claim whose class has a hook, or that asks for something else."""
    claim = attachments.ClaimReference(namespace="n", name="c", uid="claim-1", initialise=asked)
    node = attachments.NodeReport(claim_uid="claim-1", boot_id="boot-1", pci_address=CARD.address)
    return scenes.attachment(*conditions, claim=claim, node=node)


@pytest.mark.parametrize(
    ("conditions", "boot", "runs"),
    [
        ((attachments.VISIBLE,), "boot-1", False),
        ((attachments.VISIBLE,), "boot-2", True),
        ((), "boot-1", True),
    ],
    ids=["its pods may use it", "after a reboot", "it was not visible yet"],
)
def test_a_daemon_that_comes_back_runs_a_hook_only_for_a_device_that_is_not_in_use(
    monkeypatch, conditions, boot, runs
):
    begun = []

    class Pending:
        def done(self):
            return False

    def begin(*asked):
        begun.append(asked)
        return Pending()

    monkeypatch.setattr(loading, "begin", begin)
    context = types.SimpleNamespace(
        boot_id=boot,
        hooks=None,
        reporter=types.SimpleNamespace(report_hook=lambda *_: None),
    )
    attachment = make_claimed_attachment(conditions)
    context.memory = lambda _: Memory(uid="")
    work = initialisation.Initialisation(context, attachment)
    assert bool(work._hook(CARD)) == runs
    assert bool(work._hook(CARD)) == runs
    assert len(begun) == runs, "once"
