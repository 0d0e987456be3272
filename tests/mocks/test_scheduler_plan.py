"""What one scheduling cycle decides, and what a waiting pod sees; pure."""

import datetime
from typing import Any

import msgspec
import pytest

from drawbar.mocks.claims import documents
from drawbar.mocks.kube import meta
from drawbar.mocks.scheduler import matching, messages, nodes, objects, plan, reports, usage

NOW = datetime.datetime(2026, 1, 1, 12, 0, tzinfo=datetime.UTC)
TIMEOUT = datetime.timedelta(seconds=600)
NODES = (matching.Node(name="node-a", labels={"disk": "ssd"}), matching.Node(name="node-b"))
POD = documents.Document(metadata=meta.ObjectMeta(name="p", namespace="default", uid="pod"))


def result(device: str) -> dict[str, Any]:
    return {
        "request": "one",
        "driver": "drawbar.dev",
        "pool": "pool",
        "device": device,
        "bindingConditions": ["attached", "visible"],
        "bindingFailureConditions": ["attach-failed"],
    }


def state(device: str, **conditions: str) -> dict[str, Any]:
    listed = [
        {"type": kind.replace("_", "-"), "status": status, "reason": "Why", "message": "port down"}
        for kind, status in conditions.items()
    ]
    return {"driver": "drawbar.dev", "pool": "pool", "device": device, "conditions": listed}


def claim(
    *states: dict[str, Any],
    devices: tuple[str, ...] = ("a",),
    node: str = "",
    reserved: tuple[str, ...] = (),
    age: int = 0,
) -> documents.Document:
    since = (NOW - datetime.timedelta(seconds=age)).strftime("%Y-%m-%dT%H:%M:%SZ")
    allocation: dict[str, Any] = {
        "devices": {"results": [result(device) for device in devices]},
        "allocationTimestamp": since,
    }
    if node:
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        allocation["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return documents.Document(
        metadata=meta.ObjectMeta(name="c1", namespace="default", uid="claim"),
        status={
            "allocation": allocation,
            "devices": list(states),
            "reservedFor": [{"resource": "pods", "name": uid, "uid": uid} for uid in reserved],
        },
    )


READY = {"attached": "True", "visible": "True"}


def decide(
    *claims: documents.Document,
    pod: documents.Document = POD,
    nodes: tuple[matching.Node, ...] = NODES,
    classes: tuple[str, ...] = (),
) -> plan.Decision:
    by_name = {name: msgspec.convert({"metadata": {"name": name}}, objects.DeviceClass) for name in classes}
    world = plan.World(nodes=nodes, supply=(), classes=by_name, used=usage.Usage(), new_share_id=str)
    return plan.decide(pod, claims, world, now=NOW, timeout=TIMEOUT)


def with_spec(**spec: Any) -> documents.Document:
    return documents.Document(metadata=POD.metadata, spec=spec)


@pytest.mark.parametrize(
    ("pod", "node"),
    [
        pytest.param(with_spec(nodeSelector={"disk": "ssd"}), "node-a", id="node-selector"),
        pytest.param(
            with_spec(
                affinity={
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {"matchExpressions": [{"key": "disk", "operator": "DoesNotExist"}]}
                            ]
                        }
                    }
                }
            ),
            "node-b",
            id="node-affinity",
        ),
    ],
)
def test_the_pod_goes_where_its_spec_says(pod: documents.Document, node: str) -> None:
    assert decide(pod=pod) == plan.Placement(node=node)


def test_a_node_taint_keeps_pods_without_a_toleration_away() -> None:
    tainted = (matching.Node(name="node-a", taints=(objects.Taint(key="down", effect="NoSchedule"),)),)
    assert isinstance(decide(nodes=tainted), plan.Unschedulable)
    tolerant = with_spec(tolerations=[{"operator": "Exists"}])
    assert decide(pod=tolerant, nodes=tainted) == plan.Placement(node="node-a")


def test_without_nodes_the_reason_says_so() -> None:
    assert decide(nodes=()) == plan.Unschedulable(reason="no nodes available to schedule pods")


def test_a_claim_without_its_allocation_is_waited_for() -> None:
    bare = documents.Document(metadata=meta.ObjectMeta(name="c1"))
    assert plan.readiness([bare]) == plan.Pending(claim="c1")


def test_the_first_entry_of_a_device_counts_for_every_share() -> None:
    entries = [{**state("a", **READY), "shareID": "1"}, {**state("a", attach_failed="True"), "shareID": "2"}]
    assert plan.readiness([claim(*entries)]) is None


def test_a_message_with_quotes_and_line_breaks_stays_on_one_line() -> None:
    failed = state("a", attach_failed="True")
    failed["conditions"][0]["message"] = 'port "7"\ndown'
    verdict = plan.readiness([claim(failed)])
    assert isinstance(verdict, plan.Failed)
    words = messages.binding_failed(verdict.claim, verdict.reason, verdict.message, before_1_36=False)
    assert words.endswith('message="port \\"7\\"\\ndown"')


def make_unallocated_claim(**ask: Any) -> documents.Document:
    request = {"name": "one", "exactly": {"deviceClassName": "any", **ask}}
    return documents.Document(
        metadata=meta.ObjectMeta(name="c2", namespace="default", uid="claim-2"),
        spec={"devices": {"requests": [request]}},
    )


TAIL = "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."


@pytest.mark.parametrize(
    ("decision", "reason"),
    [
        pytest.param(
            decide(make_unallocated_claim()),
            "0/2 nodes are available: request one: device class any does not exist. "
            f"no new claims to deallocate, {TAIL}",
            id="no-such-class",
        ),
        pytest.param(
            decide(make_unallocated_claim(), classes=("any",)),
            f"0/2 nodes are available: 2 cannot allocate all claims. still not schedulable, {TAIL}",
            id="no-device",
        ),
        pytest.param(
            decide(claim(age=601)),
            "0/2 nodes are available: 2 resourceclaim not available on the node. "
            f"deallocation of ResourceClaim completed, {TAIL}",
            id="deallocated",
        ),
        pytest.param(
            decide(pod=with_spec(nodeSelector={"disk": "none"})),
            "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector. "
            f"no new claims to deallocate, {TAIL}",
            id="no-node-of-that-kind",
        ),
        pytest.param(
            decide(
                nodes=(
                    matching.Node(name="a", closed="node(s) were unschedulable"),
                    matching.Node(name="b", taints=(objects.Taint(key="down", effect="NoSchedule"),)),
                )
            ),
            "0/2 nodes are available: 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable. "
            f"no new claims to deallocate, {TAIL}",
            id="no-open-node",
        ),
        pytest.param(
            decide(claim(reserved=tuple(f"other-{number}" for number in range(256)))),
            f"0/2 nodes are available: resourceclaim in use. no new claims to deallocate, {TAIL}",
            id="no-reservation-left",
        ),
        pytest.param(
            decide(make_unallocated_claim(allocationMode="Some"), classes=("any",)),
            'running "DynamicResources" filter plugin: claim default/c2, request one: unsupported count mode Some',
            id="a-fault-of-the-claim",
        ),
    ],
)
def test_the_reason_is_in_the_words_of_the_real_scheduler(decision: Any, reason: str) -> None:
    assert decision.reason == reason


def test_a_failed_claim_stays_while_the_pods_other_claim_cannot_be_served() -> None:
    """As unpleasant as the real one: the failed claim is not looked at before the other finds its device."""
    decision = decide(claim(state("a", attach_failed="True")), make_unallocated_claim(), classes=("any",))
    assert isinstance(decision, plan.Unschedulable)
    assert "2 cannot allocate all claims" in decision.reason


def test_a_claim_of_a_node_that_the_pod_does_not_want_goes_back_only_if_another_one_is_wanted() -> None:
    here = claim(node="node-b")
    assert isinstance(decide(here, pod=with_spec(nodeSelector={"disk": "ssd"})), plan.Deallocate)
    assert isinstance(decide(here, pod=with_spec(nodeSelector={"disk": "none"})), plan.Unschedulable)


@pytest.mark.parametrize(
    ("spec", "ready", "closed"),
    [
        pytest.param({}, "True", "", id="open"),
        pytest.param({}, "Unknown", "node(s) had untolerated taint(s)", id="not-ready"),
        pytest.param({"unschedulable": True}, "True", "node(s) were unschedulable", id="cordoned"),
        pytest.param({"taints": "nonsense"}, "True", "node(s) had untolerated taint(s)", id="unreadable"),
    ],
)
def test_a_node_is_open_when_it_is_ready_and_not_cordoned(spec: Any, ready: str, closed: str) -> None:
    node = documents.Document(
        metadata=meta.ObjectMeta(name="n"),
        spec=spec,
        status={"conditions": [{"type": "Ready", "status": ready}]},
    )
    assert nodes.view(node) == matching.Node(name="n", closed=closed)


UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "no",
    "lastTransitionTime": "T1",
}


@pytest.mark.parametrize(
    ("status", "written"),
    [
        pytest.param({}, {**UNSCHEDULABLE, "lastTransitionTime": "T2"}, id="first-time"),
        pytest.param({"conditions": [UNSCHEDULABLE]}, None, id="reported-already"),
        pytest.param(
            {"conditions": [{**UNSCHEDULABLE, "message": "why"}]},
            UNSCHEDULABLE,
            id="another-message-same-transition",
        ),
        pytest.param(
            {"conditions": [UNSCHEDULABLE], "nominatedNodeName": "node-a"},
            UNSCHEDULABLE,
            id="nominated-no-more",
        ),
        pytest.param(
            {"conditions": [{**UNSCHEDULABLE, "status": "True"}]},
            {**UNSCHEDULABLE, "lastTransitionTime": "T2"},
            id="was-scheduled",
        ),
    ],
)
def test_the_condition_is_written_when_it_says_something_new(status: Any, written: Any) -> None:
    pod = documents.Document(metadata=meta.ObjectMeta(name="p", uid="u"), status=status)
    body = reports.make_unscheduled_patch(pod, "Unschedulable", "no", now="T2")
    if written is None:
        assert body is None
    else:
        assert body == {
            "metadata": {"uid": "u"},
            "status": {"conditions": [written], "nominatedNodeName": None},
        }
