"""CEL rules of custom resources (``x-kubernetes-validations``).

A rule that reads ``oldSelf`` is a transition rule. It is evaluated on updates only, if there is an old value: maps by
key, keyed lists by their keys; items of other lists have none. The functions are those of plain CEL. Kubernetes' own
extension libraries (quantities, URLs, IP addresses) are missing. A rule that calls them fails with a message.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from drawbar.mocks.apiserver import celchecks, errors, expressions
from drawbar.mocks.apiserver.errors import Cause

Json = dict[str, Any]
_ABSENT = object()
_STRING: Json = {"type": "string"}
_IDENTITY: Json = {  # further fields for rules at the root
    "apiVersion": _STRING,
    "kind": _STRING,
    "metadata": {"type": "object", "properties": {"name": _STRING, "generateName": _STRING}},
}
_BLOCKING = frozenset(
    f"FieldValue{kind}" for kind in ("NotSupported", "Required", "TooLong", "TooMany", "TypeInvalid")
)
_OLD = re.compile(r"\boldSelf\b")
_REASONS = {
    "FieldValueForbidden": "Forbidden",
    "FieldValueRequired": "Required value",
    "FieldValueDuplicate": "Duplicate value",
}


def check_compilation(schema: Json, path: str = "", *, root: bool = True) -> Iterator[Cause]:
    """Yield a problem for every rule that does not compile against its schema."""
    complete = {**schema, "properties": {**(schema.get("properties") or {}), **_IDENTITY}} if root else schema
    for number, rule in enumerate(schema.get("x-kubernetes-validations") or ()):
        for key, wanted in (("rule", "bool"), ("messageExpression", "string")):
            text = rule.get(key)
            if text is None:
                continue
            variables = {"self": complete, "oldSelf": complete}
            problem = expressions.problem(text) or celchecks.problem(text, variables, wanted=wanted)
            if problem is not None:
                where = f"{path}.x-kubernetes-validations[{number}].{key}"
                yield errors.invalid_value(where, text, f"compilation failed: {problem}")
    for key, inner in (schema.get("properties") or {}).items():
        yield from check_compilation(inner, f"{path}.properties[{key}]", root=False)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from check_compilation(schema[key], f"{path}.{key}", root=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleTree:
    """The CEL rules of one place of a schema, and of the places below it.

    A place without rules in or below it is None.

    Attributes:
        rules: the rules of the place itself.
        properties: the places of the declared keys.
        additional: the place of the values of all other keys.
        items: the place of a list's items.
        keys: the keys of a list of type `map`; empty for other lists, whose items have no old values.
    """

    rules: tuple[Json, ...]
    properties: Mapping[str, RuleTree | None]
    additional: RuleTree | None
    items: RuleTree | None
    keys: tuple[str, ...]


def read_rules(schema: Any) -> RuleTree | None:
    """Return the rules of a schema; None if there are none, or if ``schema`` is no schema."""
    if not isinstance(schema, dict):
        return None
    properties = {key: read_rules(inner) for key, inner in (schema.get("properties") or {}).items()}
    is_map = schema.get("x-kubernetes-list-type") == "map"
    tree = RuleTree(
        rules=tuple(schema.get("x-kubernetes-validations") or ()),
        properties=MappingProxyType(properties),
        additional=read_rules(schema.get("additionalProperties")),
        items=read_rules(schema.get("items")),
        keys=tuple((is_map and schema.get("x-kubernetes-list-map-keys")) or ()),
    )
    return tree if tree.rules or tree.additional or tree.items or any(properties.values()) else None


def find_blocking_error(broken: Iterable[Cause], tree: RuleTree | None) -> list[Cause]:
    """Return the error instead of an evaluation of rules for a broken object; empty to evaluate them.

    A wrong value does not prevent the evaluation. A wrong type, a missing field, an unknown value of an enumeration
    and excessive length do.

    Source: hasBlockingErr, apiextensions-apiserver/pkg/registry/customresource/strategy.go.
    """
    if tree is None or not any(cause.reason in _BLOCKING for cause in broken):
        return []
    text = (
        "some validation rules were not checked because the object was invalid; correct the existing errors to "
        "complete validation"
    )
    return [errors.invalid_value("<nil>", None, text)]


def validate(item: Json, tree: RuleTree | None, old: Any = _ABSENT) -> Iterator[Cause]:
    """Yield every rule broken by an object, or by the change from ``old`` to it.

    Of its metadata, rules see name and generateName.
    """
    if tree is not None:
        before = old if old is _ABSENT else _with_identity(old)
        yield from _validate(_with_identity(item), tree, before, "")


def _with_identity(item: Json) -> Json:
    shown = {key: text for key, text in item["metadata"].items() if key in ("name", "generateName")}
    return {**item, "metadata": shown}


def _validate(value: Any, tree: RuleTree, old: Any, path: str) -> Iterator[Cause]:
    scope = expressions.Scope({"self": value} if old is _ABSENT else {"self": value, "oldSelf": old})
    for rule in tree.rules:
        cause = _evaluate(rule, scope, path)
        if cause is not None:
            yield cause
    if isinstance(value, dict):
        for key, inner in value.items():
            below = tree.properties.get(key, tree.additional)
            if below is not None:
                before = old.get(key, _ABSENT) if isinstance(old, dict) else _ABSENT
                yield from _validate(inner, below, before, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and tree.items is not None:
        for index, item in enumerate(value):
            yield from _validate(item, tree.items, _old_item(item, tree.keys, old), f"{path}[{index}]")


def _old_item(item: Any, keys: Sequence[str], old: Any) -> Any:
    if not keys or not isinstance(old, list):
        return _ABSENT
    identity = [item.get(key) for key in keys]
    return next((held for held in old if [held.get(key) for key in keys] == identity), _ABSENT)


def _evaluate(rule: Json, scope: expressions.Scope, path: str) -> Cause | None:
    text, value = rule["rule"], scope.variables["self"]
    if "oldSelf" not in scope.variables and _OLD.search(text):
        return None
    where = path + rule.get("fieldPath", "") if path else rule.get("fieldPath", "").lstrip(".")
    shown = "object" if isinstance(value, dict) else "array" if isinstance(value, list) else value
    try:
        holds = scope.evaluate(text)
    except expressions.EvaluationError as error:
        return errors.invalid_value(where, shown, f"rule evaluation error: {text}: {error}")
    if holds is True:
        return None
    message = rule.get("message") or _computed_message(rule, scope) or f"failed rule: {text}"
    reason = rule.get("reason", "FieldValueInvalid")
    if reason in _REASONS:
        return Cause(field=where, reason=reason, message=f"{_REASONS[reason]}: {message}")
    return errors.invalid_value(where, shown, message)


def _computed_message(rule: Json, scope: expressions.Scope) -> str:
    if "messageExpression" not in rule:
        return ""
    try:
        return str(scope.evaluate(rule["messageExpression"]))
    except expressions.EvaluationError:
        return ""  # as in Kubernetes, the rule itself is the message then
