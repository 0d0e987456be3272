"""Devices of the node's own that are made ready for claims: what is remembered, tried again, blamed and left alone."""

import asyncio
import contextlib
import datetime
import threading
import types

import pytest

from drawbar.driver import clocks
from drawbar.driver.api import claims, meta, slices
from drawbar.driver.catalogue import reasons
from drawbar.driver.node import kernel, treatment
from drawbar.driver.node.attachments import initialisation, local, probation
from drawbar.driver.node.attachments.context import Context
from drawbar.driver.node.discovery import devices
from drawbar.driver.node.local import demands, residents
from drawbar.driver.node.preparation import cleaning, readiness
from drawbar.driver.node.treatment import hooks
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks import sysfs

NODE, DRIVER, SERIAL = "node-1", "drawbar.dev", "00-0a-35-00-00-00-00-01"
DEVICE = f"fpga-{SERIAL}"
CARD = sysfs.MockDevice(
    device_class=DeviceClass.FPGA,
    vendor=0x10EE,
    device=0x5004,
    serial=SERIAL,
    driver="xclmgmt",
    total_vfs=4,
    vf_driver="xocl",
)
HEAD = {"apiVersion": "drawbar.dev/v1alpha1", "kind": "DeviceParameters"}
HOOK = {"initialise": {"hook": "loads"}}
COUNTS = '#!/bin/sh\necho "$DRAWBAR_DEVICE" >> "$(dirname "$0")/../ran"\n'
FAILS = COUNTS + "echo 'no such port' >&2\nexit 3\n"
GOES_ON = COUNTS + 'while [ ! -e "$(dirname "$0")/../go" ]; do sleep 0.01; done\n'
WAITS = COUNTS + 'trap "touch $(dirname "$0")/../ended; exit 1" TERM\nsleep 30 & wait\n'


def claim(name="c1", at="T1", **reported):
    configuration = claims.AllocatedConfiguration(
        source="FromClass", opaque=claims.OpaqueConfiguration(driver=DRIVER, parameters=HEAD | reported)
    )
    result = claims.AllocationResult(request="r", driver=DRIVER, pool=NODE, device=DEVICE)
    allocation = claims.Allocation(
        devices=claims.DeviceAllocation(results=(result,), config=(configuration,)), allocation_timestamp=at
    )
    metadata = meta.ObjectMeta(name=name, namespace="default", uid=f"uid-{name}")
    return claims.ResourceClaim(metadata=metadata, status=claims.ClaimStatus(allocation=allocation))


class Recorder:
    """Keeps the reasons of the Events."""

    def __init__(self):
        self.reasons = []

    def record_normal(self, _, *, reason, message):
        del message
        self.reasons.append(reason)

    def attachment_normal(self, attachment, **_):
        """Record nothing: a local device has no DeviceAttachment."""
        assert attachment.spec.is_local

    record_warning, attachment_warning = record_normal, attachment_normal


class Clean:
    """The cleaner as seen from here: what it refuses, and which devices it has to look at."""

    def __init__(self):
        self.refused, self.why, self.looked_at = "", "", []

    def refusal(self, *_):
        return self.refused or None

    def failure(self, _):
        return self.why

    def start_cleaning(self, _, device):
        self.looked_at.append(device)


class NodeWithCard:
    """A node with one card, and its daemon's part for such devices, which can be started again."""

    def __init__(self, folder):
        self.folder, self.skipped = folder, datetime.timedelta()
        self.tree = sysfs.SysfsTree.create(folder / "sys")
        self.tree.attach(1, CARD)
        (folder / "hooks").mkdir(mode=0o755)
        self.marks, self.cleaner, self.recorder = cleaning.Marks(folder), Clean(), Recorder()
        self.boot_id, self.holder, self.published = "boot-1", None, ()
        self.offers_functions, self.kernel_seconds = False, kernel.DEADLINE_SECONDS
        self.hook(COUNTS)

    def hook(self, text):
        path = self.folder / "hooks" / "loads"
        path.write_text(text)
        path.chmod(0o755)

    def clock(self):
        return clocks.steady() + self.skipped

    @property
    def runs(self):
        ran = self.folder / "ran"
        return ran.read_text().splitlines() if ran.exists() else []

    async def make_local_devices(self):
        asked = kernel.Kernel(self.tree.root, deadline_seconds=self.kernel_seconds)
        arrivals = devices.Devices(self.tree.root)
        await arrivals.read()
        self.runner = hooks.Runner(hooks.Settings(hooks=self.folder / "hooks"), asked)
        reporter = types.SimpleNamespace(api=None, recorder=self.recorder, tells_claims=lambda: True)
        context = Context(
            reporter=reporter,
            arrivals=arrivals,
            kernel=asked,
            treatment=treatment.Executor(asked),
            boot_id=self.boot_id,
            since=self.clock(),
            patience=datetime.timedelta(seconds=60),
            clock=self.clock,
            time_of_day=clocks.time_of_day,
            holder=lambda _pool, _device: self.holder,
            hooks=self.runner,
            offers=lambda _: self.offers_functions,
        )

        def card(pool, device):
            listed = {each.name: each.card for each in residents.residents(arrivals.inventory.cards)}
            return listed.get(device) if pool == NODE else None

        self.arrivals = arrivals
        around = local.Surroundings(
            node_name=NODE,
            driver=DRIVER,
            context=context,
            marks=self.marks,
            cleaner=self.cleaner,
            card=card,
            published=lambda: self.published,
            changed=lambda: None,
            probations=probation.Probations(self.clock, lambda: None),
        )
        self.devices = local.LocalDevices(around)
        return self.devices

    @contextlib.asynccontextmanager
    async def acting(self):
        """Yield the part of a daemon that acts."""
        made = await self.make_local_devices()
        async with asyncio.TaskGroup() as tasks:
            self.runner.tasks = tasks
            running = tasks.create_task(made.run())
            await asyncio.sleep(0)
            yield made
            running.cancel()

    async def until(self, holds):
        async with asyncio.timeout(120):
            while not holds():  # noqa: ASYNC110 - a hook is a process, and files have no event
                await asyncio.sleep(0.005)

    @property
    def card(self):
        return self.arrivals.card_at(self.tree.address(1))

    async def replug(self):
        """Take the card out and put it in again, before the daemon looks."""
        self.tree.detach(1)
        self.tree.attach(1, CARD)
        await self.arrivals.read()
        self.devices.requeue_all()

    def state(self, name="c1", at="T1"):
        """Return the reason why Prepare refuses the device to the claim; empty if it does not."""
        value = self.devices.attachment(NODE, DEVICE, f"uid-{name}", at)
        use = readiness.Use(claim_uid=f"uid-{name}", allocation_timestamp=at)
        missing = readiness.find_missing(value, use, boot_id=self.boot_id, card=self.card)
        return missing.reason if missing is not None else ""

    def passes(self, seconds):
        self.skipped += datetime.timedelta(seconds=seconds)


def looks_again(made):
    """Return whether the device is due for another look later, and nothing is to be done now."""
    return DEVICE in made._queue._timers and not made._queue._busy


@pytest.fixture
def world(tmp_path):
    return NodeWithCard(tmp_path)


async def test_a_device_is_made_ready_once_for_a_claim_and_not_again_by_the_next_daemon(world):
    async with world.acting() as made:
        made.take_claim(claim(**HOOK))
        await world.until(lambda: not world.state())
        mark = world.marks.get(DEVICE)
        assert (mark.uid, mark.allocation_timestamp, mark.boot_id) == ("uid-c1", "T1", "boot-1")
        assert world.recorder.reasons == ["Initialising"]
    async with world.acting() as made:
        assert world.state() == ""
        assert world.state(at="T2") == reasons.DEVICE_NOT_READY
        made.take_claim(claim(**HOOK))
        await world.until(lambda: len(made._queue) == 0)
        assert world.state() == ""
    assert world.runs == [DEVICE]


async def test_after_a_reboot_it_is_made_ready_again(world):
    async with world.acting() as made:
        made.take_claim(claim(**HOOK))
        await world.until(lambda: not world.state())
    world.boot_id = "boot-2"
    async with world.acting() as made:
        assert world.state() == reasons.DEVICE_NOT_READY
        made.take_claim(claim(**HOOK))
        await world.until(lambda: not world.state())
    assert world.runs == [DEVICE, DEVICE]


async def test_a_device_that_is_left_half_done_has_a_mark_and_the_cleaner_looks_at_it(world):
    world.hook(WAITS)
    async with world.acting() as made:
        made.claim_changed(None, claim(**HOOK))
        await world.until(lambda: world.runs)
        mark = world.marks.get(DEVICE)
        assert (mark.uid, mark.boot_id) == ("uid-c1", "")
        assert world.cleaner.looked_at == [DEVICE]
        made.claim_changed(claim(**HOOK), None)
        await world.until(lambda: len(world.cleaner.looked_at) == 2)
        await world.until(lambda: not made._context.memories)
    assert world.state() == reasons.DEVICE_NOT_READY


async def test_a_device_that_is_not_clean_is_not_made_ready_before(world):
    world.cleaner.refused = "its last user's data are being removed"
    async with world.acting() as made:
        made.take_claim(claim(**HOOK))
        await world.until(lambda: looks_again(made))
        assert world.runs == []
        assert world.marks.get(DEVICE) is None
        world.cleaner.refused = ""
        made.requeue_all()
        await world.until(lambda: not world.state())


async def test_a_device_that_another_claim_has_is_left_alone(world):
    world.holder = "uid-other"
    async with world.acting() as made:
        made.take_claim(claim(**HOOK))
        await world.until(lambda: looks_again(made))
        assert world.runs == []
        assert world.marks.get(DEVICE) is None


async def test_an_instance_that_does_not_act_makes_nothing_ready_and_answers_by_the_mark(world):
    async with world.acting() as made:
        made.take_claim(claim(**HOOK))
        await world.until(lambda: not world.state())
    passive = await world.make_local_devices()
    passive.take_claim(claim("c2", **HOOK))
    assert world.state() == ""
    assert world.state("c2") == reasons.DEVICE_NOT_READY
    assert passive._works == {}


async def test_a_failure_is_tried_again_for_a_pod_on_the_node_once_some_time_has_passed(world):
    world.hook(FAILS)
    async with world.acting() as made:
        made.take_claim(claim(**HOOK))
        await world.until(lambda: world.state() == reasons.DEVICE_FAILED)
        made.take_claim(claim(**HOOK))
        await world.until(lambda: looks_again(made))
        assert len(world.runs) == 1
        world.hook(COUNTS)
        world.passes(local.AGAIN_SECONDS + 1)
        made.take_claim(claim(**HOOK))
        await world.until(lambda: not world.state())
    assert len(world.runs) == 2


async def test_a_hook_of_the_class_that_fails_keeps_others_away_for_a_minute(world):
    world.hook(FAILS)
    async with world.acting() as made:
        made.take_claim(claim(**HOOK))
        await world.until(lambda: made._probations.taint(DEVICE) is not None)
        taint = made._probations.taint(DEVICE)
        assert (taint.key, taint.value, taint.effect) == ("attach-failed", "HookFailed", "NoSchedule")
        assert "no such port" in taint.message
        world.passes(probation.SETUP_PROBATION_SECONDS - 1)
        assert made._probations.taint(DEVICE) is not None
        world.passes(2)
        assert made._probations.taint(DEVICE) is None


async def test_a_device_that_fails_again_is_kept_away_for_longer_and_a_day_at_most(world):
    lengths = []
    async with world.acting() as made:
        for number in range(12):
            made.claim_changed(None, claim(f"c{number}", minimumVersions={"driver": "999"}))
            await world.until(lambda: made._probations.taint(DEVICE) is not None)
            length = made._probations._blames[DEVICE].seconds
            lengths.append(length)
            world.passes(length + 1)
            assert made._probations.taint(DEVICE) is None
    assert lengths[:3] == [300, 600, 1200]
    assert lengths[-1] == 86_400


async def test_a_device_that_becomes_ready_is_blamed_no_more(world):
    world.hook(FAILS)
    async with world.acting() as made:
        made.take_claim(claim(**HOOK))
        await world.until(lambda: made._probations.taint(DEVICE) is not None)
        world.hook(COUNTS)
        made.take_claim(claim("c2", at="T2", **HOOK))
        world.marks.remove(DEVICE)
        await world.until(lambda: not world.state("c2", "T2"))
        assert made._probations.taint(DEVICE) is None


@pytest.mark.parametrize(
    ("listed", "is_away"),
    [
        ((), True),
        ((slices.Device(name=DEVICE),), False),
        (
            (slices.Device(name=DEVICE, taints=(slices.Taint(key="x/attach-failed", effect="NoSchedule"),)),),
            False,
        ),
        (
            (
                slices.Device(
                    name=DEVICE, taints=(slices.Taint(key=f"{DRIVER}/attach-failed", effect="NoSchedule"),)
                ),
            ),
            True,
        ),
    ],
    ids=["withdrawn", "without its taint", "another's taint", "tainted"],
)
async def test_a_claim_learns_of_a_failure_when_no_other_claim_can_get_the_device(world, listed, is_away):
    pool = slices.Pool(name=NODE, generation=1, resource_slice_count=1)
    spec = slices.SliceSpec(driver=DRIVER, pool=pool, devices=listed)
    world.published = (slices.ResourceSlice(metadata=meta.ObjectMeta(name="s"), spec=spec),)
    world.hook(FAILS)
    async with world.acting() as made:
        made.take_claim(claim(**HOOK))
        await world.until(lambda: made._probations.taint(DEVICE) is not None)
        work = made._works[DEVICE]
        assert made._is_kept_away(work) is is_away
        world.passes(local.TAINTED_MAX_SECONDS + 1)
        assert made._is_kept_away(work), "it does not wait forever"


async def test_virtual_functions_are_refused_where_the_node_offers_them_in_place_of_their_card(world):
    world.offers_functions = True
    async with world.acting() as made:
        made.take_claim(claim(virtualFunctions={"groups": [{"count": 2}]}))
        await world.until(lambda: world.state() == reasons.DEVICE_FAILED)
        value = made.attachment(NODE, DEVICE, "uid-c1", "T1")
        (visible,) = [held for held in value.status.conditions if held.type == "Visible"]
        assert visible.reason == "FunctionsNotSetUp"
        assert "turn localPool.virtualFunctions off" in visible.message
    sriov = world.tree.root / "bus/pci/devices" / world.tree.address(1) / "sriov_numvfs"
    assert sriov.read_text().strip() == "0"


async def test_a_card_that_is_put_in_again_gets_its_hook_again_before_prepare(world):
    async with world.acting() as made:
        made.take_claim(claim(**HOOK))
        await world.until(lambda: not world.state())
        await world.replug()
        assert world.state() == reasons.DEVICE_NOT_READY
        await world.until(lambda: not world.state())
        assert world.runs == [DEVICE, DEVICE]


async def test_a_card_that_is_put_in_again_without_a_daemon_gets_its_hook_again(world):
    async with world.acting() as made:
        made.take_claim(claim(**HOOK))
        await world.until(lambda: not world.state())
    await world.replug()
    async with world.acting() as made:
        assert world.state() == reasons.DEVICE_NOT_READY
        made.take_claim(claim(**HOOK))
        await world.until(lambda: not world.state())
    assert world.runs == [DEVICE, DEVICE]


async def test_a_claim_in_use_loses_a_card_that_is_put_in_again(world):
    async with world.acting() as made:
        made.take_claim(claim(**HOOK))
        await world.until(lambda: not world.state())
        world.holder = "uid-c1"
        await world.replug()
        await world.until(lambda: world.state() == reasons.DEVICE_FAILED)
        assert world.runs == [DEVICE]
        world.holder = None
        made.requeue_all()
        await world.until(lambda: not world.state())
        assert world.runs == [DEVICE, DEVICE]


async def test_a_hook_that_takes_its_card_out_runs_once(world):
    world.hook(GOES_ON)
    async with world.acting() as made:
        made.take_claim(claim(**HOOK))
        await world.until(lambda: world.runs)
        await world.replug()
        (world.folder / "go").touch()
        await world.until(lambda: not world.state())
        assert world.runs == [DEVICE]
        await world.replug()
        await world.until(lambda: not world.state())
        assert world.runs == [DEVICE, DEVICE]


async def test_a_card_whose_configuration_space_hangs_is_reported_and_keeps_no_worker(world, monkeypatch):
    held = threading.Event()
    monkeypatch.setattr(initialisation.pci, "is_silent", lambda _: held.wait(60))
    monkeypatch.setattr(world, "kernel_seconds", 0.05)
    async with world.acting() as made:
        made.take_claim(claim(**HOOK))
        work = f"{demands.NAME_PREFIX}{DEVICE}"
        try:
            await world.until(lambda: (memory := made._context.memories.get(work)) and memory.attempt)
            assert "the configuration space of 0000:01:00.0" in made._context.memories[work].attempt.missing
        finally:
            held.set()
