"""What one scheduling cycle decides, and what a waiting pod sees; pure."""

import datetime
from typing import Any

import pytest

from drawbar.mocks.claims import documents
from drawbar.mocks.scheduler import matching, objects, plan

NOW = datetime.datetime(2026, 1, 1, 12, 0, tzinfo=datetime.UTC)
TIMEOUT = datetime.timedelta(seconds=600)
NODES = (matching.Node(name="node-a", labels={"disk": "ssd"}), matching.Node(name="node-b"))
POD = documents.Document(metadata=documents.Metadata(name="p", namespace="default", uid="pod"))


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
        metadata=documents.Metadata(name="c1", namespace="default", uid="claim"),
        status={
            "allocation": allocation,
            "devices": list(states),
            "reservedFor": [{"resource": "pods", "name": uid, "uid": uid} for uid in reserved],
        },
    )


READY = {"attached": "True", "visible": "True"}


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        pytest.param(claim(), plan.Pending(claim="c1"), id="no-entry"),
        pytest.param(claim(state("a", attached="True")), plan.Pending(claim="c1"), id="one-of-two"),
        pytest.param(
            claim(state("a", attached="True", visible="False")), plan.Pending(claim="c1"), id="false"
        ),
        pytest.param(claim(state("a", **READY)), None, id="ready"),
        pytest.param(
            claim(state("a", attach_failed="True")),
            plan.Failed(message='device binding failed: claim=c1, reason=Why, message="port down"'),
            id="failed",
        ),
        pytest.param(
            claim(state("b", attach_failed="True"), devices=("a", "b")),
            plan.Pending(claim="c1"),
            id="a-failure-behind-a-device-that-is-not-ready-is-unseen",
        ),
        pytest.param(
            claim(state("a", **READY), state("b", attach_failed="True"), devices=("a", "b")),
            plan.Failed(message='device binding failed: claim=c1, reason=Why, message="port down"'),
            id="a-failure-behind-a-ready-device-is-seen",
        ),
    ],
)
def test_readiness_of_a_claim(one: documents.Document, expected: object) -> None:
    assert plan.readiness([one]) == expected


def decide(
    *claims: documents.Document, pod: documents.Document = POD, nodes: tuple[matching.Node, ...] = NODES
) -> plan.Decision:
    world = plan.World(nodes=nodes, supply=(), classes={}, taken=set())
    return plan.decide(pod, claims, world, now=NOW, timeout=TIMEOUT)


def with_spec(**spec: Any) -> documents.Document:
    return documents.Document(metadata=POD.metadata, spec=spec)


def test_an_allocated_claim_brings_the_pod_to_its_node() -> None:
    assert decide(claim(node="node-b")) == plan.Placement(node="node-b")


@pytest.mark.parametrize(
    ("one", "deallocated"),
    [
        pytest.param(claim(state("a", attach_failed="True")), True, id="failed"),
        pytest.param(
            claim(state("a", attach_failed="True"), reserved=("pod",)), True, id="reserved-for-it-alone"
        ),
        pytest.param(
            claim(state("a", attach_failed="True"), reserved=("other",)), False, id="used-by-another"
        ),
        pytest.param(claim(age=601), True, id="timed-out"),
        pytest.param(claim(state("a", **READY), age=601), None, id="old-but-ready"),
        pytest.param(claim(age=599), None, id="still-in-time"),
        pytest.param(claim(node="node-c"), True, id="its-node-is-gone"),
    ],
)
def test_only_an_unusable_claim_of_no_other_pod_is_deallocated(
    one: documents.Document, deallocated: bool | None
) -> None:
    kind = {True: plan.Deallocate, False: plan.Unschedulable, None: plan.Placement}[deallocated]
    assert isinstance(decide(one), kind)


def test_one_claim_is_deallocated_at_a_time() -> None:
    decision = decide(claim(node="node-a"), claim(node="node-b"))
    assert isinstance(decision, plan.Deallocate)


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
