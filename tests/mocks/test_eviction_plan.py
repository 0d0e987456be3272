"""When pods must go because of tainted devices, and what a rule's status says of it; pure."""

import datetime

import msgspec
import pytest

from drawbar.mocks.claims import documents
from drawbar.mocks.eviction import board, plan, progress
from drawbar.mocks.kube import meta
from drawbar.mocks.scheduler import objects, taintrules

T = datetime.datetime(2026, 1, 1, 12, 0, tzinfo=datetime.UTC)
DEVICE = ("drawbar.dev", "pool", "a")
RULE_UID = "rule-1"


def make_timestamp(seconds):
    return (T + datetime.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def taint(key="broken", effect="NoExecute", added=0, **extra):
    return {"key": key, "effect": effect, "timeAdded": make_timestamp(added), **extra}


def slice_(*taints, generation=1, name="s1", device="a"):
    spec = {
        "driver": "drawbar.dev",
        "pool": {"name": "pool", "generation": generation, "resourceSliceCount": 1},
        "allNodes": True,
        "devices": [{"name": device, "taints": list(taints)}],
    }
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, objects.Slice)


def claim(*tolerations, name="c1", device="a", reserved=("pod-1",), owner=""):
    result = {"request": "one", "driver": "drawbar.dev", "pool": "pool", "device": device}
    result["tolerations"] = list(tolerations)
    status = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": uid, "uid": uid} for uid in reserved],
    }
    owners = (meta.OwnerReference(kind="Pod", uid=owner, controller=True),) if owner else ()
    metadata = meta.ObjectMeta(name=name, namespace="default", uid=name, owner_references=owners)
    return documents.Document(metadata=metadata, status=status)


def pod(*claims, uid="pod-1", node="node-a", namespace="default", **metadata):
    spec = {
        "resourceClaims": [{"name": name, "resourceClaimName": name} for name in claims],
        "nodeName": node,
    }
    identity = meta.ObjectMeta(name=uid, namespace=namespace, uid=uid, **metadata)
    return documents.Document(metadata=identity, spec=spec)


def rule(selector=(), effect="NoExecute", added=0, conditions=(), generation=1, uid=RULE_UID):
    spec = {"taint": taint(effect=effect, added=added)}
    if selector is not None:
        spec["deviceSelector"] = dict(selector)
    body = {
        "metadata": {
            "name": uid,
            "uid": uid,
            "generation": generation,
            "creationTimestamp": make_timestamp(-100),
        },
        "spec": spec,
        "status": {"conditions": list(conditions)},
    }
    return msgspec.convert(body, taintrules.Rule)


def tolerate(seconds=None, **fields):
    held = {"key": "broken", "operator": "Exists", "effect": "NoExecute", **fields}
    return held if seconds is None else {**held, "tolerationSeconds": seconds}


@pytest.mark.parametrize(
    ("slices", "tolerations", "after_seconds"),
    [
        pytest.param([slice_()], [], None, id="no-taint"),
        pytest.param([slice_(taint())], [], 0, id="at-once"),
        pytest.param([slice_(taint(effect="NoSchedule"))], [], None, id="no-schedule-evicts-no-pod"),
        pytest.param([slice_(taint(effect="None"))], [], None, id="none-evicts-no-pod"),
        pytest.param([slice_(taint())], [tolerate()], None, id="tolerated-for-ever"),
        pytest.param([slice_(taint())], [tolerate(30)], 30, id="tolerated-for-30-s"),
        pytest.param([slice_(taint())], [tolerate(30), tolerate(10)], 10, id="the-shortest-toleration"),
        pytest.param([slice_(taint())], [tolerate(10), tolerate()], None, id="for-ever-beats-seconds"),
        pytest.param([slice_(taint())], [tolerate(-5)], 0, id="negative-seconds"),
        pytest.param([slice_(taint())], [tolerate(effect="")], 0, id="a-toleration-of-all-effects-is-none"),
        pytest.param([slice_(taint())], [tolerate(key="other")], 0, id="of-another-key"),
        pytest.param(
            [slice_(taint(value="x"))], [tolerate(operator="Equal", value="y")], 0, id="of-another-value"
        ),
        pytest.param(
            [slice_(taint(value="x"))], [tolerate(operator="Equal", value="x")], None, id="of-this-value"
        ),
        pytest.param([slice_(taint())], [tolerate(key="", operator="Exists")], None, id="of-every-key"),
        pytest.param([slice_(taint(added=9), taint("b", added=4))], [], 4, id="the-earliest-taint"),
        pytest.param(
            [slice_(taint(added=5), taint("b", added=9))],
            [tolerate(60)],
            9,
            id="the-earliest-end-of-patience",
        ),
        pytest.param(
            [slice_(taint()), slice_(generation=2, name="s2")],
            [],
            None,
            id="an-old-generation-does-not-count",
        ),
        pytest.param([slice_(taint(), device="b")], [], None, id="another-device"),
        pytest.param([slice_(taint(timeAdded=None))], [], None, id="without-a-time"),
        pytest.param([slice_(taint(timeAdded="soon"))], [], None, id="with-nonsense-for-a-time"),
        pytest.param([slice_(taint())], ["nonsense"], 0, id="a-toleration-that-cannot-be-read"),
    ],
)
def test_users_of_a_claim_must_go_this_long_after_the_taint(slices, tolerations, after_seconds):
    eviction = plan.claim_eviction(claim(*tolerations), plan.evicting_taints(slices), ())
    when = None if after_seconds is None else T + datetime.timedelta(seconds=after_seconds)
    assert (eviction.when if eviction else None) == when


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        pytest.param((), True, id="the-empty-selector-is-about-every-device"),
        pytest.param(None, False, id="no-selector-is-about-none"),
        pytest.param({"driver": "drawbar.dev"}, True, id="driver"),
        pytest.param({"driver": "other.example"}, False, id="another-driver"),
        pytest.param({"pool": "pool", "device": "a"}, True, id="pool-and-device"),
        pytest.param({"pool": "pool", "device": "b"}, False, id="another-device"),
        pytest.param({"pool": "elsewhere"}, False, id="another-pool"),
    ],
)
def test_a_rule_evicts_from_the_devices_it_selects_published_or_not(selector, selected):
    eviction = plan.claim_eviction(claim(), {}, [rule(selector)])
    assert eviction == (plan.Eviction(when=T, rules=frozenset({RULE_UID})) if selected else None)


def test_a_rule_of_another_effect_evicts_nobody():
    assert plan.claim_eviction(claim(), {}, [rule(effect="NoSchedule"), rule(effect="None")]) is None


def test_a_rules_taint_without_a_time_is_as_old_as_the_rule():
    bare = rule()
    spec = msgspec.structs.replace(bare.spec, taint=objects.Taint(key="broken", effect="NoExecute"))
    eviction = plan.claim_eviction(claim(), {}, [msgspec.structs.replace(bare, spec=spec)])
    assert eviction is not None
    assert eviction.when == T - datetime.timedelta(seconds=100)


GO = plan.Eviction(when=T)


@pytest.mark.parametrize(
    ("bound", "held", "goes"),
    [
        pytest.param(pod("c1"), claim(), True, id="bound-and-reserved"),
        pytest.param(pod("c1", node=""), claim(), False, id="not-bound"),
        pytest.param(pod("c1"), claim(reserved=()), False, id="not-reserved"),
        pytest.param(pod("c1"), claim(reserved=("pod-2",)), False, id="reserved-for-another"),
        pytest.param(pod("c2"), claim(), False, id="another-claim"),
        pytest.param(pod("c1", namespace="other"), claim(), False, id="another-namespace"),
    ],
)
def test_only_a_bound_pod_with_a_reservation_goes(bound, held, goes):
    assert plan.pod_eviction(bound, {held.key: held}, {held.key: GO}) == (GO if goes else None)


@pytest.mark.parametrize(
    ("owner", "goes"), [("pod-1", True), ("pod-0", False)], ids=["its-own", "a-former-pods"]
)
def test_a_claim_from_a_template_counts_only_for_its_pod(owner, goes):
    held = claim(owner=owner)
    document = documents.Document(
        metadata=meta.ObjectMeta(name="pod-1", namespace="default", uid="pod-1"),
        spec={"nodeName": "n", "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]},
        status={"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "c1"}]},
    )
    assert (plan.pod_eviction(document, {held.key: held}, {held.key: GO}) is not None) is goes


def test_a_pod_with_two_claims_goes_at_the_earlier_time_for_both_reasons():
    held = [claim(name="c1"), claim(name="c2")]
    later = plan.Eviction(when=T + datetime.timedelta(seconds=5), rules=frozenset({"r1"}))
    sooner = plan.Eviction(when=T, rules=frozenset({"r2"}))
    eviction = plan.pod_eviction(
        pod("c1", "c2"),
        {held_claim.key: held_claim for held_claim in held},
        {held[0].key: later, held[1].key: sooner},
    )
    assert eviction == plan.Eviction(when=T, rules=frozenset({"r1", "r2"}))


def condition(reason, message="", status="False", since=0, generation=1):
    return {
        "type": "EvictionInProgress",
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": make_timestamp(since),
        "observedGeneration": generation,
    }


@pytest.mark.parametrize(
    ("conditions", "seconds"),
    [
        pytest.param([], 0, id="never-written"),
        pytest.param([condition("NotStarted", since=0)], 10, id="written-just-now"),
        pytest.param([condition("NotStarted", since=-4)], 6, id="written-a-while-ago"),
        pytest.param([condition("NotStarted", since=-11)], 0, id="written-long-ago"),
        pytest.param([condition("NotStarted", since=0, generation=0)], 0, id="about-an-older-rule"),
    ],
)
def test_a_status_is_written_at_most_every_ten_seconds(conditions, seconds):
    assert progress.pause(rule(conditions=conditions), now=T, period_seconds=10) == seconds


PODS = [pod(uid="p1"), pod(uid="p2"), pod(uid="p3", namespace="other")]


@pytest.mark.parametrize(
    ("effect", "findings", "status", "reason", "message"),
    [
        pytest.param("NoExecute", {}, "False", "NotStarted", "", id="not-started"),
        pytest.param(
            "NoExecute",
            {"pending": PODS[:1]},
            "True",
            "PodsPendingEviction",
            "1 pod needs to be evicted in 1 namespace.",
            id="one-pending",
        ),
        pytest.param(
            "NoExecute",
            {"pending": PODS, "evicted": 1},
            "True",
            "PodsPendingEviction",
            "3 pods need to be evicted in 2 different namespaces. 1 pod evicted since starting the controller.",
            id="some-pending-one-gone",
        ),
        pytest.param(
            "NoExecute",
            {"evicted": 2},
            "False",
            "Completed",
            "2 pods evicted since starting the controller.",
            id="completed",
        ),
        pytest.param(
            "NoSchedule",
            {},
            "False",
            "OtherEffect",
            "Eviction only happens for the NoExecute effect.",
            id="other-effect",
        ),
        pytest.param(
            "None",
            {"pending": PODS[:1], "selection": plan.Selection(published=1, allocated=2)},
            "False",
            "NoEffect",
            "1 published device selected. 2 allocated devices selected. 1 pod would be evicted in 1 namespace if "
            "the effect was NoExecute. This information will not be updated again. Recreate the DeviceTaintRule to "
            "trigger an update.",
            id="preview",
        ),
    ],
)
def test_the_condition_says_how_far_the_eviction_is(effect, findings, status, reason, message):
    condition = progress.condition(rule(effect=effect), progress.Findings(**findings), now=T)
    assert (condition.type, condition.status, condition.reason, condition.message) == (
        "EvictionInProgress",
        status,
        reason,
        message,
    )
    assert (condition.observed_generation, condition.last_transition_time) == (1, make_timestamp(0))


def test_a_condition_that_says_nothing_new_is_not_written():
    held = [condition("NotStarted", since=-60)]
    assert progress.condition(rule(conditions=held), progress.Findings(), now=T) is None
    assert progress.condition(rule(conditions=held, generation=2), progress.Findings(), now=T) is not None


def make_board():
    filled_board = board.Board()
    filled_board.slice_changed(None, slice_())
    filled_board.claim_changed(None, claim())
    return filled_board


def test_a_slice_without_news_touches_no_claim():
    filled_board = make_board()
    assert filled_board.slice_changed(slice_(), slice_(taint(effect="NoSchedule"))) == ()
    assert [touched.metadata.name for touched in filled_board.slice_changed(slice_(), slice_(taint()))] == [
        "c1"
    ]
    assert filled_board.slice_changed(slice_(taint()), slice_(taint())) == ()


def test_a_taint_that_goes_with_its_slice_or_its_rule_evicts_nobody_any_more():
    filled_board = make_board()
    filled_board.slice_changed(slice_(), slice_(taint()))
    filled_board.rule_changed(None, rule())
    assert filled_board.eviction_of(pod("c1")) == plan.Eviction(when=T, rules=frozenset({RULE_UID}))
    filled_board.slice_changed(slice_(taint()), None)
    assert filled_board.eviction_of(pod("c1")) is not None
    filled_board.rule_changed(rule(), None)
    assert filled_board.eviction_of(pod("c1")) is None


def test_a_claim_is_forgotten_with_its_allocation():
    filled_board = make_board()
    filled_board.rule_changed(None, rule())
    bare = msgspec.structs.replace(claim(), status={})
    assert filled_board.claim_changed(claim(), bare) == (claim(), bare)
    assert filled_board.eviction_of(pod("c1")) is None


def test_a_preview_counts_whom_the_rule_would_evict():
    filled_board = make_board()
    preview = rule(effect="None")
    filled_board.rule_changed(None, preview)
    going = pod("c1", uid="pod-2", deletion_timestamp=make_timestamp(0))
    assert filled_board.eviction_of(pod("c1")) is None
    assert filled_board.find_pods_to_evict(preview, [pod("c1"), going]) == (pod("c1"),)
    assert plan.selection(preview, filled_board.slices, filled_board.claims.values()) == plan.Selection(
        published=1, allocated=1
    )


def test_a_taint_in_a_slice_of_its_own_evicts_like_one_of_the_device():
    apart = msgspec.structs.replace(
        slice_(device="other", name="s2"),
        spec=msgspec.structs.replace(
            slice_(name="s2").spec,
            devices=(),
            taints=(objects.SliceTaint(device="a", taint=msgspec.convert(taint(), objects.Taint)),),
        ),
    )
    taints = plan.evicting_taints([slice_(), apart])
    assert [evicting.key for evicting in taints[DEVICE]] == ["broken"]
