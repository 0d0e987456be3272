"""The controller's smaller decisions: hosts, labels, claims, calls, status."""

import datetime

import msgspec
import pytest
from tests.scenes import claims as scenes

from drawbar.driver import errors as driver_errors
from drawbar.driver.api import claims, core, fabrics, meta
from drawbar.driver.controller import claims as claim_index
from drawbar.driver.controller import hosts, labels, names, outcomes, settings
from drawbar.driver.controller.attachments import calls
from drawbar.driver.controller.fabrics import status
from drawbar.fabric import contract, errors

NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
SEEN = claim_index.Seen(allocated=NOW)
DRIVER = "drawbar.dev"
FREE, USED = contract.PortState.FREE, contract.PortState.USED


def machines(*names_):
    return [core.Node(metadata=meta.ObjectMeta(name=name)) for name in names_]


def machine(name, uuid="", created=None, **metadata):
    status_ = core.NodeStatus(node_info=core.NodeInfo(system_uuid=uuid))
    object_meta = meta.ObjectMeta(name=name, creation_timestamp=created, **metadata)
    return core.Node(metadata=object_meta, status=status_)


def host(host_id, name, *states, **identifiers):
    identifiers = {key.replace("_", "-"): value for key, value in identifiers.items()}
    ports = tuple(contract.Port(id=str(number), state=state) for number, state in enumerate(states))
    return contract.Host(id=host_id, name=name, ports=ports, identifiers=identifiers)


def spec(*mappings, **more):
    mapped = tuple(fabrics.HostMapping(host=host, node=node) for host, node in mappings)
    return fabrics.FabricSpec(adapter="grpc", endpoint="unix:/x", hosts=mapped, **more)


def test_a_host_is_the_node_that_the_fabric_object_says_else_the_node_of_its_name():
    mapped = hosts.node_map(
        spec(("h1", "n9")), [host("h1", "n1"), host("h2", "n2"), host("h3", "x")], machines("n2", "n9")
    )
    assert mapped.host_of == {"n9": "h1", "n2": "h2"}
    assert mapped.problems == ()


def test_two_hosts_that_would_be_one_node_are_both_refused():
    mapped = hosts.node_map(spec(("h1", "n2")), [host("h1", "n1"), host("h2", "n2")], machines("n2"))
    assert mapped.host_of == {}
    assert "h1, h2 would all be node n2" in mapped.problems[0]


def test_a_mapping_to_a_node_that_does_not_exist_is_reported():
    mapped = hosts.node_map(spec(("h1", "n2")), [host("h1", "n1")], machines("n1"))
    assert "n2, which does not exist" in mapped.problems[0]
    claimed = hosts.node_map(
        spec(("h1", "n2")), [host("h1", "x", system_uuid="u")], [machine("n1", uuid="u")]
    )
    assert claimed.host_of == {}


@pytest.mark.parametrize(
    ("more", "node"),
    [
        ({"uuid": "4C4C4544-0039"}, "by-uuid"),
        ({"labels": {"rack/host": "h1"}}, "by-id-in-a-label"),
        ({"annotations": {"rack/host": "SN 7"}}, "by-serial-in-an-annotation"),
        ({"annotations": {"drawbar.dev/serial": " sn 7"}}, "by-serial-that-the-node-tells"),
        ({"labels": {"rack/host": "blade 7"}}, "by-name-in-a-label"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_host_is_known_by_what_identifies_its_machine(more, node):
    listed = host("h1", "blade 7", system_uuid="4c4c4544-0039", serial="SN 7")
    rules = spec(node_label="rack/host", node_annotation="rack/host")
    assert hosts.node_map(rules, [listed], [machine(node, **more), machine("other")]).host_of == {node: "h1"}


SAFE = "drawbar.node-restriction.kubernetes.io/fabric-host"


def test_what_a_kubelet_cannot_write_decides_before_what_it_can():
    listed = host("h1", "by-name", system_uuid="u")
    cluster = [
        machine("by-fabric"),
        machine("by-safe-label", labels={SAFE: "h1"}),
        machine("by-name"),
        machine("by-label", labels={"l": "h1"}),
        machine("by-uuid", uuid="U"),
    ]
    ways = (
        (spec(("h1", "by-fabric"), node_label=SAFE), "by-fabric"),
        (spec(node_label=SAFE), "by-safe-label"),
        (spec(node_label="l"), "by-name"),
    )
    for rules, node in ways:
        assert hosts.node_map(rules, [listed], cluster).host_of == {node: "h1"}
    unnamed = [entry for entry in cluster if entry.metadata.name != "by-name"]
    uuid = [entry for entry in unnamed if entry.metadata.name != "by-label"]
    assert hosts.node_map(spec(), [listed], uuid).host_of == {"by-uuid": "h1"}
    assert hosts.node_map(spec(node_label="l"), [listed], unnamed, {"h1": "by-uuid"}).host_of == {
        "by-uuid": "h1"
    }


@pytest.mark.parametrize(
    ("label", "safe"),
    [
        ("node-restriction.kubernetes.io/host", True),
        (SAFE, True),
        ("mynode-restriction.kubernetes.io/host", False),
        ("node-restriction.kubernetes.io", False),
        ("drawbar.dev/host", False),
        ("", False),
    ],
)
def test_the_labels_that_a_kubelet_may_not_write(label, safe):
    assert hosts.is_restricted(label) is safe


COPIES = {
    "system UUID": {"uuid": "U"},
    "serial": {"annotations": {hosts.SERIAL_ANNOTATION: "SN"}},
    "label": {"labels": {"l": "h1"}},
    "annotation": {"annotations": {"n": "h1"}},
    "two hosts": {"annotations": {"n": "h1"}, "labels": {"l": "h2"}},
}


@pytest.mark.parametrize("copy", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("moment", ["had it before", "was created first", "has its name"])
def test_a_node_that_copies_the_identity_of_another_never_unmaps_it_and_is_reported(copy, moment):
    held = {"h1": "first"} if moment == "had it before" else None
    listed = host("h1", "first" if moment == "has its name" else "x", system_uuid="u", serial="SN")
    times = (
        ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z") if moment == "was created first" else (None, None)
    )
    cluster = [machine("second", created=times[1], **copy), machine("first", created=times[0], uuid="u")]
    rules = spec(node_label="l", node_annotation="n")
    mapped = hosts.node_map(rules, [listed, host("h2", "y")], cluster, held)
    assert mapped.host_of.get("first") == "h1"
    assert any(
        "node second claims to be host h1, which is node first" in problem for problem in mapped.problems
    )


def test_a_node_that_claims_two_hosts_gets_none_that_another_claims():
    greedy = machine("greedy", created="2025-01-01T00:00:00Z", annotations={"n": "h1"}, labels={"l": "h2"})
    rules = spec(node_label="l", node_annotation="n")
    cluster = [greedy, machine("victim", created="2026-01-01T00:00:00Z", uuid="u")]
    mapped = hosts.node_map(rules, [host("h1", "x", system_uuid="u"), host("h2", "y")], cluster)
    assert mapped.host_of == {"victim": "h1", "greedy": "h2"}


def test_an_administrators_word_ends_the_dispute_and_cloned_machines_are_no_problem():
    clones = [machine("a", uuid="u", labels={SAFE: "h1"}), machine("b", uuid="u", labels={SAFE: "h2"})]
    listed = [host("h1", "x", system_uuid="u"), host("h2", "y", system_uuid="u")]
    for rules in (spec(("h1", "a"), ("h2", "b")), spec(node_label=SAFE)):
        mapped = hosts.node_map(rules, listed, clones)
        assert (mapped.host_of, mapped.problems) == ({"a": "h1", "b": "h2"}, ())


def test_cloned_machines_are_distinguished_by_what_is_more_explicit():
    clones = [machine("a", uuid="u", labels={"l": "h1"}), machine("b", uuid="u", labels={"l": "h2"})]
    listed = [host("h1", "x", system_uuid="u"), host("h2", "y", system_uuid="u")]
    mapped = hosts.node_map(spec(node_label="l"), listed, clones)
    assert (mapped.host_of, mapped.problems) == ({"a": "h1", "b": "h2"}, ())


def test_two_nodes_that_would_be_one_host_are_both_refused():
    twins = [machine("a", uuid="u"), machine("b", uuid="U")]
    mapped = hosts.node_map(spec(), [host("h1", "x", system_uuid="u")], twins)
    assert mapped.host_of == {}
    assert "host h1 would be nodes a, b" in mapped.problems[0]


@pytest.mark.parametrize(
    "twins",
    [
        (machine("a", labels={"l": "h1"}), machine("b", labels={"l": "h1"})),
        (machine("a", annotations={"n": "SN"}), machine("b", annotations={"n": "h1"})),
        (
            machine("a", annotations={hosts.SERIAL_ANNOTATION: "SN"}),
            machine("b", annotations={hosts.SERIAL_ANNOTATION: "sn"}),
        ),
        (machine("a", uuid="u"), machine("b", annotations={hosts.SERIAL_ANNOTATION: "SN"})),
    ],
    ids=["label", "annotation", "serial", "system UUID and serial"],
)
def test_what_two_nodes_say_of_one_host_is_refused_by_whichever_way(twins):
    rules = spec(node_label="l", node_annotation="n")
    mapped = hosts.node_map(rules, [host("h1", "x", system_uuid="u", serial="SN")], twins)
    assert mapped.host_of == {}
    assert "host h1 would be nodes a, b" in mapped.problems[0]


def test_a_node_has_room_while_a_port_is_free_or_no_ports_are_listed():
    listed = [host("h1", "n1", USED, FREE), host("h2", "n2", USED), host("h3", "n3")]
    assert hosts.node_map(spec(), listed, machines("n1", "n2", "n3")).with_room == {"n1", "n3"}


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
    return scenes.allocated(*devices, pods=pods, node="n", **changes)


def test_a_node_need_not_read_a_claim_of_plain_devices_only():
    where = names.DeviceKey(fabric="f", device="a")
    plain = claim_index.wish(claim("a", "b"), DRIVER, where, "h", SEEN).claim
    assert (plain.requests, plain.devices) == (("r",), 2)
    results = claim("a").status.allocation.devices.results
    for odd in ({"admin_access": True}, {"share_id": "s"}):
        more = msgspec.structs.replace(results[0], device="z", **odd)
        allocation = msgspec.structs.replace(
            claim("a").status.allocation, devices=claims.DeviceAllocation(results=(*results, more))
        )
        status_ = claims.ClaimStatus(allocation=allocation)
        mixed = claims.ResourceClaim(metadata=claim("a").metadata, status=status_)
        assert claim_index.wish(mixed, DRIVER, where, "h", SEEN).claim.devices == 0


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
    assert index.with_device(key("a")) == ()
    assert index.with_device(key("c")) == (second,)
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
    said = tuple(meta.Condition(type=f"{DRIVER}/{condition}", status="True") for condition in conditions)
    devices = tuple(
        claims.AllocatedDevice(driver=DRIVER, pool=result.pool, device=result.device, conditions=said)
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
    assert index.failed_with(own) == ((sibling, own) if reached else (own,))


def test_a_wish_names_node_time_and_what_was_said():
    wish = claim_index.wish(claim("a"), DRIVER, key("a"), "h1", SEEN)
    assert (wish.node, wish.host_id, wish.pool) == ("n", "h1", "f/e")
    assert wish.seen_at == NOW
    assert not wish.attached_said
    assert claim_index.wish(claim("a"), DRIVER, key("b"), "h1", SEEN) is None


def test_an_allocation_and_its_failure_count_from_when_they_were_first_seen():
    moments = [NOW + datetime.timedelta(minutes=number) for number in range(4)]
    clock = iter(moments)
    index = claim_index.Index(DRIVER, lambda: next(clock))
    first, attached = claim("a"), with_conditions(claim("a"), "attached")
    failed = with_conditions(claim("a"), "attached", "attach-failed")
    for old, new in zip((None, first, attached, failed), (first, attached, failed, failed), strict=True):
        index.change(old, new)
    assert index.seen(failed) == claim_index.Seen(allocated=moments[0], failed=moments[2])


def test_a_claim_that_was_ready_before_it_failed_may_be_in_use():
    index = claim_index.Index(DRIVER, lambda: NOW)
    index.change(None, with_conditions(claim("a"), "attached", "visible", "attach-failed"))
    assert index.seen(claim("a")).failed is None
    other = claim_index.Index(DRIVER, lambda: NOW)
    failed = with_conditions(claim("a"), "attached", "attach-failed")
    other.change(None, failed)
    # What its node says after that changes nothing.
    other.change(failed, with_conditions(claim("a"), "attached", "visible", "attach-failed"))
    assert other.seen(claim("a")).failed == NOW


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
        tracked.failed("u", ATTACH, error, 0.0)
        pauses.append(tracked.view("u", ATTACH, 0.0).retry_after_seconds)
        tracked.next_attempt("u", ATTACH)
    assert tracked.request_id("u", ATTACH) == "u-a13"
    assert pauses[:3] == [0.5, 1.0, 2.0]
    assert pauses[-1] == calls.PAUSE_MAX_SECONDS
    tracked.forget("u")
    assert tracked.request_id("u", ATTACH) == "u-a1"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (errors.FailedPrecondition("x", reason=errors.Reason.IN_USE), outcomes.IN_USE),
        (errors.ResourceExhausted("x", reason=errors.Reason.NO_FREE_PORT), outcomes.NO_FREE_PORT),
        (errors.NotFound("x"), outcomes.GONE),
        (errors.FailedPrecondition("x", reason=errors.Reason.INCOMPATIBLE), outcomes.INCOMPATIBLE),
        (errors.InvalidArgument("x"), outcomes.INCOMPATIBLE),
        (errors.FailedPrecondition("x", reason="LINK_DOWN"), "FabricError"),
        (errors.Unauthenticated("x", reason="TOKEN_EXPIRED"), outcomes.CREDENTIALS),
        (errors.PermissionDenied("x"), outcomes.CREDENTIALS),
    ],
)
def test_reasons_are_a_closed_list_and_the_words_are_the_fabrics(error, reason):
    failure = calls.failure(error)
    assert (failure.reason, failure.message) == (reason, "x")


def test_the_status_keeps_the_time_of_what_did_not_change():
    fabric = fabrics.Fabric(metadata=meta.ObjectMeta(name="f"), spec=spec())
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
    ]
    stored = fabrics.Fabric(metadata=fabric.metadata, spec=fabric.spec, status=first)
    later = NOW + datetime.timedelta(hours=1)
    assert status.status(stored, view, dropped_fields=(), attached=1, now=later) == first


def test_all_problems_of_the_settings_are_reported_at_once():
    with pytest.raises(driver_errors.UsageError) as raised:
        settings.validate(settings.Settings(driver="", binding_timeout_seconds=0))
    assert "--driver-name" in str(raised.value)
    assert "--binding-timeout" in str(raised.value)


@pytest.mark.parametrize(("timeout", "patience"), [(600.0, 570.0), (6.0, 4.5)])
def test_the_controller_gives_up_before_the_scheduler(timeout, patience):
    assert settings.Settings(binding_timeout_seconds=timeout).patience_seconds == patience
