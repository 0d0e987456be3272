"""What the scheduler double reads: CEL selectors, quantities, node selectors."""

from typing import Any

import msgspec
import pytest

from drawbar.mocks.scheduler import matching, objects, selectors

Json = dict[str, Any]
DRIVER = "drawbar.dev"
NODE = matching.Node(name="node-a", labels={"chassis": "1"})


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
        ("device.allowMultipleAllocations", False),
    ],
)
def test_selectors_understand_the_cel_extensions_of_kubernetes(expression: str, expected: bool) -> None:
    attributes: dict[str, Json] = {
        "model": {"string": "H100"},
        "slots": {"int": 4},
        "vendor.example/family": {"string": "x"},
        "firmware": {"version": "1.10.0"},
    }
    device = objects.Device(name="a", attributes=attributes, capacity={"memory": {"value": "80Gi"}})
    assert selectors.matches(expression, DRIVER, device) is expected


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
def test_an_invalid_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
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
