"""What only a node with a kernel of its own shows: the device found, and its content read in a container."""

import asyncio
import contextlib
import dataclasses
import io
import json
import sys

import pytest

from drawbar.fabric.contract import DeviceClass
from drawbar.mocks import apiserver, cluster
from drawbar.mocks.demo import demonstration, progress, screens, stages, summary, table
from drawbar.mocks.demo.progress import Step
from drawbar.mocks.kube import client, connections, kinds

CLAIM = progress.ClaimSeen(uid="c", pod="p", pool="qemu/shelf", device="pool-0", node="n1")
WANTED = progress.AttachmentSeen(claim_uid="c", device_id="pool-0", serial="POOL0000")
CONNECTED = dataclasses.replace(WANTED, slot="1")
FOUND = progress.KernelSaw(slot="1", address="0000:01:00.0")


def make_view(*sightings):
    state = progress.begin({"p": "nvme"})
    for at, sighting in enumerate(sightings):
        state = progress.record_sighting(state, sighting, float(at))
    return progress.views(state)["p"]


@pytest.mark.parametrize(
    ("sightings", "seen"),
    [
        pytest.param([CLAIM, WANTED, CONNECTED, FOUND], 3.0, id="the fabric's report comes first"),
        pytest.param([CLAIM, WANTED, FOUND, CONNECTED], 2.0, id="the kernel is quicker than the record"),
        pytest.param([CLAIM, WANTED, CONNECTED, FOUND, FOUND], 3.0, id="the first time counts"),
        pytest.param([FOUND, CLAIM, WANTED, CONNECTED], None, id="it was an earlier device in this slot"),
        pytest.param([CLAIM, WANTED, FOUND], None, id="the slot has no known owner yet"),
        pytest.param(
            [CLAIM, WANTED, CONNECTED, dataclasses.replace(FOUND, slot="2")], None, id="another slot"
        ),
    ],
)
def test_the_kernel_has_seen_a_device_when_it_announced_one_in_its_slot(sightings, seen):
    view = make_view(*sightings)
    assert view.steps.get(Step.SEEN) == seen
    assert view.address == ("0000:01:00.0" if seen is not None else "")


def test_a_later_card_in_the_slot_does_not_change_the_time():
    before = make_view(CLAIM, WANTED, CONNECTED, FOUND)
    later = make_view(CLAIM, WANTED, CONNECTED, FOUND, progress.AttachmentGone(claim_uid="c"), FOUND)
    assert later.steps == before.steps


def test_a_read_by_the_container_is_a_step_with_content():
    view = make_view(
        progress.ContentRead(pod="p", content="disk 0"), progress.ContentRead(pod="q", content="no")
    )
    assert (view.steps, view.content) == ({Step.READ: 0.0}, "disk 0")
    assert make_view(CLAIM, progress.ContentRead(pod="p", content="disk 0")).content == "disk 0"


WAY = {step: float(number) for number, step in enumerate(Step)}
VIEW = progress.View(
    pod="demo-1",
    device_class="nvme",
    node="node-1",
    pool="qemu/shelf",
    device="pool-0",
    serial="POOL0000",
    cdi=("drawbar.dev/device=c-pool-0",),
    steps=WAY,
    attach_seconds=0.25,
    detach_seconds=0.0,
    address="0000:01:00.0",
    content="disk 0",
)


@pytest.mark.parametrize(
    ("left_out", "good"), [(None, True), (Step.READ, False), (Step.RUNNING, False), (Step.DETACHED, False)]
)
def test_a_run_before_a_kernel_is_good_only_if_every_container_read_its_device(left_out, good):
    steps = {step: at for step, at in WAY.items() if step is not left_out}
    view = dataclasses.replace(VIEW, steps=steps)
    whole = summary.summarise([view], leaked=0, seconds=1.0, reads=True)
    assert whole.good is good
    assert whole.read == (0 if left_out is Step.READ else 1)


def test_visible_counts_from_the_kernels_sight_where_there_is_one():
    assert summary.step_milliseconds(VIEW, Step.VISIBLE) == 1000.0
    unseen = {step: at for step, at in WAY.items() if step is not Step.SEEN}
    assert summary.step_milliseconds(dataclasses.replace(VIEW, steps=unseen), Step.VISIBLE) == 2000.0


def test_the_summary_counts_reads_and_the_fabrics_time():
    whole = summary.summarise([VIEW], leaked=0, seconds=1.0, reads=True)
    assert screens.document(whole)["read"] == 1
    assert screens.document(whole)["fabric_ms"] == {
        "attach": {"p50": 250.0, "p99": 250.0},
        "detach": {"p50": 0.0, "p99": 0.0},
    }
    story = " ".join(screens.lines(whole))
    assert "1 of 1 containers read their device" in story
    assert "1.0 s  the node's kernel saw the device" in story
    assert "read" not in screens.document(summary.summarise([VIEW], leaked=0, seconds=1.0))


def test_lines_and_json_name_the_address_and_the_content(monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    for screen in (screens.PlainLines(lambda: 0.0), screens.JsonLines(lambda: 0.0)):
        screen.report_step(VIEW, Step.SEEN)
        screen.report_step(VIEW, Step.READ)
    plain, more, *rest = out.getvalue().splitlines()
    assert plain.endswith("by the kernel, at 0000:01:00.0")
    assert more.endswith('by its container: "disk 0"')
    assert [(json.loads(line)["address"], json.loads(line)["content"]) for line in rest] == [
        ("0000:01:00.0", "disk 0")
    ] * 2


def test_the_table_has_a_column_for_each_step_of_the_stage_in_line_with_its_times(monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setenv("COLUMNS", "150")
    with table.LiveTable({"demo-1": "nvme"}, lambda: 0.0, tuple(Step)) as screen:
        for step in Step:
            screen.report_step(VIEW, step)
    heading, times, more = out.getvalue().splitlines()[:3]
    assert heading.split()[4:] == [step.value for step in Step if step is not Step.DELETED]
    assert len(heading.rstrip()) == len(times.rstrip())
    assert 'read "disk 0"' in more


class Told:
    """A screen that remembers."""

    def __init__(self):
        self.stuck_sentences, self.whole = [], None

    def report_happening(self, what):
        pass

    report_step = report_fabric = report_ready = report_whereabouts = lambda *_: None

    def report_stuck(self, sentences):
        self.stuck_sentences += sentences

    def report_summary(self, whole):
        self.whole = whole


class RunningStage:
    """A cluster whose pod runs at once, without a device; what its container reads is up to the test."""

    def __init__(self, api, folder, read):
        self.api, self.journal, self.read = api, folder / "journal", read
        self.where = stages.Whereabouts(kubeconfig=folder, directory=folder, logs=folder)
        self.keep_logs = False
        self.journal.touch()

    async def witness(self, see):
        while not (pods := (await self.api.list_all(kinds.POD, into=dict)).items):  # noqa: ASYNC110 - a write of another
            await asyncio.sleep(0.02)
        await self.api.patch(
            kinds.POD,
            pods[0]["metadata"]["name"],
            {"status": {"phase": "Running"}},
            content=client.Patch.MERGE,
            into=dict,
            namespace="default",
            subresource="status",
        )

    async def leaks(self):
        return 0


class Stage:
    wanted, steps = {"demo-1": DeviceClass.NVME}, tuple(Step)

    def __init__(self, folder, read):
        self._folder, self._read = folder, read

    @contextlib.asynccontextmanager
    async def running(self, report):
        async with apiserver.serving() as server:
            connection = connections.from_kubeconfig(server.kubeconfig(self._folder / "admin", "admin"))
            async with client.connecting(connection) as api:
                yield RunningStage(api, self._folder, self._read)


async def run_demonstration(folder, read, *, deadline_seconds=60.0):
    """Return whether the demonstration succeeded, and its output."""
    screen = Told()
    options = demonstration.Options(deadline_seconds=deadline_seconds)
    clock = asyncio.get_running_loop().time
    return await demonstration.Demonstration(Stage(folder, read), options, screen, clock).run(), screen


async def test_a_container_that_reads_something_else_ends_the_demo_with_that_one_error(tmp_path):
    async def read(view):
        raise cluster.ClusterError(f"the container of {view.pod} read something else")

    with pytest.raises(cluster.ClusterError, match="container of demo-1 read something else"):
        await run_demonstration(tmp_path, read)


async def test_a_container_that_never_reads_is_named_when_the_deadline_passes(tmp_path):
    async def read(view):
        await asyncio.get_running_loop().create_future()

    # It may not run by then on a busy machine: either way it was not read.
    good, screen = await run_demonstration(tmp_path, read, deadline_seconds=1.0)
    assert not good
    assert screen.whole.read == 0
    assert any(sentence.startswith("demo-1 (nvme) ") for sentence in screen.stuck_sentences)
