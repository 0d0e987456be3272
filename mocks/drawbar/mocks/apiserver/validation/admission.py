"""Rules of ValidatingAdmissionPolicies and their bindings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from drawbar.mocks.apiserver import celchecks, errors, expressions
from drawbar.mocks.apiserver.errors import Cause
from drawbar.mocks.apiserver.validation import lists, names

Json = dict[str, Any]

ACTIONS = ("Audit", "Deny", "Warn")
OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
REASONS = ("Forbidden", "Invalid", "RequestEntityTooLarge", "Unauthorized")
MAX_MATCH_CONDITIONS = 64


def add_policy_defaults(spec: Json) -> Json:
    """Return the spec of a policy with the defaults of the API server."""
    match = spec.get("matchConstraints")
    done = {"failurePolicy": "Fail", **spec}
    if match:
        done["matchConstraints"] = _add_match_defaults(match)
    return done


def add_binding_defaults(spec: Json) -> Json:
    """Return the spec of a binding with the defaults of the API server."""
    match = spec.get("matchResources")
    return {**spec, "matchResources": _add_match_defaults(match)} if match else spec


def _add_match_defaults(match: Json) -> Json:
    done = {"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}, **match}
    for key in ("resourceRules", "excludeResourceRules"):
        if done.get(key):
            done[key] = [{"scope": "*", **rule} for rule in done[key]]
    return done


def check_policy(spec: Json) -> Iterator[Cause]:
    """Yield every rule broken by a policy."""
    if spec["failurePolicy"] not in ("Fail", "Ignore"):
        yield errors.unsupported_value("spec.failurePolicy", spec["failurePolicy"], ("Fail", "Ignore"))
    match = spec.get("matchConstraints")
    if not match:
        yield errors.required_value("spec.matchConstraints")
    elif not match.get("resourceRules"):
        yield errors.required_value("spec.matchConstraints.resourceRules")
    else:
        yield from _match(match, "spec.matchConstraints")
    if not spec.get("validations") and not spec.get("auditAnnotations"):
        text = "validations or auditAnnotations must be non-empty"
        yield errors.required_value("spec.validations", text)
    conditions = spec.get("matchConditions") or []
    yield from lists.check_distinct(
        conditions,
        "spec.matchConditions",
        _check_condition,
        lambda item: item.get("name"),
        limit=MAX_MATCH_CONDITIONS,
    )
    variables = spec.get("variables") or []
    yield from lists.check_distinct(variables, "spec.variables", _variable, lambda item: item.get("name"))
    for index, variable in enumerate(variables):
        # A variable can use only earlier ones.
        yield from _expression(variable, f"spec.variables[{index}]", wanted="", declared=variables[:index])
    yield from lists.check_each(
        spec.get("validations") or [],
        "spec.validations",
        lambda item, path: _validation(item, path, variables or None),
    )


def check_binding(spec: Json) -> Iterator[Cause]:
    """Yield every rule broken by a binding."""
    if not spec.get("policyName"):
        yield errors.required_value("spec.policyName")
    else:
        yield from names.subdomain(spec["policyName"], "spec.policyName")
    actions = spec.get("validationActions") or []
    if not actions:
        yield errors.required_value("spec.validationActions")
    for index, action in enumerate(actions):
        path = f"spec.validationActions[{index}]"
        if action not in ACTIONS:
            yield errors.unsupported_value(path, action, ACTIONS)
        elif action in actions[:index]:
            yield errors.duplicate_value(path, action)
    if {"Deny", "Warn"} <= set(actions):
        text = "must not contain both Deny and Warn (repeating the same validation failure information)"
        yield errors.invalid_value("spec.validationActions", actions, text)
    if spec.get("matchResources"):
        yield from _match(spec["matchResources"], "spec.matchResources")


def _match(match: Json, path: str) -> Iterator[Cause]:
    for key in ("resourceRules", "excludeResourceRules"):
        yield from lists.check_each(match.get(key) or [], f"{path}.{key}", _rule)


def _rule(rule: Json, path: str) -> Iterator[Cause]:
    for key in ("operations", "apiGroups", "apiVersions", "resources"):
        if not rule.get(key):
            yield errors.required_value(f"{path}.{key}")
    for index, operation in enumerate(rule.get("operations") or ()):
        if operation not in OPERATIONS:
            yield errors.unsupported_value(f"{path}.operations[{index}]", operation, OPERATIONS)


def _expression(
    item: Json,
    path: str,
    key: str = "expression",
    *,
    wanted: str = "bool",
    declared: Sequence[Json] | None = None,
) -> Iterator[Cause]:
    text = (item.get(key) or "").strip()
    if not text:
        yield errors.required_value(f"{path}.{key}", f"{key} is not specified")
        return
    variables = dict(celchecks.ADMISSION)
    if declared is not None:
        fields: Json = {variable.get("name") or "": {} for variable in declared}
        variables["variables"] = {"type": "object", "properties": fields}
    problem = expressions.problem(text) or celchecks.problem(text, variables, wanted=wanted)
    if problem is not None:
        yield errors.invalid_value(f"{path}.{key}", text, f"compilation failed: {problem}")


def _check_condition(condition: Json, path: str) -> Iterator[Cause]:
    if not condition.get("name"):
        yield errors.required_value(f"{path}.name")
    else:
        yield from names.label_name(condition["name"], f"{path}.name")
    yield from _expression(condition, path)


def _variable(variable: Json, path: str) -> Iterator[Cause]:
    name = variable.get("name") or ""
    if not name.isidentifier():
        yield errors.invalid_value(f"{path}.name", name, "name is not a valid CEL identifier")


def _validation(validation: Json, path: str, variables: Sequence[Json] | None) -> Iterator[Cause]:
    yield from _expression(validation, path, declared=variables)
    if "messageExpression" in validation:
        yield from _expression(validation, path, "messageExpression", wanted="string", declared=variables)
    if validation.get("reason") and validation["reason"] not in REASONS:
        yield errors.unsupported_value(f"{path}.reason", validation["reason"], REASONS)
    if "\n" in (validation.get("message") or ""):
        text = "message must not contain line breaks"
        yield errors.invalid_value(f"{path}.message", validation["message"], text)
