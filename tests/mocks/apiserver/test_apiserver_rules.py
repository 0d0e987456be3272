"""The places of CEL rules in a custom resource's schema."""

import pytest

from drawbar.mocks.apiserver import rules

POSITIVE = {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 0"}]}
GROWING = {"type": "integer", "x-kubernetes-validations": [{"rule": "self >= oldSelf"}]}
PLAIN = {"type": "integer"}


def object_of(additional=None, **properties):
    return {"type": "object", "properties": properties, "additionalProperties": additional}


def find_broken(schema, value, old=None):
    def item(value):
        return {"metadata": {"name": "n"}, "at": value}

    tree = rules.read_rules(object_of(at=schema))
    before = () if old is None else (item(old),)
    return [cause.field for cause in rules.validate(item(value), tree, *before)]


@pytest.mark.parametrize(
    ("schema", "value", "broken"),
    [
        (object_of(a=POSITIVE, b=PLAIN), {"a": 0, "b": 0}, ["at.a"]),
        (object_of(POSITIVE, b=PLAIN), {"a": 0, "b": 0}, ["at.a"]),
        ({"type": "array", "items": POSITIVE}, [1, 0], ["at[1]"]),
        ({"type": "array", "items": object_of(a=POSITIVE)}, [{"a": 0}], ["at[0].a"]),
        (object_of(a=PLAIN), {"a": 0}, []),
    ],
    ids=("a declared key", "any other key", "an item", "a key of an item", "no rule"),
)
def test_a_rule_is_checked_where_the_schema_has_it(schema, value, broken):
    assert find_broken(schema, value) == broken


def test_a_rule_sees_the_old_value_of_the_same_key():
    assert find_broken(object_of(a=GROWING), {"a": 1}, {"a": 2}) == ["at.a"]


def test_a_rule_sees_the_old_item_only_in_a_keyed_list():
    items = {"type": "array", "items": object_of(name={"type": "string"}, size=GROWING)}
    keyed = items | {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    old = [{"name": "a", "size": 2}, {"name": "b", "size": 1}]
    new = [{"name": "b", "size": 1}, {"name": "a", "size": 1}]
    assert find_broken(keyed, new, old) == ["at[1].size"]
    assert find_broken(items, new, old) == []
