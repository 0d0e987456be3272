"""Which nodes a node selector of a class matches."""

import pytest

from drawbar.driver.api import claims, core, meta
from drawbar.driver.controller.classic import observation

NODE = core.Node(metadata=meta.ObjectMeta(name="n1", labels={"zone": "a", "size": "3"}))


@pytest.mark.parametrize(
    ("key", "operator", "values", "holds"),
    [
        ("zone", "In", ("a", "b"), True),
        ("zone", "In", ("b",), False),
        ("zone", "NotIn", ("b",), True),
        ("gone", "NotIn", ("b",), True),
        ("zone", "Exists", (), True),
        ("gone", "Exists", (), False),
        ("gone", "DoesNotExist", (), True),
        ("size", "Gt", ("2",), True),
        ("size", "Gt", ("3",), False),
        ("size", "Lt", ("4",), True),
        ("zone", "Lt", ("4",), False),
        ("size", "Gt", (), False),
        ("zone", "Resembles", ("a",), False),
    ],
)
def test_a_requirement_of_a_node_selector(key, operator, values, holds):
    requirement = claims.FieldRequirement(key=key, operator=operator, values=values)
    term = claims.NodeSelectorTerm(match_expressions=(requirement,))
    assert observation.selects(claims.NodeSelector(node_selector_terms=(term,)), NODE) is holds


def test_a_term_without_requirements_takes_no_node_and_a_field_is_the_name():
    empty = claims.NodeSelectorTerm()
    field = claims.FieldRequirement(key="metadata.name", operator="In", values=("n1",))
    named = claims.NodeSelectorTerm(match_fields=(field,))
    assert not observation.selects(claims.NodeSelector(node_selector_terms=(empty,)), NODE)
    assert observation.selects(claims.NodeSelector(node_selector_terms=(empty, named)), NODE)
