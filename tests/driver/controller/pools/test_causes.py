"""What a taint says of its cause, where the API server has room for that, and that it stays silent where not."""

import json
import typing

import msgspec
import pytest
from tests.scenes import attachments as scenes
from tests.scenes import maintenances
from tests.scenes.pools import HOUR, NOW, device, make_fabric_state

from drawbar.driver.api import attachments, slices
from drawbar.driver.controller.pools import causes, desired, fabric_state
from drawbar.driver.slices import encoding, pool_writes
from drawbar.fabric import contract

DRIVER = "drawbar.dev"
USER = "system:serviceaccount:drawbar:drawbar-controller"
WORDS = {"node": "node-1", "host": "h1", "message": "port down", "failures": 3}
LIVE = {
    "name": "nvme-not-live",
    "value": "resetting",
    "effect": "NoSchedule",
    "message": "nvme0 is resetting",
}
SOURCES = {
    "attach-failed": (causes.AttachFailed, {"reason": "LinkDown"}),
    "device-lost": (causes.Lost, {}),
    "device-lost-by-the-fabric": (causes.Lost, {"listed": False}),
    "in-use": (causes.InUse, {}),
    "in-use=manual": (causes.HeldByHand, {}),
    "cleaning": (causes.NotReleased, {"reason": "Cleaning"}),
    "not-cleaned": (causes.NotReleased, {"reason": "NotCleaned"}),
    "in-use=releasing": (causes.NotReleased, {}),
    "in-use=releasing-for-a-reason": (causes.NotReleased, {"reason": "InUse"}),
    "fabric-health=critical": (causes.FabricHealth, {"health": "critical"}),
    "fabric-health=warning": (causes.FabricHealth, {"health": "warning"}),
    "node-unhealthy": (causes.Unhealthy, {}),
    "nvme-not-live=resetting": (causes.Finding, LIVE),
    "a-finding-without-words": (causes.Finding, {"name": "link-slow", "value": "", "effect": "NoSchedule"}),
    "fabric-unreachable": (causes.Unreachable, {}),
    "maintenance": (causes.Maintenance, {}),
    "wear-limited": (causes.WearLimited, {"erasures": 50}),
    "reserved": (causes.Reserved, {}),
    "not-offered": (causes.NotOffered, {}),
}


def make_cause(source, words=WORDS):
    """Return the cause, with all the words that it has a place for."""
    kind, facts = SOURCES[source]
    fields = kind.__struct_fields__
    return kind(**{name: word for name, word in words.items() if name in fields} | facts)


def only(*reported, fabric="f", old=()):
    probation = causes.Probation(length=HOUR, since=NOW)
    (taint,) = causes.make_taints(
        DRIVER, reported, old, NOW, NOW, fabric=fabric, probation=probation, evictions_per_second=25
    )
    return taint


def test_every_cause_is_one_of_these():
    assert {kind for kind, _ in SOURCES.values()} == set(typing.get_args(causes.Cause))


@pytest.mark.parametrize("words", [WORDS, {}], ids=["known", "unknown"])
@pytest.mark.parametrize("source", SOURCES)
def test_every_taint_has_one_sentence_with_problem_and_remedy(source, words):
    taint = only(make_cause(source, words))
    assert taint.description.count(". ") == 0
    assert taint.description.endswith(".")
    assert "; lifted " in taint.description or "; it is withdrawn when " in taint.description
    assert taint.data["source"] in ("fabric", "node", "controller", "operator")
    assert all(taint.data.values())


@pytest.mark.parametrize("source", SOURCES)
def test_foreign_text_is_cut_to_whole_characters(source):
    long = "ä" * 9000
    taint = only(make_cause(source, dict.fromkeys(("node", "host", "message"), long)), fabric=long)
    assert len(taint.description.encode()) <= 1024
    assert all(len(str(value).encode()) <= 256 for value in taint.data.values())
    assert "�" not in taint.description


def test_a_failed_attach_names_who_noticed_how_often_and_for_how_long():
    assert only(make_cause("attach-failed")).data == {
        "source": "controller",
        "node": "node-1",
        "reason": "LinkDown",
        "message": "port down",
        "failures": 3,
        "probationSeconds": 3600,
    }
    by_node = causes.AttachFailed(reason="DeviceNotFound", by_node=True)
    assert only(by_node).data["source"] == "node"


def test_a_finding_names_the_node_and_the_problem():
    reports = only(make_cause("nvme-not-live=resetting"))
    assert reports.description.startswith("Node node-1 found nvme-not-live: nvme0 is resetting; lifted when")
    assert reports.data == {
        "source": "node",
        "node": "node-1",
        "reason": "nvme-not-live",
        "message": "nvme0 is resetting",
    }


@pytest.mark.parametrize("form", [encoding.Encoding.PER_DEVICE, encoding.Encoding.TAINT_SLICE])
def test_an_api_server_that_does_not_know_the_effect_none_is_sent_no_such_taint(form):
    informs, acts = only(make_cause("fabric-health=warning")), only(make_cause("maintenance"))
    shown = slices.Device(name="a", taints=(acts, informs))
    for supported, expected in ((True, {acts.key, informs.key}), (False, {acts.key})):
        content = encoding.encode(form, [shown], (), informs=supported)
        sent = [*content.devices[0].taints, *(entry.taint for entry in content.taints or ())]
        assert {taint.key for taint in sent} == expected


def test_a_past_failure_keeps_its_report():
    reports = only(make_cause("attach-failed"))
    assert only(old=(reports,)) == reports


def test_only_evicting_taints_have_a_rate():
    rates = {name: only(make_cause(name)).evictions_per_second for name in SOURCES}
    assert {name for name, rate in rates.items() if rate} == {"device-lost", "device-lost-by-the-fabric"}


@pytest.mark.parametrize("details", [(), ("data",), encoding.DETAILS])
@pytest.mark.parametrize("form", [encoding.Encoding.PER_DEVICE, encoding.Encoding.TAINT_SLICE])
def test_only_the_details_that_are_kept_are_sent(form, details):
    shown = slices.Device(name="a", taints=(only(make_cause("device-lost")),))
    content = encoding.encode(form, [shown], details)
    (sent,) = [*content.devices[0].taints, *(entry.taint for entry in content.taints or ())]
    written_by_cause = {
        "description": bool(sent.description),
        "data": bool(sent.data),
        "evictionsPerSecond": bool(sent.evictions_per_second),
    }
    assert {name for name, is_written in written_by_cause.items() if is_written} == set(details)
    assert sent.identity == shown.taints[0].identity


@pytest.mark.parametrize("details", [frozenset(), encoding.DETAILS], ids=["silent", "explained"])
@pytest.mark.parametrize("form", [encoding.Encoding.PER_DEVICE, encoding.Encoding.TAINT_SLICE])
def test_an_existing_explanation_is_not_written_again(form, details):
    facts = {
        "ours": {"a"},
        "reported": {"a": (make_cause("device-lost"), make_cause("attach-failed"))},
        "form": form,
        "details": details,
        "evictions_per_second": 5,
    }
    listed = device("a", "")
    first = desired.plan(make_fabric_state(listed, **facts), NOW)
    bodies = [json.dumps(slices.document(action.slice)) for action in first]
    stored = tuple(msgspec.json.decode(body, type=slices.ResourceSlice) for body in bodies)
    assert any("description" in body for body in bodies) == bool(details)
    assert desired.plan(make_fabric_state(listed, **facts, published=stored), NOW + HOUR) == ()


def explain_taints(attachments_, *listed, published=(), overdue=(), failures=None):
    """Return the explanation of each taint by the device's name, as the plan of the pools has it."""
    fabric = make_fabric_state().facts.fabric
    kept = encoding.Kept(dropped=(), form=encoding.Encoding.PER_DEVICE, details=encoding.DETAILS)
    fabric_facts = fabric_state.Facts(fabric=fabric, devices=listed, failures=failures or {})
    facts = fabric_state.observe(
        DRIVER, fabric_facts, attachments_, published, kept, date=NOW, overdue=overdue
    )
    actions = [
        action
        for action in desired.plan(facts, NOW)
        if isinstance(action, pool_writes.Create | pool_writes.Replace)
    ]
    taints_by_device = {
        device.name: {taint.key.removeprefix(f"{DRIVER}/"): taint for taint in device.taints}
        for action in actions
        for device in action.slice.spec.devices
    }
    return taints_by_device, tuple(action.slice for action in actions)


def make_device(name, host=""):
    return device(name, "", connection=contract.Connection(host_id=host) if host else None)


def test_missing_explanations_come_from_the_listing_and_earlier_failures():
    claim = attachments.ClaimReference(namespace="default", name="c1", uid="u")
    error = attachments.Failure(reason="FabricError", message="port down")
    by_hand = scenes.attachment(fabric="f", device="a", node_name="node-1", claim=None)
    failed = scenes.attachment(fabric="f", device="b", node_name="node-1", claim=claim, error=error)
    late = scenes.attachment(fabric="f", device="c", node_name="node-1", claim=claim)
    devices = (make_device("a", "h9"), make_device("b"), make_device("c"), make_device("d"))
    explanations, _ = explain_taints([by_hand, failed, late], *devices, overdue={"c", "d"}, failures={"b": 3})
    assert explanations["a"]["in-use"].data == {"source": "operator", "node": "node-1", "host": "h9"}
    assert explanations["b"]["attach-failed"].data["failures"] == 3
    assert explanations["b"]["attach-failed"].data["message"] == "port down"
    assert explanations["c"]["in-use"].description.startswith("Its release from node node-1 takes long;")
    assert explanations["d"]["in-use"].value == "releasing", "though its attachment is gone"


def test_a_loss_says_whether_the_fabric_manager_still_has_the_device():
    claim = attachments.ClaimReference(namespace="default", name="c1", uid="u")
    owned = scenes.attachment(fabric="f", device="a", node_name="node-1", claim=claim)
    _, published = explain_taints([owned], make_device("a"), make_device("b"))
    explanations, _ = explain_taints([owned], make_device("b"), published=published)
    assert explanations["a"]["device-lost"].description.startswith("Its fabric manager no longer lists it")
    assert explanations["a"]["device-lost"].data == {"source": "fabric", "node": "node-1"}
    facts = {"reported": {"a": (causes.Lost(node="node-1", message="link is down"),)}, "ours": {"a"}}
    (action,) = desired.plan(
        make_fabric_state(make_device("b"), published=published, details=encoding.DETAILS, **facts), NOW
    )
    taints = next(device.taints for device in action.slice.spec.devices if device.name == "a")
    assert [taint.data for taint in taints] == [{"source": "fabric", "node": "node-1"}]


async def by_key(cluster, device):
    """Return the device's taints by key, as the API server has them."""
    return {taint["key"]: taint for taint in await cluster.taints(device) or ()}


@pytest.mark.parametrize("profile", ["1.36", "1.37", "kep-5055"])
async def test_taints_explain_themselves_where_the_api_server_has_the_fields(
    controller_world, until, profile
):
    fails = [{"device": "disk-0", "message": "port 3 is down"}]
    async with controller_world(profile, attachFails=fails) as cluster:
        cluster.start()
        await cluster.make_fabric(policy={"evictionsPerSecond": 25})
        # Where taints have slices of their own, the second comes a moment after the first.
        slices_of_pool = 2 if profile == "kep-5055" else 1
        await until(cluster.slices, lambda value: len(value) == slices_of_pool)
        cluster.server.writes.clear()
        await cluster.allocate("gpu-0", name="c1", pod="c1")
        await cluster.wait_until_attached("gpu-0", "c1")
        await cluster.node_says("fab.gpu-0", attachments.VISIBLE)
        await cluster.node_says("fab.gpu-0", attachments.VISIBLE, status="False", reason="DeviceLost")
        # Else one write may tell of this and of the next.
        await until(lambda: by_key(cluster, "gpu-0"), lambda taints: "device-lost" in taints)
        await cluster.allocate("disk-0", name="c2", pod="c2")
        await cluster.wait_until_failed("disk-0", "c2")
        await maintenances.begin(cluster.api, devices=["GPU/1"])
        (other,) = {
            device["name"] for spec in await cluster.slices() for device in spec.get("devices", ())
        } - {
            "gpu-0",
            "disk-0",
        }
        kept = await until(lambda: by_key(cluster, other), bool)
        lost, failed = await by_key(cluster, "gpu-0"), await by_key(cluster, "disk-0")
        every = [*lost.values(), *failed.values(), *kept.values()]
        if profile != "kep-5055":
            assert all(set(taint) <= {"key", "value", "effect", "timeAdded"} for taint in every)
        else:
            assert lost["device-lost"]["evictionsPerSecond"] == 25
            assert lost["device-lost"]["description"].startswith("Node node-1 lost it while a claim has it;")
            words = failed["attach-failed"]["data"]
            assert (words["reason"], words["node"], words["source"]) == (
                "FabricError",
                "node-1",
                "controller",
            )
            assert "port 3 is down" in words["message"]
            assert words["failures"] == 1
            assert kept["maintenance"]["data"] == {"source": "operator", "fabric": "fab"}
            assert [taint["key"] for taint in every if "evictionsPerSecond" in taint] == ["device-lost"]
        # One for each of the three: nothing is reported twice or added later.
        assert cluster.server.writes.count(user=USER, resource="resourceslices") == 3
