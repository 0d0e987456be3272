"""The traces of attaches: what `latency` measures, joined by what the node reports."""

import itertools

import pytest
from tests.scenes import attachments as scenes
from tests.scenes import waiting

from drawbar.driver.api import attachments, claims, meta
from drawbar.driver.controller import names, outcomes
from drawbar.driver.controller.operation import latency, metrics, traces
from drawbar.driver.node.operation import instrumentation

KEY = names.DeviceKey(fabric="fab", device="gpu-0")
UID = "b1ed5591-21bd-430d-9196-02f05fbb2955"
CLAIM = attachments.ClaimReference(namespace="team", name="train", uid="c1")
ATTACH = outcomes.Side.ATTACH
UNUSED = claims.ResourceClaim(metadata=meta.ObjectMeta(name="train"))
ALLOCATED = claims.ResourceClaim(
    metadata=meta.ObjectMeta(name="train"), status=claims.ClaimStatus(allocation=claims.Allocation())
)
STEPS = ["record attachment", "plan attach", "fabric attach", "report attached", "await node"]
SECOND = 1_000_000_000


def attachment(*conditions):
    node = attachments.NodeReport(pci_address="0000:01:00.0")
    return scenes.attachment(*conditions, uid=UID, device="gpu-0", claim=CLAIM, node=node)


NEW, TOLD, READY = attachment(), attachment("Attached"), attachment("Attached", "Visible")


class Sink:
    """Keeps spans."""

    def __init__(self):
        self.spans = []

    def export(self, span):
        self.spans.append(span)


class TracedController:
    """A controller's latency and its traces, one second between any two events."""

    def __init__(self):
        self.sink = Sink()
        self.now = 1000
        self.traces = traces.Traces(self.sink, lambda: self.now * SECOND)
        self.latency = latency.Latency(metrics.Metrics("drawbar.dev"), lambda: float(self.now), self.traces)

    def reach(self, told=True):
        """Bring the device from the allocation to the fabric's answer, and on to the claim's report."""
        steps = [
            lambda: self.latency.note_claim_change([KEY], UNUSED, ALLOCATED),
            lambda: self.latency.note_change(KEY, None, NEW),
            lambda: self.latency.note_call(KEY, ATTACH),
            lambda: self.latency.note_result(KEY, ATTACH, None),
        ]
        if told:
            steps += [
                lambda: self.latency.note_claim_report(KEY),
                lambda: self.latency.note_change(KEY, NEW, TOLD),
            ]
        for step in steps:
            step()
            self.now += 1

    @property
    def names(self):
        return [span.name for span in self.sink.spans]


@pytest.fixture
def world():
    return TracedController()


def test_an_attach_is_one_trace_with_a_span_for_each_step(world):
    world.reach()
    assert world.sink.spans == []
    world.latency.note_change(KEY, TOLD, READY)
    assert world.names == [*STEPS, "attach"]
    *steps, root = world.sink.spans
    assert (root.start_ns, root.end_ns, root.parent_id) == (1000 * SECOND, 1006 * SECOND, None)
    assert {each.parent_id for each in steps} == {root.span_id}
    assert steps[0].start_ns == root.start_ns
    assert steps[-1].end_ns == root.end_ns
    assert [b.start_ns - a.end_ns for a, b in itertools.pairwise(steps)] == [0] * (len(steps) - 1)


def test_the_nodes_span_joins_the_controllers_trace(world):
    world.reach()
    node = instrumentation.AttachmentMeter(
        instrumentation.Metrics("drawbar.dev"), lambda address: 0.5, waiting.Clock(), world.sink
    )
    node.note_change(TOLD, READY)
    world.latency.note_change(KEY, TOLD, READY)
    seen, *_, root = world.sink.spans
    assert seen.name == "recognise device"
    assert (seen.trace_id, seen.parent_id) == (root.trace_id, root.span_id)
    assert seen.end_ns - seen.start_ns == SECOND // 2
    assert seen.attributes["pci.address"] == "0000:01:00.0"


def test_a_node_that_reports_a_failure_says_so_in_its_span(world):
    node = instrumentation.AttachmentMeter(
        instrumentation.Metrics("drawbar.dev"), lambda address: None, waiting.Clock(), world.sink
    )
    failed = attachment("Attached", meta.Condition(type="Visible", status="False", reason="DeviceNotFound"))
    node.note_change(TOLD, failed)
    (seen,) = world.sink.spans
    assert seen.failure == "DeviceNotFound"


def test_a_failed_attach_ends_its_trace_with_the_reason(world):
    world.reach(told=False)
    reason = min(outcomes.FAILURES)
    world.latency.note_failure(KEY, reason)
    assert world.names == [*STEPS[:3], "attach"]
    assert world.sink.spans[-1].failure == reason


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(
            lambda latencies: latencies.note_claim_change([KEY], ALLOCATED, UNUSED), id="the claim goes"
        ),
        pytest.param(lambda latencies: latencies.clear(), id="another leads"),
    ],
)
def test_an_attach_that_nobody_awaits_any_more_has_no_trace(world, end):
    world.reach(told=False)
    end(world.latency)
    world.latency.note_change(KEY, TOLD, READY)
    assert world.sink.spans == []
    assert world.traces._open == {}


def test_a_device_that_is_handed_on_or_was_awaited_before_has_no_trace(world):
    world.latency.note_claim_change([KEY], UNUSED, ALLOCATED)
    world.latency.note_claim_report(KEY)
    world.latency.resume([KEY])
    world.latency.note_change(KEY, TOLD, READY)
    assert world.sink.spans == []
    assert world.traces._open == {}


def test_the_open_traces_are_bounded(world):
    for number in range(traces.OPEN_MAX + 10):
        world.traces.begin(names.DeviceKey(fabric="fab", device=f"gpu-{number}"))
    assert len(world.traces._open) == traces.OPEN_MAX


def test_every_step_that_is_measured_has_a_name():
    assert list(traces.NAMES) == list(metrics.STEPS_THERE)
    assert list(traces.NAMES.values()) == STEPS


def test_without_tracing_nothing_is_kept():
    kept = traces.NoTraces()
    kept.begin(KEY)
    kept.add_step(KEY, "create", 1.0)
    kept.finish(KEY)
    assert kept._open == {}
