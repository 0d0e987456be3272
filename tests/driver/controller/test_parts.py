"""The controller's smaller decisions: hosts, labels, claims, calls, status."""

import datetime
import math

import msgspec
import pytest
from tests.scenes import claims as scenes

from drawbar.driver import errors as driver_errors
from drawbar.driver.api import claims, core, fabrics, meta
from drawbar.driver.catalogue import reasons
from drawbar.driver.configuration import loader
from drawbar.driver.controller import claims as claim_index
from drawbar.driver.controller import hosts, labels, names, outcomes, settings
from drawbar.driver.controller.attachments import calls
from drawbar.driver.controller.attachments.plans import steps
from drawbar.driver.controller.fabrics import status
from drawbar.fabric import contract, errors

NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
SEEN = claim_index.FirstSeen(allocated=NOW)
DRIVER = "drawbar.dev"
FREE, USED = contract.PortState.FREE, contract.PortState.USED


def node(name, **fields):
    return core.Node(metadata=meta.ObjectMeta(name=name, labels=fields.get("labels", {})))


@pytest.mark.parametrize(
    ("node_labels", "reached", "changes"),
    [
        ({}, {"f": {"n"}}, {"fabric.drawbar.dev/f": "true"}),
        ({"fabric.drawbar.dev/f": "true"}, {"f": {"n"}}, None),
        ({"fabric.drawbar.dev/f": "true"}, {"f": set()}, {"fabric.drawbar.dev/f": None}),
        ({"fabric.drawbar.dev/f": "true"}, {"f": None}, None),
        ({"fabric.drawbar.dev/old": "true", "other": "x"}, {}, {"fabric.drawbar.dev/old": None}),
        ({"fabric.drawbar.dev/f": "other"}, {"f": {"n"}}, None),
        ({"fabric.drawbar.dev/f": "other"}, {"f": set()}, None),
    ],
    ids=[
        "gains",
        "keeps",
        "loses",
        "the fabric was never listed",
        "left over",
        "another's",
        "another's, not reached",
    ],
)
def test_node_labels(node_labels, reached, changes):
    planned = labels.plan([node("n", labels=node_labels)], reached)
    assert planned == (() if changes is None else (labels.Change(node="n", labels=changes),))


def test_a_host_whose_label_is_another_drivers_is_reported():
    nodes = [
        node("n", labels={"fabric.drawbar.dev/f": "other"}),
        node("m", labels={"fabric.drawbar.dev/f": "true"}),
    ]
    (problem,) = labels.foreign([*nodes, node("new")], "f")
    assert problem.endswith("take it off: kubectl label node n fabric.drawbar.dev/f-")


def claim(*devices, pods=("p",), **changes):
    return scenes.make_allocated_claim(*devices, pods=pods, node="n", **changes)


def test_a_node_need_not_read_a_claim_of_plain_devices_only():
    where = names.DeviceKey(fabric="f", device="a")
    plain = claim_index.demand(claim("a", "b"), DRIVER, where, "h", SEEN).claim
    assert (plain.requests, plain.devices) == (("r",), 2)
    results = claim("a").status.allocation.devices.results
    for odd in ({"admin_access": True}, {"share_id": "s"}):
        more = msgspec.structs.replace(results[0], device="z", **odd)
        allocation = msgspec.structs.replace(
            claim("a").status.allocation, devices=claims.DeviceAllocation(results=(*results, more))
        )
        status_ = claims.ClaimStatus(allocation=allocation)
        mixed = claims.ResourceClaim(metadata=claim("a").metadata, status=status_)
        assert claim_index.demand(mixed, DRIVER, where, "h", SEEN).claim.devices == 0


def key(device):
    return names.DeviceKey(fabric="f", device=device)


def test_the_index_follows_claims_and_gives_the_devices_concerned():
    index = claim_index.Index(DRIVER, lambda: NOW)
    first, second = claim("a", "b"), claim("b", "c")
    had, has = index.change(None, first)
    assert (had, set(has)) == ({}, {key("a"), key("b")})
    assert index.pools("f") == {"a": "f/e", "b": "f/e"}
    had, has = index.change(first, second)
    assert (set(had), set(has)) == ({key("a"), key("b")}, {key("b"), key("c")})
    assert (index.pools("f"), index.pools("g")) == ({"b": "f/e", "c": "f/e"}, {})
    assert index.find_claims(key("a")) == ()
    assert index.find_claims(key("c")) == (second,)
    had, has = index.change(second, None)
    assert (set(had), has) == ({key("b"), key("c")}, {})
    assert (list(index.devices()), index.pools("f")) == ([], {})


@pytest.mark.parametrize(
    "changes", [{"binding": False}, {"admin_access": True}], ids=["a node's own", "admin access"]
)
def test_devices_that_need_no_attach_are_not_the_controllers(changes):
    index = claim_index.Index(DRIVER, lambda: NOW)
    assert index.change(None, claim("a", **changes)) == ({}, {})


def with_conditions(claim, *conditions):
    reports = tuple(meta.Condition(type=f"{DRIVER}/{condition}", status="True") for condition in conditions)
    devices = tuple(
        claims.AllocatedDevice(driver=DRIVER, pool=result.pool, device=result.device, conditions=reports)
        for result in claim.results(DRIVER)
    )
    return msgspec.structs.replace(claim, status=msgspec.structs.replace(claim.status, devices=devices))


@pytest.mark.parametrize(
    ("conditions", "reached"), [((), True), (("attached",), True), (("attached", "visible"), False)]
)
def test_a_failure_reaches_all_claims_of_the_pod_that_are_not_ready_with_its_own_last(conditions, reached):
    index = claim_index.Index(DRIVER, lambda: NOW)
    own, stranger = claim("a"), claim("c", name="x", pods=("q",))
    sibling = with_conditions(claim("b", name="s"), *conditions)
    for listed in (own, sibling, stranger):
        index.change(None, listed)
    assert index.find_affected_claims(own) == ((sibling, own) if reached else (own,))


def test_a_demand_names_node_time_and_the_reports():
    demand = claim_index.demand(claim("a"), DRIVER, key("a"), "h1", SEEN)
    assert (demand.node, demand.host_id, demand.pool) == ("n", "h1", "f/e")
    assert demand.seen_at == NOW
    assert not demand.attach_reported
    assert claim_index.demand(claim("a"), DRIVER, key("b"), "h1", SEEN) is None


def test_an_allocation_and_its_failure_count_from_when_they_were_first_seen():
    moments = [NOW + datetime.timedelta(minutes=number) for number in range(4)]
    clock = iter(moments)
    index = claim_index.Index(DRIVER, lambda: next(clock))
    first, attached = claim("a"), with_conditions(claim("a"), "attached")
    failed = with_conditions(claim("a"), "attached", "attach-failed")
    for old, new in zip((None, first, attached, failed), (first, attached, failed, failed), strict=True):
        index.change(old, new)
    assert index.find_first_seen(failed) == claim_index.FirstSeen(allocated=moments[0], failed=moments[2])


def test_a_claim_that_was_ready_before_it_failed_may_be_in_use():
    index = claim_index.Index(DRIVER, lambda: NOW)
    index.change(None, with_conditions(claim("a"), "attached", "visible", "attach-failed"))
    assert index.find_first_seen(claim("a")).failed is None
    other = claim_index.Index(DRIVER, lambda: NOW)
    failed = with_conditions(claim("a"), "attached", "attach-failed")
    other.change(None, failed)
    # What its node says after that changes nothing.
    other.change(failed, with_conditions(claim("a"), "attached", "visible", "attach-failed"))
    assert other.find_first_seen(claim("a")).failed == NOW


ATTACH = outcomes.Side.ATTACH


def operation(**changes):
    fields = {"id": "o", "request_id": "u-a1", "kind": contract.OperationKind.ATTACH, "done": False}
    return contract.Operation(**(fields | changes))


def test_a_running_call_is_asked_again_after_its_pause():
    tracked = calls.Calls()
    tracked.settle("u", ATTACH, operation(retry_after_seconds=2.0), 10.0)
    assert tracked.view("u", ATTACH, 11.0).state == "running"
    assert tracked.view("u", ATTACH, 11.0).retry_after_seconds == 1.0
    again = tracked.view("u", ATTACH, 12.0)
    assert (again.state, again.age_seconds) == ("unasked", 2.0), "and it is known that it ran"


@pytest.mark.parametrize("pause", [86_400.0, math.inf])
def test_a_running_call_is_asked_again_after_a_minute_however_long_its_pause(pause):
    tracked = calls.Calls()
    tracked.settle("u", ATTACH, operation(retry_after_seconds=pause), 10.0)
    assert tracked.view("u", ATTACH, 11.0).retry_after_seconds == steps.PAUSE_MAX_SECONDS - 1.0
    assert tracked.view("u", ATTACH, 10.0 + steps.PAUSE_MAX_SECONDS).state == "unasked"


def test_the_news_of_a_watched_call_is_waited_for_once():
    tracked = calls.Calls()
    done = operation(done=True)
    tracked.settle("u", ATTACH, done, 10.0, watched=True)
    tracked.settle("u", ATTACH, done, 11.5, watched=True)
    view = tracked.view("u", ATTACH, 11.9)
    assert (view.state, view.due) == ("succeeded", False)
    assert tracked.view("u", ATTACH, 12.0).due


def test_a_call_that_failed_does_not_run_again_because_older_news_come_later():
    reported = []
    tracked = calls.Calls(lambda *what: reported.append(what))
    failed = operation(done=True, error=errors.Unavailable("no link"))
    for news in (failed, operation(), failed):
        tracked.settle("u", ATTACH, news, 10.0, watched=True)
        assert tracked.view("u", ATTACH, 10.0).state == "failed"
    assert reported == [("u", ATTACH, "FabricError")], "once"


def test_without_a_watch_there_is_no_news_to_wait_for():
    tracked = calls.Calls()
    tracked.settle("u", ATTACH, operation(done=True), 10.0)
    assert tracked.view("u", ATTACH, 10.0).due


def test_a_new_attempt_has_a_new_id_and_a_longer_pause():
    tracked = calls.Calls()
    error = errors.Aborted("busy")
    pauses = []
    for _ in range(12):
        tracked.note_failure("u", ATTACH, error, 0.0)
        pauses.append(tracked.view("u", ATTACH, 0.0).retry_after_seconds)
        tracked.next_attempt("u", ATTACH)
    assert tracked.request_id("u", ATTACH) == "u-a13"
    assert pauses[:3] == [0.5, 1.0, 2.0]
    assert pauses[-1] == steps.PAUSE_MAX_SECONDS
    tracked.forget("u")
    assert tracked.request_id("u", ATTACH) == "u-a1"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (errors.FailedPrecondition("x", reason=errors.Reason.IN_USE), reasons.DEVICE_IN_USE),
        (errors.ResourceExhausted("x", reason=errors.Reason.NO_FREE_PORT), reasons.NO_FREE_PORT),
        (errors.NotFound("x"), reasons.DEVICE_GONE),
        (errors.FailedPrecondition("x", reason=errors.Reason.INCOMPATIBLE), reasons.DEVICE_INCOMPATIBLE),
        (errors.InvalidArgument("x"), reasons.DEVICE_INCOMPATIBLE),
        (errors.FailedPrecondition("x", reason="LINK_DOWN"), "FabricError"),
        (errors.Unauthenticated("x", reason="TOKEN_EXPIRED"), reasons.FABRIC_CREDENTIALS_REFUSED),
        (errors.PermissionDenied("x"), reasons.FABRIC_CREDENTIALS_REFUSED),
    ],
)
def test_reasons_are_a_closed_list_and_the_words_are_the_fabrics(error, reason):
    failure = calls.failure(error)
    assert (failure.reason, failure.message) == (reason, "x")


def test_unchanged_conditions_keep_their_time():
    fabric = fabrics.Fabric(
        metadata=meta.ObjectMeta(name="f"), spec=fabrics.FabricSpec(adapter="grpc", endpoint="unix:/x")
    )
    view = status.View(
        connection=status.Connection(connected=True, reason="Connected", message="m"),
        nodes=hosts.NodeMap(host_of={"n": "h"}),
        devices=2,
        hosts=1,
        unpublished="",
    )
    first = status.status(fabric, view, dropped_fields=(), attached=1, now=NOW)
    assert [(condition.type, condition.status) for condition in first.conditions] == [
        ("Connected", "True"),
        ("Degraded", "False"),
        ("FeaturesDropped", "False"),
        ("Writable", "True"),
        ("HostsMapped", "True"),
        ("Published", "True"),
        ("Ready", "True"),
    ]
    stored = fabrics.Fabric(metadata=fabric.metadata, spec=fabric.spec, status=first)
    later = NOW + datetime.timedelta(hours=1)
    assert status.status(stored, view, dropped_fields=(), attached=1, now=later) == first


def test_all_problems_of_the_settings_are_reported_at_once():
    with pytest.raises(driver_errors.UsageError) as raised:
        loader.refuse(settings.problems(settings.Settings(driver="", binding_timeout_seconds=0)))
    assert "--driver-name" in str(raised.value)
    assert "--binding-timeout" in str(raised.value)


@pytest.mark.parametrize(("timeout", "patience"), [(600.0, 570.0), (6.0, 4.5)])
def test_the_controller_gives_up_before_the_scheduler(timeout, patience):
    assert settings.Settings(binding_timeout_seconds=timeout).patience_seconds == patience
