"""What the daemon counts, and that the documentation knows all of it."""

import asyncio
import contextlib
import re
from pathlib import Path

import pytest
from tests.scenes import attachments as scenes
from tests.scenes import waiting
from tests.scenes.verdicts import Verdicts

from drawbar.driver.api import attachments, meta
from drawbar.driver.kube import client, config, errors, kinds
from drawbar.driver.node import errors as node_errors
from drawbar.driver.node import settings, uevents
from drawbar.driver.node.health import verdicts
from drawbar.driver.node.operation import instrumentation
from drawbar.driver.node.plugin import servicers
from drawbar.mocks import apiserver

DRIVER = "drawbar.dev"
DOCUMENT = Path(__file__).parents[4] / "docs" / "reference" / "metrics.md"
CLAIM = servicers.ClaimName(namespace="default", name="c1", uid="u1")


@pytest.fixture
def node_metrics():
    return instrumentation.Metrics(DRIVER)


@pytest.fixture
def clock():
    return waiting.Clock(100.0)


def sample(node_metrics, name, **labels):
    """Return a number as Prometheus reads it; None if there is none."""
    wanted = "".join(
        f'{key}="{value}",' for key, value in sorted({"driver": DRIVER, **labels}.items())
    ).rstrip(",")
    line = f"{instrumentation.PREFIX}{name}{{{wanted}}} "
    rows = [row for row in node_metrics.render().decode().splitlines() if row.startswith(line)]
    return float(rows[0].removeprefix(line)) if rows else None


class Preparation:
    """A preparation that takes a second, or fails."""

    def __init__(self, clock, node_metrics, error=None):
        self.clock, self.measured, self.error, self.seen = clock, node_metrics, error, None

    async def prepare(self, claim):
        self.seen = sample(self.measured, "claim_requests_in_flight", operation="prepare")
        self.clock.now += 1.0
        if self.error is not None:
            raise self.error
        return ()

    unprepare = prepare


async def test_a_claim_is_counted_timed_and_in_flight_meanwhile(node_metrics, clock):
    inner = Preparation(clock, node_metrics)
    timed = instrumentation.TimedPreparation(inner, node_metrics, clock)
    assert await timed.prepare(CLAIM) == ()
    assert inner.seen == 1
    assert sample(node_metrics, "claim_requests_in_flight", operation="prepare") == 0
    assert sample(node_metrics, "claim_requests_total", operation="prepare", result="OK") == 1
    assert sample(node_metrics, "claim_request_duration_seconds_sum", operation="prepare") == 1.0


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (node_errors.PrepareError("x", reason="DeviceInUse"), "DeviceInUse"),
        (node_errors.CheckpointError("x"), "Failed"),
    ],
)
async def test_a_claim_that_fails_is_counted_by_its_reason(node_metrics, clock, error, result):
    timed = instrumentation.TimedPreparation(Preparation(clock, node_metrics, error), node_metrics, clock)
    with pytest.raises(type(error)):
        await timed.unprepare(CLAIM)
    assert sample(node_metrics, "claim_requests_total", operation="unprepare", result=result) == 1
    assert sample(node_metrics, "claim_requests_in_flight", operation="unprepare") == 0


async def test_a_claim_that_the_kubelet_gives_up_is_counted_as_such(node_metrics, clock):
    begun = asyncio.Event()

    class Endless:
        async def prepare(self, claim):
            begun.set()
            await asyncio.Event().wait()

    timed = instrumentation.TimedPreparation(Endless(), node_metrics, clock)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(timed.prepare(CLAIM))
        await begun.wait()
        task.cancel()
    assert task.cancelled()
    assert sample(node_metrics, "claim_requests_total", operation="prepare", result="Aborted") == 1


class Recorder:
    """Keeps the Events about claims."""

    def __init__(self):
        self.events = []

    def record_warning(self, claim, *, reason, message):
        self.events.append((claim.uid, reason, message))


@pytest.mark.defects
@pytest.mark.parametrize("call", ["prepare", "unprepare"])
async def test_an_unexpected_error_over_a_claim_is_an_error_of_that_claim(node_metrics, clock, call):
    recorder = Recorder()
    timed = instrumentation.TimedPreparation(
        Preparation(clock, node_metrics, ZeroDivisionError("s3cret")), node_metrics, clock, recorder
    )
    for _ in range(2):
        with pytest.raises(node_errors.NodeError) as raised:
            await getattr(timed, call)(CLAIM)
    assert "s3cret" not in str(raised.value)
    assert recorder.events == [(CLAIM.uid, "UnexpectedError", str(raised.value))]
    assert sample(node_metrics, "claim_requests_total", operation=call, result="Failed") == 2
    assert node_metrics.contained.counts()["kubelet"] == 2.0


class Source:
    def __init__(self, *sent):
        self.sent = sent

    async def events(self):
        for event in self.sent:
            yield event


def event(action, devpath):
    return uevents.Uevent(action=action, devpath=devpath, subsystem="pci", properties={}, seqnum=1)


DEEP = "/devices/pci0000:00/0000:00:01.0/0000:01:00.0/nvme/nvme0"


async def test_events_are_counted_by_action_and_passed_on(node_metrics, clock):
    sent = (event("add", DEEP), uevents.Overflow(), event("no\nsuch", "/x"), event("add", "/y"))
    counted = instrumentation.CountedUevents(Source(*sent), node_metrics, clock)
    assert tuple([event async for event in counted.events()]) == sent
    assert sample(node_metrics, "uevents_total", action="add") == 2
    assert sample(node_metrics, "uevents_total", action="other") == 1
    assert sample(node_metrics, "uevent_overflows_total") == 1


async def test_the_last_event_of_a_device_is_one_of_it_or_below_it(node_metrics, clock):
    counted = instrumentation.CountedUevents(Source(event("add", DEEP)), node_metrics, clock)
    assert [event async for event in counted.events()]
    clock.now += 2.0
    assert counted.since("0000:01:00.0") == 2.0
    assert counted.since("0000:00:01.0") is None


async def test_the_times_of_devices_are_bounded(node_metrics, clock):
    many = [
        event("add", f"/devices/pci0000:00/{n:04x}:00:00.0") for n in range(instrumentation.DEVICES_LIMIT + 5)
    ]
    counted = instrumentation.CountedUevents(Source(*many), node_metrics, clock)
    assert len([event async for event in counted.events()]) == len(many)
    kept = [counted.since(f"{n:04x}:00:00.0") is not None for n in range(len(many))]
    assert kept == [False] * 5 + [True] * instrumentation.DEVICES_LIMIT


def attachment(*conditions, uid="a1", deleting=False, phase=attachments.PENDING):
    entries = (meta.Condition(type=kind, status=status, reason=reason) for kind, status, reason in conditions)
    node = attachments.NodeReport(pci_address="0000:01:00.0")
    return scenes.attachment(*entries, name="a", uid=uid, deleting=deleting, phase=phase, node=node)


PENDING = attachment()
READY = attachment((attachments.VISIBLE, "True", "DeviceReady"))
FAILED = attachment((attachments.VISIBLE, "False", "DeviceNotFound"))


def test_a_device_that_became_visible_is_timed_once(node_metrics, clock):
    meter = instrumentation.AttachmentMeter(node_metrics, lambda address: 0.02, clock)
    for old, new in ((None, PENDING), (PENDING, READY), (READY, READY), (None, READY), (READY, None)):
        meter.note_change(old, new)
    assert sample(node_metrics, "visible_duration_seconds_count") == 1
    assert sample(node_metrics, "visible_duration_seconds_sum") == 0.02


def test_a_device_without_an_event_is_not_timed(node_metrics, clock):
    instrumentation.AttachmentMeter(node_metrics, lambda address: None, clock).note_change(PENDING, READY)
    assert sample(node_metrics, "visible_duration_seconds_count") == 0


def test_a_failure_is_counted_once_by_its_reason(node_metrics, clock):
    meter = instrumentation.AttachmentMeter(node_metrics, lambda address: None, clock)
    for old, new in ((PENDING, FAILED), (FAILED, FAILED), (None, FAILED)):
        meter.note_change(old, new)
    assert sample(node_metrics, "attach_failures_total", reason="DeviceNotFound") == 1


def test_a_release_is_timed_from_its_request_to_its_end(node_metrics, clock):
    meter = instrumentation.AttachmentMeter(node_metrics, lambda address: None, clock)
    releasing = attachment((attachments.RELEASED, "False", "OpenFiles"), deleting=True)
    done = attachment((attachments.RELEASED, "True", "NotInUse"), deleting=True)
    meter.note_change(READY, releasing)
    clock.now += 3.0
    for old, new in ((releasing, releasing), (releasing, done), (done, done), (done, None)):
        meter.note_change(old, new)
    assert sample(node_metrics, "release_duration_seconds_sum") == 3.0
    assert sample(node_metrics, "release_duration_seconds_count") == 1


def test_a_deleted_attachment_is_not_remembered(node_metrics, clock):
    meter = instrumentation.AttachmentMeter(node_metrics, lambda address: None, clock)
    meter.note_change(None, attachment(deleting=True))
    meter.note_change(attachment(deleting=True), None)
    assert meter._releasing == {}


def test_attachments_are_counted_by_phase_and_by_blocking_reason():
    blocked = attachment((attachments.RELEASED, "False", "OpenFiles"), deleting=True, phase="Releasing")
    attached = [PENDING, attachment(phase="Ready"), attachment(phase="Ready"), blocked]
    assert instrumentation.phases(attached) == {"Pending": 1, "Ready": 2, "Releasing": 1}
    assert instrumentation.count_blocked(attached) == {"OpenFiles": 1}


@pytest.mark.parametrize(
    ("path", "resource"),
    [
        (kinds.CLAIM.path(namespace="n", name="x", subresource="status"), "resourceclaims/status"),
        (kinds.CLAIM.path(namespace="n", name="x"), "resourceclaims"),
        (kinds.SLICE.path(), "resourceslices"),
        (kinds.NODE.path(name="x"), "nodes"),
        (kinds.NAMESPACE.path(name="x"), "namespaces"),
        (kinds.POD.path(namespace="n"), "pods"),
        ("/version", "other"),
    ],
)
def test_a_request_counts_for_its_resource_and_names_no_object(path, resource):
    assert client._resource(path) == resource


async def test_requests_are_counted_by_how_they_end(node_metrics, tmp_path):
    async with apiserver.serving() as server:
        connection = config.from_kubeconfig(server.kubeconfig(tmp_path / "admin"))
        async with client.connecting(connection) as api:
            counting = api.count_requests(node_metrics.request_done)
            assert counting.server == api.server
            await counting.create(
                kinds.NODE, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}, into=dict
            )
            with pytest.raises(errors.NotFound):
                await counting.read(kinds.NODE, "other", into=dict)
            body = {"apiVersion": kinds.SLICE.api_version, "kind": "ResourceSlice", "metadata": {"name": "s"}}
            with pytest.raises(errors.KubeError):
                await counting.create(kinds.SLICE, body, into=dict)
            await counting.list_all(kinds.NODE, into=dict)
            events = counting.watch(kinds.NODE, into=dict, resource_version="0")
            async with contextlib.aclosing(events):
                assert (await anext(events)).type == "ADDED"
            with pytest.raises(errors.KubeError):
                async for _ in counting.watch(kinds.NODE, into=dict, resource_version="no"):
                    pass
    count = {
        (verb, result): sample(node_metrics, "api_requests_total", verb=verb, resource="nodes", result=result)
        for verb, result in (("POST", "OK"), ("GET", "NotFound"), ("GET", "OK"))
    }
    assert set(count.values()) == {1.0}
    assert sample(node_metrics, "slice_writes_total", result="Invalid") == 1
    assert 'verb="WATCH"' in node_metrics.render().decode()


def test_two_daemons_in_one_process_count_for_themselves():
    first, other = instrumentation.Metrics(DRIVER), instrumentation.Metrics(DRIVER)
    first.overflows.inc()
    assert sample(first, "uevent_overflows_total") == 1
    assert sample(other, "uevent_overflows_total") == 0


def test_the_process_and_the_build_are_exposed(node_metrics):
    text = node_metrics.render().decode()
    assert re.search(r'process_resident_memory_bytes\{driver="drawbar.dev"\} [1-9]', text)
    assert re.search(
        r'drawbar_node_build_info\{driver="drawbar.dev",python="3\.\d+\.\d+",version="[^"]+"\} 1\.0', text
    )
    assert "_created" not in text


def test_every_series_names_the_driver_those_of_the_process_too(node_metrics):
    node_metrics.uevents.labels("add").inc()
    node_metrics.claim_seconds.labels("prepare").observe(0.1)
    series = [line for line in node_metrics.render().decode().splitlines() if not line.startswith("#")]
    assert len(series) > 20
    assert [line for line in series if f'driver="{DRIVER}"' not in line] == []


class Audits:
    audits, missed, hanging = 2, 1, ("function 0000:01:00.0",)


@pytest.fixture
def everything():
    """Return the metrics of a daemon that shows all it has."""
    shown = instrumentation.Instrumentation(settings.Settings(node_name="n"))
    shown.watch_attachments([PENDING])
    shown.watch_devices(Audits())
    shown.watch_prepared(lambda: 3)
    key = verdicts.Key(pool="p", device="d")
    shown.watch_verdicts(Verdicts({key: verdicts.UNKNOWN}))
    shown.watch_queue(lambda: 4, lambda: 5)
    shown.watch_unreadable(dict)
    shown.watch_neighbours(lambda: {"driver": 2.0}, lambda: 6)
    return shown.metrics


def test_gauges_are_computed_when_they_are_read(everything):
    samples = {
        name: sample(everything, name)
        for name in (
            "audits_total",
            "audit_findings_total",
            "hanging_objects",
            "prepared_devices",
            "queue_length",
            "dropped_events_total",
        )
    }
    assert list(samples.values()) == [2, 1, 1, 3, 4, 5]
    assert sample(everything, "devices", health="Unknown") == 1
    assert sample(everything, "attachments", phase="Pending") == 1
    assert sample(everything, "ready") == 0
    assert sample(everything, "left_out_devices", why="driver") == 2
    assert sample(everything, "devices_offered_twice") == 6


def test_the_document_lists_exactly_the_metrics_there_are(everything):
    text = DOCUMENT.read_text().replace("drawbar_<daemon>_", "drawbar_node_")
    listed = re.findall(r"^- `(drawbar_node_[a-z_]+)", text, re.MULTILINE)
    assert sorted(listed) == sorted(
        name for name in everything.names() if name.startswith(instrumentation.PREFIX)
    )
    assert set(re.findall(r"drawbar_node_[a-z_]+", text)) <= everything.names()
