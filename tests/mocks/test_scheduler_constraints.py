"""Constraints between the devices of one claim; pure."""

import msgspec
import pytest

from drawbar.mocks.scheduler import constraints, objects, pools


def candidate(**attributes):
    """Return a device of the driver drawbar.dev; each attribute has the type of its value."""
    kinds = {int: "int", str: "string", bool: "bool"}
    named = {name.replace("__", "/"): {kinds[type(value)]: value} for name, value in attributes.items()}
    spec = msgspec.convert({"driver": "drawbar.dev", "pool": {"name": "pool"}}, objects.SliceSpec)
    device = objects.Device(name="a", attributes=named)
    return pools.Candidate(id=("drawbar.dev", "pool", "a"), device=device, slice=spec)


MATCH = {"matchAttribute": "drawbar.dev/n"}
DISTINCT = {"distinctAttribute": "drawbar.dev/n"}
NUMA = {"matchAttribute": "numa/n"}


@pytest.mark.parametrize(
    ("constraint", "chosen", "added", "holds"),
    [
        pytest.param(MATCH, [], candidate(n=1), True, id="the-first-one"),
        pytest.param(MATCH, [], candidate(), False, id="the-first-one-without-the-attribute"),
        pytest.param(MATCH, [candidate(n=1)], candidate(n=1), True, id="agree"),
        pytest.param(MATCH, [candidate(n=1)], candidate(n=2), False, id="disagree"),
        pytest.param(MATCH, [candidate(n=1)], candidate(n=True), False, id="disagree-in-type"),
        pytest.param(MATCH, [candidate(n="1")], candidate(n=1), False, id="a-text-is-no-number"),
        pytest.param(DISTINCT, [candidate(n=1)], candidate(n=2), True, id="differ"),
        pytest.param(DISTINCT, [candidate(n=1), candidate(n=2)], candidate(n=1), False, id="as-one-of-them"),
        pytest.param(DISTINCT, [candidate(n=1)], candidate(n=True), True, id="differ-in-type"),
        pytest.param(DISTINCT, [], candidate(), False, id="distinct-needs-the-attribute-too"),
        pytest.param(NUMA, [], candidate(n=1), False, id="an-attribute-of-another-domain"),
        pytest.param(NUMA, [], candidate(numa__n=1), True, id="an-attribute-with-its-domain"),
        pytest.param(MATCH, [], candidate(drawbar_dev__n=1), False, id="a-domain-that-only-looks-alike"),
    ],
)
def test_one_more_device_keeps_the_constraint_or_breaks_it(constraint, chosen, added, holds):
    rule = msgspec.convert(constraint, objects.Constraint)
    assert constraints.are_met([rule], [("one", other) for other in chosen], ("one", added)) is holds


@pytest.mark.parametrize(
    ("requests", "request_name", "meant"),
    [
        ((), "one", True),
        (("one",), "one", True),
        (("one",), "one/large", True),
        (("one/large",), "one/large", True),
        (("one/large",), "one/small", False),
        (("two",), "one", False),
    ],
)
def test_a_list_of_requests_means_alternatives_too(requests, request_name, meant):
    assert constraints.names(requests, request_name) is meant


def test_devices_of_requests_that_are_not_named_do_not_count():
    rule = msgspec.convert({**MATCH, "requests": ["one"]}, objects.Constraint)
    assert constraints.are_met([rule], [("two", candidate(n=2))], ("one", candidate(n=1)))
    assert constraints.are_met([rule], [("one", candidate(n=2))], ("two", candidate(n=1)))
