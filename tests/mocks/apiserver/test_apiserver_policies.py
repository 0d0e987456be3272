"""ValidatingAdmissionPolicies: what they select, see and refuse, beyond the rules of the contract."""

from typing import Any

import pytest

from drawbar.mocks.apiserver import expressions, optionals

GROUP = "/apis/admissionregistration.k8s.io/v1"
MAPS = "/api/v1/namespaces/default/configmaps"


def policy(**spec: Any) -> dict[str, Any]:
    whole = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}
    base = {"matchConstraints": {"resourceRules": [whole]}, "validations": [{"expression": "true"}]}
    return {"metadata": {"name": "p"}, "spec": base | spec}


def of_maps(validation: dict[str, Any], **rule: Any) -> dict[str, Any]:
    """Return a policy with one validation for writes of config maps, or for what the rule names instead."""
    whole = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}
    constraints = {"resourceRules": [whole | rule]}
    return policy(matchConstraints=constraints, validations=[validation])


async def enforce(api: Any, body: dict[str, Any], *actions: str, **binding: Any) -> None:
    made = await api.post(f"{GROUP}/validatingadmissionpolicies", body)
    assert made.code == 201, made.body
    bound = {"metadata": {"name": "b"}, "spec": {"policyName": body["metadata"]["name"], **binding}}
    bound["spec"]["validationActions"] = list(actions or ("Deny",))
    made = await api.post(f"{GROUP}/validatingadmissionpolicybindings", bound)
    assert made.code == 201, made.body


@pytest.mark.parametrize(
    "change",
    [
        {"operations": ["UPDATE"]},
        {"resources": ["configmaps/status"]},
        {"apiGroups": ["apps"]},
        {"apiVersions": ["v2"]},
        {"resourceNames": ["two"]},
        {"scope": "Cluster"},
    ],
)
async def test_a_rule_that_means_another_write_does_not_apply(
    api: Any, make_config_map: Any, change: Any
) -> None:
    rule = {"operations": ["CREATE"], "resources": ["*"]} | change
    await enforce(api, of_maps({"expression": "false"}, **rule))
    assert (await api.post(MAPS, make_config_map())).code == 201


@pytest.mark.parametrize(
    ("selector", "code"),
    [
        ({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}}, 422),
        ({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "other"}}}, 201),
        ({"objectSelector": {"matchExpressions": [{"key": "guard", "operator": "Exists"}]}}, 201),
        ({"objectSelector": {"matchExpressions": [{"key": "guard", "operator": "DoesNotExist"}]}}, 422),
    ],
)
async def test_a_binding_narrows_its_policy_by_selectors(
    api: Any, make_config_map: Any, selector: Any, code: int
) -> None:
    await enforce(api, of_maps({"expression": "false"}), "Deny", matchResources=selector)
    assert (await api.post(MAPS, make_config_map())).code == code


async def test_expressions_see_the_request_its_namespace_and_a_dry_run(
    api: Any, make_config_map: Any
) -> None:
    seen = (
        "request.kind.kind == 'ConfigMap' && request.resource.resource == 'configmaps' && request.name == 'one' && "
        "request.namespace == 'default' && request.operation == 'CREATE' && oldObject == null && "
        "namespaceObject.metadata.name == 'default' && 'system:masters' in request.userInfo.groups && "
        "object.kind == 'ConfigMap' && !has(request.subResource) && !request.dryRun"
    )
    await enforce(api, of_maps({"expression": seen}))
    assert (await api.post(MAPS, make_config_map(), dryRun="All")).code == 422
    assert (await api.post(MAPS, make_config_map())).code == 201


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"validations": [{"expression": "object.("}]}, "spec.validations[0].expression"),
        ({"validations": [{"expression": ""}]}, "spec.validations[0].expression"),
        ({"validations": []}, "spec.validations"),
        ({"matchConstraints": {}}, "spec.matchConstraints"),
        ({"failurePolicy": "Maybe"}, "spec.failurePolicy"),
        ({"variables": [{"name": "a-b", "expression": "1"}]}, "spec.variables[0].name"),
        ({"matchConditions": [{"name": "x", "expression": "a.?("}]}, "spec.matchConditions[0].expression"),
    ],
)
async def test_a_policy_that_cannot_work_is_refused(api: Any, spec: Any, field: str) -> None:
    refused = await api.post(f"{GROUP}/validatingadmissionpolicies", policy(**spec))
    assert refused.code == 422
    assert field in [cause["field"] for cause in refused.body["details"]["causes"]]


async def test_a_binding_cannot_both_deny_and_warn(api: Any) -> None:
    body = {"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny", "Warn"]}}
    refused = await api.post(f"{GROUP}/validatingadmissionpolicybindings", body)
    assert "must not contain both Deny and Warn" in refused.body["message"]


@pytest.mark.parametrize(
    ("text", "variables", "value"),
    [
        ("a.?b.orValue(1)", {"a": {}}, 1),
        ("a.?b.c[0].orValue('x')", {"a": {"b": {"c": ["y"]}}}, "y"),
        ("a[?'k/n'].hasValue()", {"a": {"k/n": 1}}, True),
        ("[1, 2].exists(i, i == a.?n.orValue(2))", {"a": {}}, True),
        ("(a.?on.orValue(false) ? a : b).name", {"a": {"name": "a"}, "b": {"name": "b"}}, "b"),
        ("'a.?b' == \"a.?b\" && a.?x.orValue(true)", {"a": {}}, True),
        ("[1, 2].sum()", {}, 3),
        ("'A,B'.lowerAscii().split(',').join('-')", {}, "a-b"),
    ],
)
def test_kubernetes_additions_to_cel_are_understood(text: str, variables: Any, value: Any) -> None:
    assert expressions.evaluate(text, variables) == value


@pytest.mark.parametrize("text", ["a.?(b)", "a[?1", "a.?b("])
def test_broken_optional_syntax_is_found(text: str) -> None:
    assert expressions.problem(text) is not None


def test_text_without_optional_syntax_is_left_alone() -> None:
    text = "a.b[0] == 'x' // [ comment"
    assert optionals.rewrite_optionals(text) == text


def test_an_expression_takes_only_the_variables_that_it_names():
    assert expressions.evaluate("object.a == 1", {"object": {"a": 1}, "oldObject": object()}) is True
