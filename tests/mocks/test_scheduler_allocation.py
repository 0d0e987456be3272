"""The allocator of the scheduler double, alone: tables of slices and requests."""

import itertools
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from drawbar.mocks.claims import documents
from drawbar.mocks.scheduler import (
    allocation,
    matching,
    objects,
    pools,
    search,
    taintrules,
    usage,
)

Json = dict[str, Any]
DRIVER = "drawbar.dev"
NODE = matching.Node(name="node-a", labels={"chassis": "1"})
TAINT = {"key": "drawbar.dev/broken", "effect": "NoSchedule"}


def device(name: str, model: str = "H100", **extra: Any) -> Json:
    return {"name": name, "attributes": {"model": {"string": model}}, **extra}


def slice_(
    name: str, *devices: Json, pool: str = "pool", generation: int = 1, count: int = 1, **spec: Any
) -> objects.Slice:
    where = spec or {"allNodes": True}
    body = {
        "metadata": {"name": name},
        "spec": {
            "driver": DRIVER,
            "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
            "devices": list(devices),
            **where,
        },
    }
    return msgspec.convert(body, objects.Slice)


def request(name: str = "one", **ask: Any) -> Json:
    return {"name": name, "exactly": {"deviceClassName": "any", **ask}}


def cel(expression: str) -> Json:
    return {"cel": {"expression": expression}}


def allocate(
    slices: list[objects.Slice],
    *requests: Json,
    taken: Iterable[documents.DeviceID] = (),
    shared: Iterable[usage.Use] = (),
    claims: int = 1,
    from_incomplete: bool = False,
    **devices: Any,
) -> Any:
    content = msgspec.convert({"requests": list(requests), **devices}, objects.ClaimDevices)
    demands = [search.Demand(name=f"default/c{number}", devices=content) for number in range(claims)]
    spec = {
        "selectors": [cel('device.driver == "drawbar.dev"')],
        "config": [{"opaque": {"driver": DRIVER, "parameters": {}}}],
    }
    classes = {"any": msgspec.convert({"metadata": {"name": "any"}, "spec": spec}, objects.DeviceClass)}
    ids = itertools.count(1)
    return allocation.allocate(
        demands,
        node=NODE,
        supply=pools.from_slices(slices, from_incomplete=from_incomplete),
        classes=classes,
        used=usage.total([*(usage.Use(device=device_key) for device_key in taken), *shared]),
        new_share_id=lambda: f"share-{next(ids)}",
    )


def names(answer: Any) -> list[str] | str:
    if isinstance(answer, allocation.Refusal):
        return answer.reason
    return [result.device for allocation in answer for result in allocation.devices.results]


TWO = [slice_("s1", device("a"), device("b", "A100"))]
NO = "cannot allocate all claims"


@pytest.mark.parametrize(
    ("slices", "requests", "expected"),
    [
        pytest.param(TWO, [request(count=3)], NO, id="too-many"),
        pytest.param(TWO, [request("x"), request("y")], ["a", "b"], id="no-device-twice"),
        pytest.param(
            TWO,
            [request("x"), request("y", selectors=[cel('device.attributes["drawbar.dev"].model == "H100"')])],
            ["b", "a"],
            id="backtracking",
        ),
        pytest.param(
            [slice_("s1", device("a"), device("b", taints=[TAINT]))],
            [request(allocationMode="All")],
            NO,
            id="all-with-one-tainted",
        ),
        pytest.param(
            [slice_("s1", device("a", taints=[TAINT | {"value": "x"}]))],
            [request(tolerations=[{"key": "drawbar.dev/broken", "value": "y"}])],
            NO,
            id="toleration-of-another-value",
        ),
        pytest.param(
            [slice_("s1", device("a"), count=2), slice_("s2", device("b"), count=2)],
            [request(count=2)],
            ["a", "b"],
            id="complete-pool-of-two-slices",
        ),
    ],
)
def test_the_allocator_takes_exactly_these_devices(
    slices: list[objects.Slice], requests: list[Json], expected: list[str] | str
) -> None:
    assert names(allocate(slices, *requests)) == expected


def test_a_device_of_another_claim_is_not_free_but_admin_access_may_look() -> None:
    taken = {(DRIVER, "pool", "a")}
    assert names(allocate(TWO, request(), taken=taken)) == ["b"]
    assert names(allocate(TWO, request(adminAccess=True), taken=taken)) == ["a"]


def test_two_claims_of_a_pod_share_no_device() -> None:
    assert names(allocate(TWO, request(), claims=2)) == ["a", "b"]
    assert names(allocate(TWO, request(count=2), claims=2)) == NO


def test_devices_of_a_request_agree_or_differ_as_the_constraints_say() -> None:
    slices = [slice_("s1", device("a"), device("b", "A100"), device("c"))]
    name = "drawbar.dev/model"
    assert names(allocate(slices, request(count=2), constraints=[{"matchAttribute": name}])) == ["a", "c"]
    assert names(allocate(slices, request(count=2), constraints=[{"distinctAttribute": name}])) == ["a", "b"]
    assert names(allocate(slices, request(count=3), constraints=[{"distinctAttribute": name}])) == NO


@pytest.mark.parametrize(
    ("effect", "toleration", "is_allocated"),
    [
        pytest.param("NoExecute", None, False, id="no-execute-keeps-away"),
        pytest.param("NoExecute", {"operator": "Exists"}, True, id="everything-is-tolerated"),
        pytest.param(
            "NoExecute", {"operator": "Exists", "effect": "NoSchedule"}, False, id="of-another-effect"
        ),
        pytest.param(
            "NoSchedule", {"key": "drawbar.dev/broken", "value": ""}, True, id="equal-is-the-default"
        ),
        pytest.param("Unheard", None, True, id="an-unknown-effect-keeps-no-pod-away"),
    ],
)
def test_taints_keep_requests_away_that_do_not_tolerate_them(
    effect: str, toleration: Json | None, is_allocated: bool
) -> None:
    slices = [slice_("s1", device("a", taints=[TAINT | {"effect": effect}]))]
    answer = allocate(slices, request(tolerations=[toleration] if toleration else []))
    assert (names(answer) == ["a"]) is is_allocated


def test_admin_access_blocks_the_device_for_the_pods_other_requests_and_tolerates_nothing() -> None:
    single = [slice_("s1", device("a"))]
    assert names(allocate(single, request("x", adminAccess=True), request("y"))) == NO
    assert names(allocate(single, request("x", adminAccess=True), request("y", adminAccess=True))) == NO
    assert names(allocate(single, request(adminAccess=True), claims=2)) == ["a", "a"]
    tainted = [slice_("s1", device("a", taints=[TAINT]))]
    assert names(allocate(tainted, request(adminAccess=True))) == NO


@pytest.mark.parametrize(
    ("more", "words"),
    [
        pytest.param(
            [slice_("s2", device("x"), pool="p2", count=2)],
            "drawbar.dev/p2 is currently being updated",
            id="incomplete",
        ),
        pytest.param(
            [slice_("s2", device("x"), device("x"), pool="p2")],
            "drawbar.dev/p2 is currently invalid",
            id="invalid",
        ),
    ],
)
def test_nobody_gets_all_devices_while_some_pool_of_the_node_is_not_whole(
    more: list[objects.Slice], words: str
) -> None:
    with pytest.raises(
        search.AllocationError, match=f"request one: asks for all devices, but resource pool {words}"
    ):
        allocate([*TWO, *more], request(allocationMode="All"))
    elsewhere = [slice_("s3", device("x"), pool="p3", count=2, nodeName="node-b")]
    assert names(allocate([*TWO, *elsewhere], request(allocationMode="All"))) == ["a", "b"]


def test_all_devices_under_a_constraint_they_break_is_a_fault_of_the_claim() -> None:
    with pytest.raises(
        search.AllocationError, match=r"cannot add device drawbar.dev/pool/b because a claim constraint"
    ):
        allocate(TWO, request(allocationMode="All"), constraints=[{"matchAttribute": "drawbar.dev/model"}])


def test_all_of_nothing_is_refused() -> None:
    assert names(allocate(TWO, request(allocationMode="All", selectors=[cel("false")]))) == NO


def test_more_devices_than_an_allocation_can_list_are_refused() -> None:
    many = [slice_("s1", *(device(f"d{number}") for number in range(40)))]
    with pytest.raises(search.AllocationError, match="requested devices 33 exceeds the claim limit of 32"):
        allocate(many, request(count=33))
    ask = {"deviceClassName": "any"}
    either = {"name": "one", "firstAvailable": [{"name": "all", "count": 33, **ask}, {"name": "few", **ask}]}
    assert names(allocate(many, either)) == ["d0"]


def test_a_selector_that_fails_on_a_device_behind_the_fitting_one_does_no_harm() -> None:
    slices = [slice_("s1", device("a"), {"name": "b"})]
    expression = cel('device.attributes["drawbar.dev"].model == "H100"')
    assert names(allocate(slices, request(selectors=[expression]))) == ["a"]
    with pytest.raises(
        search.AllocationError, match=r"selector on device drawbar.dev/pool/b: CEL .*no such key: model"
    ):
        allocate(slices, request(count=2, selectors=[expression]))


def test_an_alternative_that_does_not_go_with_the_rest_gives_way_to_the_next() -> None:
    ask = {"deviceClassName": "any"}
    first = {"name": "one", "firstAvailable": [{"name": "two", "count": 2, **ask}, {"name": "single", **ask}]}
    (answer,) = allocate(TWO, first, request("y"))
    assert [(result.request, result.device) for result in answer.devices.results] == [
        ("one/single", "a"),
        ("y", "b"),
    ]


def test_the_taints_of_rules_count_like_those_of_drivers() -> None:
    rule = msgspec.convert(
        {
            "metadata": {"name": "r"},
            "spec": {"deviceSelector": {"device": "a"}, "taint": {"key": "k", "effect": "NoSchedule"}},
        },
        taintrules.Rule,
    )
    assert names(allocate(taintrules.taint_slices(TWO, [rule]), request())) == ["b"]
    assert taintrules.taint_slices(TWO, []) == TWO


def test_configuration_comes_from_the_class_first_and_then_from_the_claim() -> None:
    config = [
        {"requests": ["one"], "opaque": {"driver": DRIVER, "parameters": {"b": 1}}},
        {"requests": ["another"], "opaque": {"driver": DRIVER, "parameters": {"c": 1}}},
    ]
    (answer,) = allocate(TWO, request(), config=config)
    assert [(entry.source, entry.requests) for entry in answer.devices.config] == [
        ("FromClass", ("one",)),
        ("FromClaim", ("one",)),
    ]


def test_a_hopeless_search_times_out() -> None:
    many = [slice_("s1", *(device(f"d{number}") for number in range(40)))]
    never = request("y", selectors=[cel("false")])
    answer = allocate(many, request("x", count=8), never)
    assert names(answer) == "timed out trying to allocate devices"


def test_a_constraint_that_cannot_hold_is_found_out_early() -> None:
    many = [slice_("s1", *(device(f"d{number}", f"m{number}") for number in range(40)))]
    answer = allocate(many, request(count=8), constraints=[{"matchAttribute": "drawbar.dev/model"}])
    assert names(answer) == NO


def test_a_taint_in_a_slice_of_its_own_keeps_the_device_back() -> None:
    apart = slice_("s2", count=2, allNodes=True, taints=[{"device": "a", "taint": TAINT}])
    answer = allocate([slice_("s1", device("a"), device("b"), count=2), apart], request())
    assert names(answer) == ["b"]


def test_before_1_36_an_incomplete_pool_serves_requests_for_single_devices() -> None:
    part = [slice_("s1", device("a"), count=2)]
    assert names(allocate(part, request(), from_incomplete=True)) == ["a"]
    with pytest.raises(search.AllocationError, match="currently being updated"):
        allocate(part, request(allocationMode="All"), from_incomplete=True)
    broken = [slice_("s1", device("a"), device("a"), count=2)]
    assert names(allocate(broken, request(), from_incomplete=True)).startswith("invalid resource pools")
