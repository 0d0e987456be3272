"""A node is not searched again for what an equal one did not have, and only equal ones count."""

import datetime

import msgspec
import pytest

from drawbar.mocks.claims import documents
from drawbar.mocks.kube import meta
from drawbar.mocks.scheduler import matching, objects, plan, pools, usage

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
POD = documents.Document(metadata=meta.ObjectMeta(name="p", namespace="n", uid="pod"))
REQUEST = {"name": "r", "exactly": {"deviceClassName": "any"}}
CLAIM = documents.Document(
    metadata=meta.ObjectMeta(name="c", namespace="n", uid="claim"),
    spec={"devices": {"requests": [REQUEST]}},
)
ANY = msgspec.convert({"metadata": {"name": "any"}}, objects.DeviceClass)
SELECTOR = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}]}
NODES = tuple(matching.Node(name=name, labels={"zone": name[0]}) for name in ("a1", "a2", "b1", "b2"))


def supply(node_selection):
    spec = {
        "driver": "d",
        "pool": {"name": "p"},
        "devices": [{"name": "dev"}],
        **node_selection,
    }
    return pools.from_slices([msgspec.convert({"metadata": {"name": "s"}, "spec": spec}, objects.Slice)])


def decide(offers, taken=()):
    used = usage.Usage(whole=frozenset(taken))
    world = plan.World(nodes=NODES, supply=offers, classes={"any": ANY}, used=used, new_share_id=str)
    return plan.decide(POD, [CLAIM], world, now=NOW, timeout=datetime.timedelta(seconds=600))


@pytest.mark.parametrize(
    ("node_selection", "node"),
    [
        pytest.param({"allNodes": True}, "a1", id="for-all"),
        pytest.param({"nodeName": "b2"}, "b2", id="for-one"),
        pytest.param({"nodeSelector": SELECTOR}, "b1", id="for-some"),
    ],
)
def test_the_first_node_that_is_offered_a_device_gets_the_pod(node_selection, node):
    decision = decide(supply(node_selection))
    assert isinstance(decision, plan.Placement)
    assert decision.node == node


def test_every_node_is_counted_though_only_one_is_searched():
    decision = decide(supply({"allNodes": True}), taken=[("d", "p", "dev")])
    assert isinstance(decision, plan.Unschedulable)
    assert "4 cannot allocate all claims" in decision.reason
