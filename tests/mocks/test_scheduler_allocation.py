"""The allocator of the scheduler double, alone: tables of slices and requests."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from drawbar.mocks.claims import documents
from drawbar.mocks.scheduler import allocation, matching, objects, selectors

Json = dict[str, Any]
DRIVER = "drawbar.dev"
NODE = matching.Node(name="node-a", labels={"chassis": "1"})
BINDING: Json = {
    "bindsToNode": True,
    "bindingConditions": ["drawbar.dev/attached"],
    "bindingFailureConditions": ["drawbar.dev/attach-failed"],
}
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
    claims: int = 1,
    **devices: Any,
) -> Any:
    content = msgspec.convert({"requests": list(requests), **devices}, objects.ClaimDevices)
    demands = [allocation.Demand(name=f"default/c{number}", devices=content) for number in range(claims)]
    spec = {
        "selectors": [cel('device.driver == "drawbar.dev"')],
        "config": [{"opaque": {"driver": DRIVER, "parameters": {}}}],
    }
    classes = {"any": msgspec.convert({"metadata": {"name": "any"}, "spec": spec}, objects.DeviceClass)}
    return allocation.allocate(
        demands, node=NODE, supply=allocation.pools(slices), classes=classes, taken=set(taken)
    )


def names(answer: Any) -> list[str] | str:
    if isinstance(answer, allocation.Refusal):
        return answer.reason
    return [result.device for one in answer for result in one.devices.results]


TWO = [slice_("s1", device("a"), device("b", "A100"))]
NO = "cannot allocate all claims"
ELSEWHERE = {
    "nodeSelectorTerms": [{"matchExpressions": [{"key": "chassis", "operator": "In", "values": ["2"]}]}]
}
HERE = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "chassis", "operator": "In", "values": ["1"]}]}]}


@pytest.mark.parametrize(
    ("slices", "requests", "expected"),
    [
        pytest.param(TWO, [request()], ["a"], id="first-fit"),
        pytest.param(TWO, [request(count=2)], ["a", "b"], id="count"),
        pytest.param(TWO, [request(count=3)], NO, id="too-many"),
        pytest.param(TWO, [request("x"), request("y")], ["a", "b"], id="no-device-twice"),
        pytest.param(
            TWO,
            [request(selectors=[cel('device.attributes["drawbar.dev"].model == "A100"')])],
            ["b"],
            id="selector",
        ),
        pytest.param(
            TWO,
            [request("x"), request("y", selectors=[cel('device.attributes["drawbar.dev"].model == "H100"')])],
            ["b", "a"],
            id="backtracking",
        ),
        pytest.param(TWO, [request(allocationMode="All")], ["a", "b"], id="all"),
        pytest.param(
            [slice_("s1", device("a"), device("b", taints=[TAINT]))],
            [request(allocationMode="All")],
            NO,
            id="all-with-one-tainted",
        ),
        pytest.param(
            [slice_("s1", device("a", taints=[TAINT]), device("b"))], [request()], ["b"], id="taint"
        ),
        pytest.param(
            [slice_("s1", device("a", taints=[TAINT | {"effect": "None"}]))],
            [request()],
            ["a"],
            id="effect-none",
        ),
        pytest.param(
            [slice_("s1", device("a", taints=[TAINT]))],
            [request(tolerations=[{"key": "drawbar.dev/broken", "operator": "Exists"}])],
            ["a"],
            id="tolerated",
        ),
        pytest.param(
            [slice_("s1", device("a", taints=[TAINT | {"value": "x"}]))],
            [request(tolerations=[{"key": "drawbar.dev/broken", "value": "y"}])],
            NO,
            id="toleration-of-another-value",
        ),
        pytest.param([slice_("s1", device("a"), count=2)], [request()], NO, id="incomplete-pool"),
        pytest.param(
            [slice_("s1", device("a"), count=2), slice_("s2", device("b"), count=2)],
            [request(count=2)],
            ["a", "b"],
            id="complete-pool-of-two-slices",
        ),
        pytest.param(
            [slice_("s1", device("a")), slice_("s2", device("b"), generation=2)],
            [request()],
            ["b"],
            id="only-the-newest-generation",
        ),
        pytest.param(
            [slice_("s1", device("a"), count=2), slice_("s2", device("a"), count=2)],
            [request()],
            NO,
            id="a-name-twice-in-the-pool",
        ),
        pytest.param(
            [slice_("s1", device("a", **BINDING), pool="p1"), slice_("s2", device("b"), pool="p2")],
            [request()],
            ["b"],
            id="pools-without-binding-conditions-first",
        ),
        pytest.param([slice_("s1", device("a"), nodeName="node-b")], [request()], NO, id="another-node"),
        pytest.param([slice_("s1", device("a"), nodeName="node-a")], [request()], ["a"], id="this-node"),
        pytest.param(
            [slice_("s1", device("a"), nodeSelector=ELSEWHERE)], [request()], NO, id="another-chassis"
        ),
        pytest.param([slice_("s1", device("a"), nodeSelector=HERE)], [request()], ["a"], id="this-chassis"),
        pytest.param(
            [
                slice_(
                    "s1",
                    device("a", nodeName="node-b"),
                    device("b", allNodes=True),
                    perDeviceNodeSelection=True,
                )
            ],
            [request()],
            ["b"],
            id="per-device-node-selection",
        ),
        pytest.param(
            TWO,
            [request(deviceClassName="none")],
            "claim default/c0, request one: device class none does not exist",
            id="no-such-class",
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


def test_the_first_available_alternative_is_taken_and_named() -> None:
    ask = {"deviceClassName": "any"}
    wanted = [cel('device.attributes["drawbar.dev"].model == "A100"')]
    alternatives = [
        {"name": "four", "count": 4, **ask},
        {"name": "a100", "selectors": wanted, **ask},
        {"name": "other", **ask},
    ]
    (answer,) = allocate(TWO, {"name": "one", "firstAvailable": alternatives})
    (result,) = answer.devices.results
    assert (result.request, result.device) == ("one/a100", "b")


def test_devices_of_a_request_agree_in_the_attribute_of_a_constraint() -> None:
    slices = [slice_("s1", device("a"), device("b", "A100"), device("c"))]
    constraint = {"matchAttribute": "drawbar.dev/model"}
    assert names(allocate(slices, request(count=2), constraints=[constraint])) == ["a", "c"]


def test_a_binding_device_ties_the_claim_to_its_node_and_brings_its_conditions() -> None:
    (answer,) = allocate([slice_("s1", device("a", **BINDING))], request())
    wire = msgspec.to_builtins(answer)
    field = {"key": "metadata.name", "operator": "In", "values": ("node-a",)}
    assert wire["nodeSelector"] == {"nodeSelectorTerms": ({"matchFields": (field,)},)}
    (result,) = wire["devices"]["results"]
    assert result["bindingConditions"] == ("drawbar.dev/attached",)
    assert result["bindingFailureConditions"] == ("drawbar.dev/attach-failed",)


def test_other_allocations_carry_the_selectors_of_their_slices_or_none() -> None:
    (everywhere,) = allocate(TWO, request())
    assert everywhere.node_selector is None
    (chassis,) = allocate([slice_("s1", device("a"), nodeSelector=HERE)], request())
    assert chassis.node_selector == msgspec.convert(HERE, objects.NodeSelector)


def test_configuration_comes_from_the_class_first_and_then_from_the_claim() -> None:
    config = [
        {"requests": ["one"], "opaque": {"driver": DRIVER, "parameters": {"b": 1}}},
        {"requests": ["another"], "opaque": {"driver": DRIVER, "parameters": {"c": 1}}},
    ]
    (answer,) = allocate(TWO, request(), config=config)
    assert [(one.source, one.requests) for one in answer.devices.config] == [
        ("FromClass", ("one",)),
        ("FromClaim", ("one",)),
    ]


def test_a_search_that_cannot_end_well_is_given_up() -> None:
    many = [slice_("s1", *(device(f"d{number}", f"m{number}") for number in range(40)))]
    answer = allocate(many, request(count=8), constraints=[{"matchAttribute": "drawbar.dev/model"}])
    assert "gave up" in names(answer)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('device.attributes["drawbar.dev"].model.startsWith("H")', True),
        ('device.attributes["drawbar.dev"].slots > 3', True),
        ('device.attributes["vendor.example"].family == "x"', True),
        ('has(device.attributes["drawbar.dev"].absent)', False),
        ('has(device.attributes["absent.example"].absent)', False),
        ('device.capacity["drawbar.dev"].memory.compareTo(quantity("40Gi")) > 0', True),
        ('device.capacity["drawbar.dev"].memory.isLessThan(quantity("81G"))', False),
        ('device.attributes["drawbar.dev"].firmware.compareTo(semver("1.10.0-rc.1")) > 0', True),
        ('device.attributes["drawbar.dev"].firmware.isGreaterThan(semver("1.10.1"))', False),
        ('device.attributes["drawbar.dev"].firmware.major() == 1', True),
        ('device.attributes["drawbar.dev"].model.lowerAscii() == "h100"', True),
    ],
)
def test_selectors_understand_what_kubernetes_adds_to_cel(expression: str, expected: bool) -> None:
    attributes: dict[str, Json] = {
        "model": {"string": "H100"},
        "slots": {"int": 4},
        "vendor.example/family": {"string": "x"},
        "firmware": {"version": "1.10.0"},
    }
    one = objects.Device(name="a", attributes=attributes, capacity={"memory": {"value": "80Gi"}})
    assert selectors.matches(expression, DRIVER, one) is expected


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ('device.attributes["drawbar.dev"].absent == 1', "no such key: absent"),
        ("device.driver ==", "compilation failed"),
        ("device.driver", "not bool"),
        ("nonsense(1)", "nonsense"),
    ],
)
def test_a_faulty_selector_is_an_error_that_names_its_fault(expression: str, words: str) -> None:
    with pytest.raises(selectors.SelectorError, match=words):
        selectors.matches(expression, DRIVER, objects.Device(name="a"))


@pytest.mark.parametrize(
    ("text", "number"), [("80Gi", 80 * 2**30), ("1.5k", 1500), ("100m", 0.1), ("2e3", 2000), ("7", 7)]
)
def test_quantities_become_numbers(text: str, number: float) -> None:
    assert selectors.quantity(text) == number


@pytest.mark.parametrize("text", ["", "x", "1Zi", "1..2"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no quantity"):
        selectors.quantity(text)


@pytest.mark.parametrize(
    ("operator", "values", "holds"),
    [
        ("In", ["1"], True),
        ("NotIn", ["1"], False),
        ("Exists", [], True),
        ("DoesNotExist", [], False),
        ("Gt", ["0"], True),
        ("Lt", ["0"], False),
        ("Gt", ["x"], False),
        ("Near", ["1"], False),
    ],
)
def test_node_selector_operators(operator: str, values: list[str], holds: bool) -> None:
    term = {"matchExpressions": [{"key": "chassis", "operator": operator, "values": values}]}
    assert (
        matching.selects(msgspec.convert({"nodeSelectorTerms": [term]}, objects.NodeSelector), NODE) is holds
    )
