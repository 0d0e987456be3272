"""What a scheduling cycle decides on a cluster with classic DRA; no server."""

import random

import msgspec
import pytest

from drawbar.mocks.claims import dialects, documents
from drawbar.mocks.kube import meta
from drawbar.mocks.scheduler import matching
from drawbar.mocks.scheduler import plan as modern
from drawbar.mocks.scheduler.classic import objects, plan

DRIVER = "drawbar.dev"
BOTH = pytest.mark.parametrize(
    "dialect", [dialects.V1ALPHA2, dialects.V1ALPHA3], ids=lambda dialect: dialect.version
)


def _document(name, **content):
    metadata = meta.ObjectMeta(
        name=name, namespace="default", uid=f"uid-of-{name}", **content.pop("meta", {})
    )
    return documents.Document(metadata=metadata, **content)


def _make_node_selector(*names):
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": list(names)}]}
    return {"nodeSelectorTerms": [term]}


POD = _document("p")
OTHER = {"resource": "pods", "name": "other", "uid": "uid-of-other"}
OURS = {"resource": "pods", "name": "p", "uid": "uid-of-p"}


def _claim(dialect, name="c1", *, nodes=(), reserved=(), allocated=None, **status):
    """Return a claim of one class, allocated for `nodes` if there are any."""
    allocated = bool(nodes) if allocated is None else allocated
    if dialect is dialects.V1ALPHA2:
        spec = {"resourceClassName": "any", "allocationMode": status.pop("mode", "WaitForFirstConsumer")}
        allocation = {"resourceHandles": [{"driverName": DRIVER}], "shareable": True}
        key = "availableOnNodes"
    else:
        spec = {"controller": DRIVER, "devices": {"requests": [{"name": "one", "deviceClassName": "any"}]}}
        allocation = {"controller": DRIVER}
        key = "nodeSelector"
    if nodes:
        allocation[key] = _make_node_selector(*nodes)
    if allocated:
        status = {"allocation": allocation, "reservedFor": list(reserved), **status}
    return _document(name, spec=spec, status=status)


def _context(selected="", potential=(), owner="p", **unsuitable):
    answers = [{"name": entry, "unsuitableNodes": list(nodes)} for entry, nodes in unsuitable.items()]
    return _document(
        "p",
        meta={"owner_references": (meta.OwnerReference(kind="Pod", uid=f"uid-of-{owner}", controller=True),)},
        spec={"selectedNode": selected, "potentialNodes": list(potential)},
        status={"resourceClaims": answers},
    )


def _class(dialect, nodes=()):
    selector = {"suitableNodes": _make_node_selector(*nodes)} if nodes else {}
    content = selector if dialect is dialects.V1ALPHA2 else {"spec": selector}
    return msgspec.convert({"metadata": {"name": "any"}, **content}, objects.Class)


def _decide(*claims, dialect=dialects.V1ALPHA3, nodes=("a", "b"), context=None, seed=1, **world):
    uses = [plan.Use(entry=claim.metadata.name, claim=claim) for claim in claims]
    views = [matching.Node(name=node) if isinstance(node, str) else node for node in nodes]
    pods = world.pop("pods", {})
    classes = world.pop("classes", {"any": _class(dialect)})
    return plan.decide(
        world.pop("pod", POD),
        uses,
        context,
        plan.World(
            nodes=views,
            pods_on=lambda name: pods.get(name, 0),
            classes=classes,
            dialect=dialect,
            chance=random.Random(seed),
        ),
    )


def _names(number, first=0):
    return [f"n{index:03}" for index in range(first, first + number)]


@BOTH
def test_for_one_pending_claim_a_node_is_selected_at_once(dialect):
    decision = _decide(_claim(dialect), dialect=dialect, pods={"a": 1})
    assert decision == plan.Publish(changes={"potentialNodes": ["a", "b"], "selectedNode": "b"})


@BOTH
def test_for_several_pending_claims_the_drivers_are_asked_first(dialect):
    claims = _claim(dialect, "c1"), _claim(dialect, "c2")
    assert _decide(*claims, dialect=dialect) == plan.Publish(changes={"potentialNodes": ["a", "b"]})


@pytest.mark.parametrize(
    ("answers", "decision"),
    [
        pytest.param({}, plan.Wait(), id="none-answered"),
        pytest.param({"c1": ["a"]}, plan.Wait(), id="one-answered"),
        pytest.param({"c1": [], "c2": ["a"]}, plan.Publish(changes={"selectedNode": "b"}), id="all-answered"),
    ],
)
def test_of_several_pending_claims_every_one_needs_an_answer_before_a_node_is_selected(answers, decision):
    context = _context(potential=["a", "b"], **answers)
    claims = _claim(dialects.V1ALPHA3, "c1"), _claim(dialects.V1ALPHA3, "c2")
    assert _decide(*claims, context=context) == decision


def test_an_allocated_claim_beside_a_pending_one_counts_as_no_pending_one():
    claims = _claim(dialects.V1ALPHA3, "c1", nodes=["b"]), _claim(dialects.V1ALPHA3, "c2")
    decision = _decide(*claims, context=_context(potential=["a", "b"]))
    assert decision == plan.Publish(changes={"selectedNode": "b"})


def test_nodes_known_to_the_drivers_are_not_published_again():
    context = _context("a", ["a", "b"], c1=["b"])
    assert _decide(_claim(dialects.V1ALPHA3), context=context) == plan.Wait()


def test_an_unsuitable_selection_gives_way_and_the_potential_nodes_stay_as_they_are():
    context = _context("a", ["a", "b"], c1=["a"])
    assert _decide(_claim(dialects.V1ALPHA3), context=context) == plan.Publish(changes={"selectedNode": "b"})


def test_the_selection_may_change_although_the_node_selected_before_still_fits():
    context = _context("n000", _names(50))
    decisions = [
        _decide(_claim(dialects.V1ALPHA3), nodes=_names(50), context=context, seed=seed) for seed in (1, 1, 2)
    ]
    assert decisions[0] == decisions[1] != decisions[2]
    assert set(decisions[0].changes) == {"selectedNode"}


def test_a_new_node_that_fits_is_published():
    context = _context("a", ["a"], c1=["a"])
    decision = _decide(_claim(dialects.V1ALPHA3), context=context)
    assert decision == plan.Publish(changes={"potentialNodes": ["b"], "selectedNode": "b"})


def test_of_more_nodes_than_the_list_holds_a_random_part_is_offered():
    first, second = (_decide(_claim(dialects.V1ALPHA3), nodes=_names(300), seed=seed) for seed in (1, 2))
    offered = first.changes["potentialNodes"]
    assert len(set(offered)) == 128
    assert offered == sorted(offered)
    assert offered != second.changes["potentialNodes"]


def test_the_selected_node_need_not_be_among_the_offered_ones():
    decided = [_decide(_claim(dialects.V1ALPHA3), nodes=_names(300), seed=seed).changes for seed in range(20)]
    assert {changes["selectedNode"] in changes["potentialNodes"] for changes in decided} == {True, False}


def test_when_none_of_the_offered_nodes_is_suitable_the_others_are_offered():
    context = _context("n000", _names(128), c1=_names(128))
    decision = _decide(_claim(dialects.V1ALPHA3), nodes=_names(200), context=context)
    assert decision.changes["potentialNodes"] == _names(72, first=128)


@BOTH
def test_a_class_narrows_the_nodes_that_are_offered(dialect):
    classes = {"any": _class(dialect, ["b"])}
    decision = _decide(_claim(dialect), dialect=dialect, classes=classes)
    assert decision == plan.Publish(changes={"potentialNodes": ["b"], "selectedNode": "b"})


@BOTH
def test_a_class_that_suits_no_node_leaves_the_pod_where_it_is(dialect):
    decision = _decide(_claim(dialect), dialect=dialect, classes={"any": _class(dialect, ["c"])})
    assert isinstance(decision, modern.Unschedulable)
    assert f"0/2 nodes are available: 2 excluded by {dialect.class_words} node filter." in decision.reason


def test_nodes_that_are_closed_to_the_pod_are_neither_offered_nor_selected():
    nodes = [
        matching.Node(name="a", closed="node(s) were unschedulable"),
        matching.Node(name="b", labels={"zone": "far"}),
        matching.Node(name="c", labels={"zone": "near"}),
    ]
    pod = _document("p", spec={"nodeSelector": {"zone": "near"}})
    decision = _decide(_claim(dialects.V1ALPHA3), nodes=nodes, pod=pod)
    assert decision == plan.Publish(changes={"potentialNodes": ["c"], "selectedNode": "c"})


@BOTH
def test_a_pod_whose_claims_are_all_allocated_goes_where_they_are_usable_and_fewest_pods_are(dialect):
    claims = _claim(dialect, "c1", nodes=["a", "b"]), _claim(dialect, "c2", allocated=True)
    decision = _decide(*claims, dialect=dialect, nodes=["a", "b", "c"], pods={"a": 2, "b": 1})
    assert decision == modern.Placement(node="b")


def test_a_pod_without_claims_is_placed():
    assert _decide(nodes=["a"]) == modern.Placement(node="a")


@BOTH
def test_a_claim_that_excludes_every_node_is_deallocated(dialect):
    stuck = _claim(dialect, "c1", nodes=["a"], reserved=[OURS])
    context = _context("a", ["a", "b"], c2=["a"])
    decision = _decide(stuck, _claim(dialect, "c2"), dialect=dialect, nodes=["a", "b"], context=context)
    assert (decision.claim, decision.deselect, decision.by_driver) == (stuck, True, True)
    assert decision.reason.startswith(
        "0/2 nodes are available: 1 resourceclaim cannot be allocated for the node (unsuitable), "
        "1 resourceclaim not available on the node. deallocation of ResourceClaim completed"
    )


def test_one_of_two_conflicting_claims_is_deallocated_at_random():
    claims = (
        _claim(dialects.V1ALPHA3, "c1", nodes=["a"]),
        _claim(dialects.V1ALPHA3, "c2", nodes=["b"]),
    )
    back = {_decide(*claims, seed=seed).claim.metadata.name for seed in range(20)}
    assert back == {"c1", "c2"}
    assert not _decide(*claims).deselect, "there is no context whose selection could be withdrawn"


def test_a_claim_without_the_name_of_its_controller_counts_as_the_schedulers_own():
    claim = _claim(dialects.V1ALPHA3, nodes=["elsewhere"])
    del claim.status["allocation"]["controller"]
    assert not _decide(claim).by_driver


@pytest.mark.parametrize(
    "claim",
    [
        pytest.param(
            _claim(dialects.V1ALPHA2, nodes=["elsewhere"], reserved=[OTHER]), id="in-use-by-another"
        ),
        pytest.param(_claim(dialects.V1ALPHA2, nodes=["elsewhere"], mode="Immediate"), id="immediate"),
    ],
)
def test_such_a_claim_is_never_deallocated(claim):
    decision = _decide(claim, dialect=dialects.V1ALPHA2)
    assert isinstance(decision, modern.Unschedulable)
    assert "2 resourceclaim not available on the node. still not schedulable" in decision.reason


_UNSHARED = _claim(dialects.V1ALPHA2, nodes=["a"], reserved=[OTHER])
_UNSHARED.status["allocation"]["shareable"] = False
_NOBODYS = _claim(dialects.V1ALPHA3)
del _NOBODYS.spec["controller"]


@pytest.mark.parametrize(
    ("dialect", "claim", "classes", "problem"),
    [
        pytest.param(
            dialects.V1ALPHA3,
            _claim(dialects.V1ALPHA3, nodes=["a"], deallocationRequested=True),
            None,
            "resourceclaim must be reallocated",
            id="to-be-deallocated",
        ),
        pytest.param(dialects.V1ALPHA2, _UNSHARED, None, "resourceclaim in use", id="not-shareable"),
        pytest.param(
            dialects.V1ALPHA2,
            _claim(dialects.V1ALPHA2),
            {},
            "resource class any does not exist",
            id="no-resource-class",
        ),
        pytest.param(
            dialects.V1ALPHA3,
            _claim(dialects.V1ALPHA3),
            {},
            "request one: device class any does not exist",
            id="no-device-class",
        ),
        pytest.param(
            dialects.V1ALPHA2,
            _claim(dialects.V1ALPHA2, mode="Immediate"),
            None,
            "unallocated immediate resourceclaim",
            id="immediate-and-pending",
        ),
        pytest.param(
            dialects.V1ALPHA3, _NOBODYS, None, "no controller allocates resource claim", id="no-controller"
        ),
    ],
)
def test_no_node_is_looked_at_for_such_a_claim(dialect, claim, classes, problem):
    world = {} if classes is None else {"classes": classes}
    decision = _decide(claim, dialect=dialect, **world)
    assert isinstance(decision, modern.Unschedulable)
    assert f"0/2 nodes are available: {problem}" in decision.reason


def test_a_claim_that_is_in_use_by_this_very_pod_is_no_obstacle():
    claim = _claim(dialects.V1ALPHA2, nodes=["a"], reserved=[OURS])
    claim.status["allocation"]["shareable"] = False
    assert _decide(claim, dialect=dialects.V1ALPHA2) == modern.Placement(node="a")


def test_a_context_of_an_earlier_pod_of_the_name_breaks_the_attempt_off():
    decision = _decide(_claim(dialects.V1ALPHA3), context=_context(owner="earlier"))
    assert isinstance(decision, modern.Broken)
    assert "PodSchedulingContext object with UID uid-of-p is not owned by Pod default/p" in decision.reason


def test_without_nodes_there_is_nothing_to_decide():
    assert _decide(nodes=[]) == modern.Unschedulable(reason="no nodes available to schedule pods")
