"""The claim controller double on a cluster with classic DRA; and its plan alone."""

import pytest

from drawbar.driver.kube import kinds
from drawbar.mocks.claims import dialects, documents, scheduled
from drawbar.mocks.claims import plan as modern
from drawbar.mocks.claims.classic import plan
from drawbar.mocks.kube import meta

ONE = {"resource": "pods", "name": "p", "uid": "uid-of-p"}
OTHER = {"apiGroup": "example.com", "resource": "jobs", "name": "j", "uid": "uid-of-j"}


@pytest.fixture
async def controlled(idle, controlling):
    async with controlling():
        yield idle


async def test_a_claim_from_a_template_is_kept_while_its_pod_runs_and_goes_when_it_has_finished(controlled):
    claim = controlled.dialect.claim
    await controlled.template("gpus")
    pod = await controlled.pod("p1", template="gpus", node="a")
    ready = await controlled.wait_for(kinds.POD, "p1", lambda pod: pod["status"].get("resourceClaimStatuses"))
    ((entry, name),) = [tuple(status.values()) for status in ready["status"]["resourceClaimStatuses"]]
    assert (entry, name.startswith("p1-gpu-")) == ("gpu", True)
    template = await controlled.wait_for(controlled.dialect.template, "gpus")
    assert (await controlled.wait_for(claim, name))["spec"] == template["spec"]["spec"]
    await controlled.allocate(name, "a", pod)
    await controlled.patch(kinds.POD, "p1", {"status": {"phase": "Succeeded"}}, "status")
    left = await controlled.wait_for(claim, name, lambda stored: stored["metadata"].get("deletionTimestamp"))
    assert left["status"]["allocation"], "only its driver may take it back"
    await controlled.deallocate(name)
    await controlled.wait_until_gone(claim, name)


async def test_the_driver_is_asked_to_deallocate_when_the_last_pod_has_gone(controlled):
    claim = controlled.dialect.claim
    pods = [await controlled.pod(name, "c1") for name in ("p1", "p2")]
    await controlled.claim("c1")
    await controlled.allocate("c1", "a", *pods)
    await controlled.delete(kinds.POD, "p1")
    left = await controlled.wait_for(claim, "c1", lambda stored: len(stored["status"]["reservedFor"]) == 1)
    assert not left["status"].get("deallocationRequested")
    await controlled.delete(kinds.POD, "p2")
    freed = await controlled.wait_for(
        claim, "c1", lambda stored: stored["status"].get("deallocationRequested")
    )
    assert freed["status"]["allocation"]
    assert not freed["status"].get("reservedFor")


async def test_for_a_pod_that_has_a_node_the_drivers_are_told_that_node_and_claims_are_reserved(controlled):
    claim, context = controlled.dialect.claim, controlled.dialect.context
    for name in ("c1", "c2"):
        await controlled.claim(name)
    pod = await controlled.pod("p1", "c1", "c2", node="a")
    written = await controlled.wait_for(context, "p1")
    assert written["spec"] == {"selectedNode": "a"}
    assert written["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]
    await controlled.allocate("c1", "a")
    await controlled.wait_for(claim, "c1", lambda stored: stored["status"].get("reservedFor"))
    await controlled.allocate("c2", "a", pod)
    assert [write.verb for write in controlled.writes("podschedulingcontexts")] == ["create"], (
        "told only once"
    )


def _claim(name="c1", *, dialect=dialects.V1ALPHA2, allocated=True, reserved=(), spec=None, **metadata):
    status = {"allocation": {"shareable": True}, "reservedFor": list(reserved)} if allocated else {}
    return documents.Document(
        metadata=meta.ObjectMeta(name=name, namespace="default", uid=f"uid-of-{name}", **metadata),
        spec=spec if spec is not None else {"allocationMode": "WaitForFirstConsumer"},
        status=status,
    )


IMMEDIATE = {"allocationMode": "Immediate"}
GONE = {"deletion_timestamp": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("claim", "owner_done", "actions", "asked"),
    [
        pytest.param(_claim(reserved=[ONE]), False, [modern.WriteStatus], True, id="the-last-pod-has-gone"),
        pytest.param(
            _claim(reserved=[ONE], spec=IMMEDIATE), False, [modern.WriteStatus], False, id="immediate-stays"
        ),
        pytest.param(
            _claim(reserved=[ONE, OTHER]), False, [modern.WriteStatus], False, id="another-pod-has-it"
        ),
        pytest.param(_claim(), False, [], False, id="allocated-for-no-pod-yet"),
        pytest.param(_claim(**GONE), False, [], False, id="deleted-and-unused"),
        pytest.param(
            _claim(reserved=[ONE]),
            True,
            [modern.WriteStatus, modern.DeleteClaim],
            True,
            id="made-for-that-pod",
        ),
        pytest.param(_claim(reserved=[OTHER]), True, [], False, id="made-for-a-pod-but-in-use"),
        pytest.param(
            _claim(reserved=[ONE], finalizers=(documents.PROTECTION_FINALIZER,)),
            False,
            [modern.WriteStatus, modern.RemoveFinalizer],
            False,
            id="the-scheduler-allocated-it",
        ),
    ],
)
def test_a_claim_gets_exactly_these_actions(claim, owner_done, actions, asked):
    planned = plan.for_claim(claim, [], owner_done=owner_done)
    assert [type(action) for action in planned] == actions
    flags = [
        action.claim.status.get("deallocationRequested", False)
        for action in planned
        if isinstance(action, modern.WriteStatus)
    ]
    assert any(flags) is asked


def _pod(node="a", **content):
    metadata = meta.ObjectMeta(name="p", namespace="default", uid="uid-of-p", **content.pop("meta", {}))
    return documents.Document(metadata=metadata, spec={"nodeName": node}, **content)


def _context(selected):
    return documents.Document(
        metadata=meta.ObjectMeta(name="p", namespace="default"), spec={"selectedNode": selected}
    )


PENDING = _claim(allocated=False)


@pytest.mark.parametrize(
    ("pod", "claims", "context", "actions"),
    [
        pytest.param(_pod(), [PENDING], None, [scheduled.MakeContext], id="pending"),
        pytest.param(_pod(), [PENDING], _context("a"), [], id="told-already"),
        pytest.param(_pod(), [PENDING], _context("b"), [scheduled.SelectNode], id="told-another-node"),
        pytest.param(_pod(""), [PENDING], None, [], id="the-scheduler-will-see-to-it"),
        pytest.param(_pod(meta=GONE), [PENDING], None, [], id="pod-being-deleted"),
        pytest.param(_pod(status={"phase": "Failed"}), [PENDING], None, [], id="pod-done"),
        pytest.param(_pod(), [_claim(allocated=False, spec=IMMEDIATE)], None, [], id="immediate"),
        pytest.param(_pod(), [_claim()], None, [modern.WriteStatus], id="to-be-reserved"),
        pytest.param(_pod(), [_claim(reserved=[ONE])], None, [], id="reserved-already"),
        pytest.param(
            _pod(),
            [_claim("c1"), PENDING, _claim("c3")],
            None,
            [modern.WriteStatus, scheduled.MakeContext],
            id="in-order-up-to-the-first-pending",
        ),
    ],
)
def test_a_pod_with_a_node_gets_exactly_these_actions(pod, claims, context, actions):
    planned = scheduled.for_pod(pod, claims, context, dialects.V1ALPHA2)
    assert [type(action) for action in planned] == actions


@pytest.mark.parametrize(
    ("dialect", "spec", "actions"),
    [
        pytest.param(dialects.V1ALPHA3, {"controller": "x"}, 1, id="the-drivers"),
        pytest.param(dialects.V1ALPHA3, {}, 0, id="the-schedulers"),
        pytest.param(dialects.MODERN, {"controller": "x"}, 0, id="a-release-without-contexts"),
    ],
)
def test_since_1_31_only_a_claim_with_a_controller_is_negotiated_for(dialect, spec, actions):
    claim = _claim(allocated=False, spec=spec)
    assert len(scheduled.for_pod(_pod(), [claim], None, dialect)) == actions


def test_a_claim_that_is_to_be_deallocated_is_not_reserved():
    claim = _claim()
    claim.status["deallocationRequested"] = True
    assert not scheduled.for_pod(_pod(), [claim], None, dialects.V1ALPHA2)
