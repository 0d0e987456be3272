"""Which changes of a CRD an upgrade and a rollback outlive, and which do not."""

import copy

import pytest

from drawbar.mocks.testing import schemachanges

SCHEMA = {
    "type": "object",
    "required": ["name", "size"],
    "properties": {
        "name": {"type": "string", "maxLength": 10, "pattern": "^a"},
        "size": {"type": "integer", "minimum": 1, "maximum": 9, "default": 2},
        "mode": {"type": "string", "enum": ["a", "b"]},
        "list": {"type": "array", "maxItems": 5, "items": {"type": "string"}},
        "map": {"type": "object", "additionalProperties": {"type": "string"}},
        "note": {"type": "string"},
    },
    "x-kubernetes-validations": [{"rule": "self.size < 9", "message": "m"}],
}
BASE = {
    "spec": {
        "group": "g",
        "scope": "Cluster",
        "names": {"kind": "K", "plural": "ks"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "selectableFields": [{"jsonPath": ".spec.a"}],
                "schema": {"openAPIV3Schema": SCHEMA},
            }
        ],
    }
}


def changed(path, value):
    """The definition with one place set, or with None removed."""
    schema = copy.deepcopy(BASE)
    *steps, last = path
    at = schema["spec"]["versions"][0]
    at = schema["spec"] if steps and steps[0] == "spec" else at
    for step in steps[1:] if steps and steps[0] == "spec" else steps:
        at = at["schema"]["openAPIV3Schema"] if step == "schema" else at["properties"][step]
    if value is None:
        at.pop(last)
    else:
        at[last] = value
    return schema


ADDED = {"type": "string"}
RULES = SCHEMA["x-kubernetes-validations"]
BREAKING = {
    "another scope": (("spec", "scope"), "Namespaced", "scope was Cluster, is Namespaced"),
    "another name": (("spec", "names"), {"kind": "K", "plural": "kk"}, "plural was ks, is kk"),
    "a version gone": (("spec", "versions"), [], "version v1 is gone"),
    "not served": (("served",), False, "is not served any more"),
    "no status": (("subresources",), None, "the subresource status is gone"),
    "no selecting": (("selectableFields",), [], ".spec.a cannot be selected"),
    "a field gone": (
        ("schema", "properties"),
        {key: value for key, value in SCHEMA["properties"].items() if key != "note"},
        ".note: it is gone",
    ),
    "another type": (("schema", "note", "type"), "integer", ".note: type was string, is integer"),
    "null": (("schema", "note", "nullable"), True, ".note: may be null"),
    "now required": (("schema", "required"), ["name", "size", "note"], ".note: it is required now"),
    "not required": (("schema", "required"), ["size"], ".name: it may be absent now"),
    "a shorter text": (("schema", "name", "maxLength"), 9, ".name: maxLength was 10, is 9"),
    "a limit that is new": (("schema", "note", "maxLength"), 9, ".note: maxLength was None, is 9"),
    "a higher minimum": (("schema", "size", "minimum"), 2, ".size: minimum was 1, is 2"),
    "another pattern": (("schema", "name", "pattern"), "^b", ".name: pattern was ^a, is ^b"),
    "a format": (("schema", "note", "format"), "date-time", ".note: format was None"),
    "a value gone": (("schema", "mode", "enum"), ["a"], ".mode: the value b is refused now"),
    "a value new": (("schema", "mode", "enum"), ["a", "b", "c"], ".mode: the value c is new"),
    "a list of values": (("schema", "note", "enum"), ["a"], ".note: the list of values"),
    "another default": (("schema", "size", "default"), 3, ".size: an absent one meant 2, means 3"),
    "another list": (
        ("schema", "list", "x-kubernetes-list-type"),
        "set",
        ".list: x-kubernetes-list-type was atomic",
    ),
    "other items": (("schema", "list", "items"), {"type": "integer"}, ".list[]: type was string"),
    "other members": (
        ("schema", "map", "additionalProperties"),
        {"type": "integer"},
        ".map.*: type was string",
    ),
    "no members": (("schema", "map", "additionalProperties"), None, ".map: other members are allowed"),
    "a rule": (
        ("schema", "x-kubernetes-validations"),
        [*RULES, {"rule": "self.size > 1", "message": "m"}],
        "the rule is new: self.size > 1",
    ),
    "one of several": (("schema", "anyOf"), [{"required": ["mode"]}], "anyOf is another one"),
}


@pytest.mark.parametrize(("path", "value", "words"), BREAKING.values(), ids=BREAKING)
def test_a_change_that_would_break_an_upgrade_or_a_rollback_is_named(path, value, words):
    (said,) = schemachanges.incompatible(BASE, changed(path, value))
    assert words in said


HARMLESS = {
    "a new field": (("schema", "properties"), {**SCHEMA["properties"], "more": ADDED}),
    "a description": (("schema", "note", "description"), "words"),
    "a longer text": (("schema", "name", "maxLength"), 11),
    "no limit": (("schema", "name", "maxLength"), None),
    "a lower minimum": (("schema", "size", "minimum"), 0),
    "no pattern": (("schema", "name", "pattern"), None),
    "no rule": (("schema", "x-kubernetes-validations"), None),
    "a rule written in other lines": (("schema", "x-kubernetes-validations"), [{"rule": "self.size\n < 9"}]),
    "a new field that must be there and has a default": (
        ("schema",),
        {
            "openAPIV3Schema": {
                **SCHEMA,
                "required": ["name", "size", "more"],
                "properties": {**SCHEMA["properties"], "more": ADDED | {"default": "a"}},
            }
        },
    ),
    "columns": (("additionalPrinterColumns",), [{"name": "A", "jsonPath": ".a", "type": "string"}]),
}


@pytest.mark.parametrize(("path", "value"), HARMLESS.values(), ids=HARMLESS)
def test_a_change_that_both_versions_can_live_with_is_not(path, value):
    assert schemachanges.incompatible(BASE, changed(path, value)) == ()
