"""What the controller counts of attaches, detaches and devices."""

import contextlib
import datetime
from pathlib import Path

import pytest
from tests.scenes import attachments as scenes
from tests.scenes import waiting

from drawbar.driver.api import attachments, claims, meta, slices
from drawbar.driver.controller import names, outcomes
from drawbar.driver.controller.attachments import calls
from drawbar.driver.controller.operation import gauges, instrumentation, latency, metrics
from drawbar.fabric import contract, errors

DOCS = Path(__file__).parents[4] / "docs"
DRIVER = "drawbar.dev"
KEY = names.DeviceKey(fabric="fab", device="gpu-0")
ATTACH, DETACH = outcomes.Side.ATTACH, outcomes.Side.DETACH
NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)


class Counted:
    """Metrics and latency, with what was counted."""

    def __init__(self):
        self.metrics = metrics.Metrics(DRIVER)
        self.latency = latency.Latency(self.metrics, waiting.Clock(step=1.0))

    def value(self, name, **labels):
        wanted = "".join(
            f'{key}="{value}",' for key, value in sorted({"driver": DRIVER, **labels}.items())
        ).rstrip(",")
        line = f"{metrics.PREFIX}{name}{{{wanted}}} "
        samples = [
            sample for sample in self.metrics.render().decode().splitlines() if sample.startswith(line)
        ]
        return float(samples[0].removeprefix(line)) if samples else None

    def steps(self):
        """Return by step how often it was counted, without the steps that never were."""
        every = (*metrics.STEPS_THERE, *metrics.STEPS_BACK)
        counts = {step: self.value("step_duration_seconds_count", step=step) for step in every}
        return {step: number for step, number in counts.items() if number}


@pytest.fixture
def counted_metrics():
    return Counted()


def attachment(*conditions, deleting=False, **spec):
    fields = {"name": KEY.attachment, "uid": "u", "device": "gpu-0"} | spec
    return scenes.attachment(*conditions, deleting=deleting and meta.timestamp(NOW), **fields)


NEW = attachment()
TOLD = attachment("Attached")
READY = attachment("Attached", "Visible")
LEAVING = attachment("Attached", "Visible", deleting=True)
RELEASED = attachment("Attached", "Visible", "Released", deleting=True)
UNUSED = claims.ResourceClaim(metadata=meta.ObjectMeta(name="c"))
ALLOCATED = claims.ResourceClaim(
    metadata=meta.ObjectMeta(name="c"), status=claims.ClaimStatus(allocation=claims.Allocation())
)


def go_there(latencies):
    latencies.note_claim_change([KEY], UNUSED, ALLOCATED)
    latencies.note_change(KEY, None, NEW)
    latencies.note_call(KEY, ATTACH)
    latencies.note_result(KEY, ATTACH, None)
    latencies.note_claim_report(KEY)
    latencies.note_change(KEY, NEW, TOLD)
    latencies.note_change(KEY, TOLD, READY)


def come_back(latencies):
    latencies.note_claim_change([KEY], ALLOCATED, UNUSED)
    latencies.note_change(KEY, READY, LEAVING)
    latencies.note_change(KEY, LEAVING, RELEASED)
    latencies.note_call(KEY, DETACH)
    latencies.note_result(KEY, DETACH, None)
    latencies.note_change(KEY, RELEASED, None)


def test_every_step_of_an_attach_and_a_detach_is_timed_once(counted_metrics):
    go_there(counted_metrics.latency)
    come_back(counted_metrics.latency)
    assert counted_metrics.steps() == dict.fromkeys((*metrics.STEPS_THERE, *metrics.STEPS_BACK), 1.0)
    assert counted_metrics.value("step_duration_seconds_sum", step="connect") == 1.0
    assert counted_metrics.value("attach_duration_seconds_sum", way="Attached") == 4.0
    assert counted_metrics.value("attaches_total", result="Attached") == 1
    assert counted_metrics.value("detaches_total", result="Released") == 1


def test_finished_measurements_are_forgotten(counted_metrics):
    go_there(counted_metrics.latency)
    come_back(counted_metrics.latency)
    assert (counted_metrics.latency._there.measured, counted_metrics.latency._back.measured) == ({}, {})


def test_the_next_claim_may_come_while_the_device_is_on_its_way_back(counted_metrics):
    latencies = counted_metrics.latency
    go_there(latencies)
    latencies.note_claim_change([KEY], ALLOCATED, UNUSED)
    latencies.note_change(KEY, READY, LEAVING)
    latencies.note_claim_change([KEY], UNUSED, ALLOCATED)
    latencies.note_change(KEY, LEAVING, RELEASED)
    latencies.note_call(KEY, DETACH)
    latencies.note_result(KEY, DETACH, None)
    latencies.note_change(KEY, RELEASED, None)
    latencies.note_change(KEY, None, NEW)
    assert counted_metrics.steps() == {
        **dict.fromkeys((*metrics.STEPS_THERE, *metrics.STEPS_BACK), 1.0),
        "create": 2.0,
    }


def test_a_device_that_is_handed_on_counts_as_reused_and_no_step_of_an_attach(counted_metrics):
    latencies = counted_metrics.latency
    latencies.note_claim_change([KEY], UNUSED, ALLOCATED)
    latencies.note_change(KEY, READY, READY)
    latencies.note_claim_report(KEY)
    assert counted_metrics.value("attaches_total", result="Reused") == 1
    assert counted_metrics.value("attach_duration_seconds_count", way="Reused") == 1
    assert counted_metrics.steps() == {}


def test_the_attach_for_a_classic_claim_is_timed_as_any_other_and_ends_with_the_allocation(counted_metrics):
    latencies = counted_metrics.latency
    latencies.begin_classic(KEY)
    latencies.note_change(KEY, None, NEW)
    latencies.note_call(KEY, ATTACH)
    latencies.note_result(KEY, ATTACH, None)
    latencies.note_change(KEY, NEW, TOLD)
    latencies.note_change(KEY, TOLD, READY)
    latencies.note_allocation(KEY)
    assert counted_metrics.steps() == dict.fromkeys(metrics.STEPS_THERE, 1.0)
    assert counted_metrics.value("attach_duration_seconds_count", way="Attached") == 1
    assert counted_metrics.value("attaches_total", result="Attached") == 1
    come_back(latencies)
    assert (latencies._there.measured, latencies._back.measured) == ({}, {})


def test_a_classic_claim_that_is_allocated_without_its_attach_being_seen_is_counted(counted_metrics):
    counted_metrics.latency.note_allocation(KEY)
    assert counted_metrics.value("attaches_total", result="Attached") == 1
    assert counted_metrics.steps() == {}


def test_an_abandoned_attempt_of_a_classic_claim_counts_as_no_attach(counted_metrics):
    latencies = counted_metrics.latency
    latencies.begin_classic(KEY)
    latencies.note_change(KEY, None, NEW)
    latencies.note_change(KEY, NEW, attachment(deleting=True))
    assert latencies._there.measured == {}
    assert counted_metrics.value("attaches_total", result="Attached") == 0


def test_a_call_that_is_repeated_is_timed_from_the_first(counted_metrics):
    latencies = counted_metrics.latency
    latencies.note_claim_change([KEY], UNUSED, ALLOCATED)
    latencies.note_change(KEY, None, NEW)
    latencies.note_call(KEY, ATTACH)
    latencies.note_result(KEY, ATTACH, "NoFreePort")
    latencies.note_call(KEY, ATTACH)
    latencies.note_result(KEY, ATTACH, None)
    assert counted_metrics.value("failed_operations_total", operation="attach", reason="NoFreePort") == 1
    assert counted_metrics.value("step_duration_seconds_sum", step="connect") == 2.0


def test_operations_of_a_previous_process_are_counted_and_not_timed(counted_metrics):
    latencies = counted_metrics.latency
    latencies.note_call(KEY, ATTACH)
    latencies.note_claim_report(KEY)
    latencies.note_change(KEY, LEAVING, RELEASED)
    latencies.note_change(KEY, RELEASED, None)
    assert counted_metrics.steps() == {}
    assert counted_metrics.value("attaches_total", result="Attached") == 1
    assert counted_metrics.value("detaches_total", result="Released") == 1


def test_a_new_term_begins_with_nothing_under_way(counted_metrics):
    latencies = counted_metrics.latency
    latencies.note_claim_change([KEY], UNUSED, ALLOCATED)
    latencies.note_change(KEY, READY, LEAVING)
    latencies.clear()
    latencies.note_change(KEY, None, NEW)
    latencies.note_change(KEY, LEAVING, RELEASED)
    assert counted_metrics.steps() == {}


def test_one_who_waited_before_is_waited_for_and_not_timed(counted_metrics):
    latencies = counted_metrics.latency
    latencies.resume([KEY])
    assert latencies.list_waiting(0.0) == (KEY,)
    assert latencies.list_waiting(1000.0) == ()
    latencies.note_change(KEY, None, NEW)
    latencies.note_call(KEY, ATTACH)
    latencies.note_result(KEY, ATTACH, None)
    assert latencies.list_waiting(0.0) == ()
    latencies.note_claim_report(KEY)
    assert counted_metrics.steps() == {"ask": 1.0, "connect": 1.0, "tell": 1.0}
    assert counted_metrics.value("attach_duration_seconds_count", way="Attached") == 0


def test_a_failure_is_counted_by_its_reason_and_one_of_no_list_as_other(counted_metrics):
    for reason in ("FabricError", "DeviceNotFound", "made\nup"):
        counted_metrics.latency.note_claim_change([KEY], UNUSED, ALLOCATED)
        counted_metrics.latency.note_failure(KEY, reason)
    counts = {result: counted_metrics.value("attaches_total", result=result) for result in outcomes.FAILURES}
    assert {result for result, number in counts.items() if number} == {"FabricError", "DeviceNotFound"}
    assert counted_metrics.value("attaches_total", result="Other") == 1
    assert counted_metrics.latency._there.measured == {}


FORCED = attachment(deleting=True)
FORCED = attachments.DeviceAttachment(
    metadata=meta.ObjectMeta(name="f.d", annotations={attachments.FORCE_ANNOTATION: "true"}), spec=FORCED.spec
)


@pytest.mark.parametrize(
    ("last", "result"),
    [(RELEASED, "Released"), (FORCED, "Forced"), (LEAVING, "NodeGone")],
    ids=["released", "forced", "node gone"],
)
def test_a_detach_is_counted_by_its_reason(counted_metrics, last, result):
    counted_metrics.latency.note_change(KEY, last, None)
    assert counted_metrics.value("detaches_total", result=result) == 1


def operation(**changes):
    return contract.Operation(id="o", request_id="r", kind=contract.OperationKind.ATTACH, **changes)


def test_each_call_is_reported_once_however_often_the_fabric_reports_it():
    reported = []
    tracked = calls.Calls(lambda *reports: reported.append(reports))
    failed = operation(done=True, error=contract.OperationError.from_error(errors.Unavailable("x")))
    tracked.settle("u", ATTACH, operation(done=False), 0.0)
    tracked.settle("u", ATTACH, failed, 1.0)
    tracked.settle("u", ATTACH, failed, 2.0)
    tracked.next_attempt("u", ATTACH)
    tracked.settle("u", ATTACH, operation(done=True), 3.0)
    tracked.settle("u", ATTACH, operation(done=True), 4.0)
    assert reported == [("u", ATTACH, "FabricError"), ("u", ATTACH, None)]


class Adapter:
    """An adapter of which a call fails with the error that it was given."""

    def __init__(self, error=None):
        self.error = error

    def validate(self, config):
        pass

    async def connect(self, config):
        return self

    async def capabilities(self):
        if self.error is not None:
            raise self.error
        return contract.Capabilities()


@pytest.mark.parametrize(
    ("error", "code"),
    [(None, "OK"), (errors.Unavailable("x"), "UNAVAILABLE"), (RuntimeError("defect"), "UNFINISHED")],
    ids=["answered", "refused", "defect"],
)
async def test_a_call_to_a_fabric_is_timed_and_counted_by_its_end(counted_metrics, error, code):
    timed = instrumentation.TimedClass(Adapter(error), counted_metrics.metrics, waiting.Clock(step=1.0))
    adapter = await timed.connect(contract.AdapterConfig(name="fab", endpoint="e"))
    with contextlib.suppress(errors.FabricError, RuntimeError):
        await adapter.capabilities()
    assert counted_metrics.value("fabric_calls_total", fabric="fab", call="capabilities", code=code) == 1
    labels = {"fabric": "fab", "call": "capabilities"}
    assert counted_metrics.value("fabric_call_duration_seconds_sum", **labels) == 1.0
    counted_metrics.metrics.forget_fabric("fab")
    assert "fab" not in counted_metrics.metrics.render().decode().replace("fabric", "")


def make_slice(*devices):
    pool = slices.Pool(name="fab/p", generation=1, resource_slice_count=1)
    entries = tuple(
        slices.Device(
            name=name,
            taints=tuple(
                slices.Taint(key=f"d/{key}", value=value, effect=effect) for key, value, effect in taints
            ),
        )
        for name, *taints in devices
    )
    return slices.ResourceSlice(
        metadata=meta.ObjectMeta(name="s"), spec=slices.SliceSpec(driver="d", pool=pool, devices=entries)
    )


def test_every_device_is_in_exactly_one_state():
    offered = gauges.offer(
        "d",
        [
            make_slice(
                ("free",),
                ("warned", ("fabric-health", "warning", "None")),
                ("ours", ("node-unhealthy", "", "NoSchedule")),
                ("by-hand", ("in-use", "manual", "NoSchedule")),
                ("theirs", ("in-use", "", "NoSchedule")),
                ("failed", ("attach-failed", "FabricError", "NoSchedule")),
            )
        ],
    )
    listed = {"free", "warned", "ours", "by-hand", "theirs", "failed", "hidden"}
    counts = gauges.devices(offered, listed, {"ours", "by-hand", "gone"})
    assert counts == {"free": 2, "attached": 3, "tainted": 1, "foreign": 1, "withdrawn": 1}


def test_the_oldest_on_their_way_are_those_that_are_not_there_yet():
    early, late = (meta.timestamp(NOW - datetime.timedelta(seconds=seconds)) for seconds in (60, 5))
    listed = [
        attachment(allocation_timestamp=late),
        attachment("Attached", allocation_timestamp=early),
        attachment(deleting=True),
    ]
    assert gauges.oldest(listed, NOW) == {"attach": 5.0, "detach": 0.0}
    assert gauges.oldest(listed, NOW + datetime.timedelta(seconds=7))["detach"] == 7.0
    assert gauges.oldest([], NOW) == {"attach": 0.0, "detach": 0.0}


def test_phases_are_a_closed_list():
    counts = gauges.phases([NEW, READY, LEAVING, RELEASED])
    assert {phase: number for phase, number in counts.items() if number} == {
        "Pending": 2,
        "Releasing": 1,
        "Released": 1,
    }


def device(name, model="H100", device_class=contract.DeviceClass.GPU):
    return contract.Device(id=name, device_class=device_class, model=model)


def test_devices_are_counted_by_class_and_model():
    offered = gauges.offer("d", [make_slice(("g-0",), ("g-1",), ("n-0",))])
    listed = [
        device("g-0"),
        device("g-1"),
        device("hidden"),
        device("n-0", model="PM1733", device_class=contract.DeviceClass.NVME),
    ]
    assert gauges.models(offered, listed, {"g-1"}) == {
        ("gpu", "H100", "free"): 1,
        ("gpu", "H100", "attached"): 1,
        ("gpu", "H100", "withdrawn"): 1,
        ("nvme", "PM1733", "free"): 1,
    }


def test_a_manager_that_invents_models_makes_no_more_series_than_the_bound():
    listed = [device(f"g-{number}", model=f"m{number}") for number in range(3 * gauges.MODELS_MAX)]
    counts = gauges.models(gauges.offer("d", []), listed, set())
    assert len(counts) == gauges.MODELS_MAX + 1
    assert counts["gpu", gauges.OTHER, "withdrawn"] == 2 * gauges.MODELS_MAX
    assert counts.total() == len(listed)


def waiting_attachment(uid, namespace, *conditions, deleting=False):
    claim = attachments.ClaimReference(namespace=namespace, name=uid, uid=uid)
    return attachment(*conditions, deleting=deleting, claim=claim)


def test_a_claim_waits_until_its_node_sees_all_its_devices():
    listed = [
        waiting_attachment("c1", "team-a"),
        waiting_attachment("c1", "team-a", "Attached"),
        waiting_attachment("c2", "team-a", "Attached"),
        waiting_attachment("c3", "team-b", "Attached", "Visible"),
        waiting_attachment("c4", "team-b", deleting=True),
        NEW,
    ]
    assert gauges.waiting_claims(listed) == {"team-a": 2.0}
    many = [waiting_attachment(f"c{n}", f"team-{n}") for n in range(gauges.NAMESPACES_MAX + 5)]
    counts = gauges.waiting_claims(many)
    assert len(counts) == gauges.NAMESPACES_MAX + 1
    assert counts[gauges.OTHER] == 5.0
