"""ValidatingAdmissionPolicy: rules in CEL that an administrator sets beside the kinds' own."""

import pytest

RULE = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE", "UPDATE"],
    "resources": ["configmaps"],
}


@pytest.fixture
async def enforcement(world):
    """Put a policy into force for objects of our namespace that carry a label of this test's own."""

    async def enforce(*validations, rule=None, actions=("Deny",), **spec):
        group = world.name("group")
        name = world.name("policy")
        await world.make(
            "validatingadmissionpolicies",
            name,
            spec={
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [rule or RULE]},
                "validations": list(validations),
                **spec,
            },
        )
        resources = {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": world.namespace}},
            "objectSelector": {"matchLabels": {"contract.drawbar.dev/group": group}},
        }
        await world.make(
            "validatingadmissionpolicybindings",
            spec={"policyName": name, "validationActions": list(actions), "matchResources": resources},
        )
        return {"labels": {"contract.drawbar.dev/group": group}}

    return enforce


async def post_until_refused(world, metadata, **fields):
    """Post an object until the policy is in force; return the refusal."""

    async def attempt():
        return await world.post(
            "configmaps", world.body("configmaps", world.name(), metadata=metadata, **fields)
        )

    return await world.eventually(attempt, lambda reply: reply.code != 201)


async def test_a_policy_refuses_objects_by_its_expression(world, enforcement):
    ours = await enforcement(
        {"expression": "!has(object.data) || object.data.size() < 2", "message": "one entry at most"}
    )
    reply = await post_until_refused(world, ours, data={"a": "1", "b": "2"})
    assert (reply.code, reply.reason) == (422, "Invalid")
    assert "one entry at most" in reply.message
    assert "ValidatingAdmissionPolicy" in reply.message
    await world.make("configmaps", metadata=ours, data={"a": "1"})


async def test_a_policy_chooses_the_reason_of_its_refusal(world, enforcement):
    ours = await enforcement({"expression": "false", "message": "no", "reason": "Forbidden"})
    reply = await post_until_refused(world, ours)
    assert (reply.code, reply.reason) == (403, "Forbidden")


async def test_a_message_can_be_computed(world, enforcement):
    ours = await enforcement({"expression": "false", "messageExpression": "'not ' + object.metadata.name"})
    reply = await post_until_refused(world, ours)
    assert f"not {world.namespace}" in reply.message


async def test_a_policy_sees_the_old_object_and_the_user(world, enforcement):
    ours = await enforcement(
        {"expression": "oldObject == null || object.data == oldObject.data", "message": "data is fixed"},
        {"expression": f"request.userInfo.username != '{world.user('alice')}'", "message": "not alice"},
    )
    rights = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "get"]}
    await world.allow("alice", rights)
    alice = world.acting_as("alice")

    async def attempt():
        body = world.body("configmaps", world.name(), metadata=ours, data={"a": "1"})
        return await world.post("configmaps", body, client=alice)

    reply = await world.eventually(attempt, lambda reply: reply.code == 422)
    assert "not alice" in reply.message
    made = await world.make("configmaps", metadata=ours, data={"a": "1"})
    path = world.path("configmaps", made["metadata"]["name"])
    changed = await world.api.merge(path, {"data": {"a": "2"}})
    assert (changed.code, "data is fixed" in changed.message) == (422, True)
    assert (await world.api.merge(path, {"metadata": {"annotations": {"a": "b"}}})).code == 200


async def test_a_policy_holds_for_dry_runs_and_applying(world, enforcement):
    ours = await enforcement({"expression": "false", "message": "never"})
    await post_until_refused(world, ours)
    body = world.body("configmaps", name := world.name(), metadata=ours)
    assert (await world.post("configmaps", body, dryRun="All")).code == 422
    assert (await world.api.apply(world.path("configmaps", name), body)).code == 422


async def test_match_conditions_take_requests_out(world, enforcement):
    ours = await enforcement(
        {"expression": "false", "message": "never"},
        matchConditions=[{"name": "named", "expression": "has(object.data)"}],
    )
    await post_until_refused(world, ours, data={"a": "1"})
    await world.make("configmaps", metadata=ours)


async def test_variables_are_computed_once_and_used_by_name(world, enforcement):
    ours = await enforcement(
        {"expression": "variables.size < 2", "message": "too big"},
        variables=[{"name": "size", "expression": "has(object.data) ? object.data.size() : 0"}],
    )
    reply = await post_until_refused(world, ours, data={"a": "1", "b": "2"})
    assert "too big" in reply.message


async def test_a_policy_that_fails_refuses_unless_told_to_ignore(world, enforcement):
    ours = await enforcement({"expression": "object.data['missing'] == 'x'", "reason": "Forbidden"})
    reply = await post_until_refused(world, ours, data={"a": "1"})
    assert (reply.code, reply.reason, "no such key: missing" in reply.message) == (422, "Invalid", True)


async def test_a_policy_can_warn_instead(world, enforcement):
    ours = await enforcement({"expression": "false", "message": "think again"}, actions=("Warn",))

    async def attempt():
        return await world.post("configmaps", world.body("configmaps", world.name(), metadata=ours))

    reply = await world.eventually(attempt, lambda reply: "Warning" in reply.headers)
    assert reply.code == 201
    assert "think again" in reply.headers["Warning"]


async def test_a_policy_without_a_binding_does_nothing(world):
    spec = {
        "matchConstraints": {"resourceRules": [RULE]},
        "validations": [{"expression": "object.metadata.name != 'contract-never'"}],
    }
    await world.make("validatingadmissionpolicies", spec=spec)
    await world.make("configmaps")


async def test_an_expression_that_does_not_compile_is_refused(world):
    spec = {"matchConstraints": {"resourceRules": [RULE]}, "validations": [{"expression": "object.("}]}
    body = world.body("validatingadmissionpolicies", world.name(), spec=spec)
    reply = await world.post("validatingadmissionpolicies", body)
    assert (reply.code, reply.reason) == (422, "Invalid")
    assert "spec.validations[0].expression" in reply.causes


async def test_deletions_can_be_refused_by_the_old_object(world, enforcement):
    rule = {**RULE, "operations": ["DELETE"]}
    ours = await enforcement({"expression": "!has(oldObject.data)", "message": "still in use"}, rule=rule)
    made = await world.make("configmaps", metadata=ours, data={"a": "1"})
    path = world.path("configmaps", made["metadata"]["name"])
    reply = await world.eventually(
        lambda: world.api.delete(path, dryRun="All"), lambda reply: reply.code != 200
    )
    assert (reply.code, "still in use" in reply.message) == (422, True)
    assert (await world.api.merge(path, {"data": None})).code == 200
    assert (await world.api.delete(path)).code == 200


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("request.subResource == ''", "no such key: subResource"),
        ("request.requestSubResource == ''", "no such key: requestSubResource"),
        ("request.?subResource.orValue('') == ''", ""),
        ("!has(request.subResource) && !has(request.requestSubResource)", ""),
        ("has(request.dryRun) && request.dryRun == false", ""),
        ("request.kind.group == '' && request.resource.group == ''", ""),
        ("request.namespace == object.metadata.namespace && request.name == object.metadata.name", ""),
        ("oldObject == null", ""),
        ("request.options.kind == 'CreateOptions' && !has(request.options.dryRun)", ""),
        ("has(object.metadata.uid) && object.kind == 'ConfigMap' && object.apiVersion == 'v1'", ""),
        ("request.userInfo.extra['a'] == ['b']", "no such key: extra"),
    ],
)
async def test_an_empty_field_of_the_request_is_an_absent_key(world, enforcement, expression, words):
    ours = await enforcement(
        {"expression": "!has(object.data)", "message": "in force"}, {"expression": expression}
    )
    assert "in force" in (await post_until_refused(world, ours, data={"a": "1"})).message
    reply = await world.post("configmaps", world.body("configmaps", world.name(), metadata=ours))
    assert (reply.code, words in reply.message) == (422 if words else 201, True)


async def test_a_deletion_has_no_object_and_its_own_options(world, enforcement):
    validation = {
        "expression": "object == null && request.options.kind == 'DeleteOptions' && has(oldObject.data)",
        "message": "looked",
    }
    ours = await enforcement(validation, rule={**RULE, "operations": ["DELETE"]})
    for fields, refused_ in (({}, True), ({"data": {"a": "1"}}, False)):
        made = await world.make("configmaps", metadata=ours, **fields)
        path = world.path("configmaps", made["metadata"]["name"])
        if refused_:
            reply = await world.eventually(
                lambda path=path: world.api.delete(path, dryRun="All"), lambda reply: reply.code != 200
            )
            assert "looked" in reply.message
        else:
            assert (await world.api.delete(path)).code == 200
        if refused_:
            assert (await world.api.merge(path, {"data": {"a": "1"}})).code == 200


async def test_the_first_of_several_refusals_is_the_message_and_the_only_cause(world, enforcement):
    ours = await enforcement(
        {"expression": "false", "message": "first", "reason": "Forbidden"},
        {"expression": "false", "message": "second"},
    )
    reply = await post_until_refused(world, ours)
    assert (reply.code, "first" in reply.message) == (403, True)
    (cause,) = reply.body["details"]["causes"]
    assert cause["message"].endswith("denied request: first")


async def test_a_variable_that_fails_is_named_where_it_is_used(world, enforcement):
    ours = await enforcement(
        {"expression": "!has(object.data) || variables.missing == ''"},
        variables=[{"name": "missing", "expression": "object.data['missing']"}],
    )
    reply = await post_until_refused(world, ours, data={"a": "1"})
    assert 'composited variable "missing" fails to evaluate: no such key: missing' in reply.message
    await world.make("configmaps", metadata=ours)


@pytest.mark.parametrize(
    ("spec", "field", "missing"),
    [
        (
            {"variables": [{"name": "a", "expression": "variables.b"}, {"name": "b", "expression": "1"}]},
            "spec.variables[0].expression",
            "undefined field 'b'",
        ),
        (
            {"validations": [{"expression": "variables.none"}]},
            "spec.validations[0].expression",
            "undeclared reference to 'variables'",
        ),
        (
            {
                "variables": [{"name": "a", "expression": "1"}],
                "validations": [{"expression": "variables.none"}],
            },
            "spec.validations[0].expression",
            "undefined field 'none'",
        ),
        (
            {"validations": [{"expression": "has(request.object)"}]},
            "spec.validations[0].expression",
            "undefined field 'object'",
        ),
        (
            {"validations": [{"expression": "request.uid == ''"}]},
            "spec.validations[0].expression",
            "undefined field 'uid'",
        ),
    ],
    ids=[
        "a later variable",
        "no variables",
        "no such variable",
        "the object of a request",
        "the uid of a request",
    ],
)
async def test_a_policy_with_an_unknown_field_or_variable_is_refused(world, spec, field, missing):
    rules = {"matchConstraints": {"resourceRules": [RULE]}, "validations": [{"expression": "true"}]}
    body = world.body("validatingadmissionpolicies", world.name(), spec=rules | spec)
    reply = await world.post("validatingadmissionpolicies", body)
    assert (reply.code, reply.reason, field in reply.causes) == (422, "Invalid", True)
    assert missing in reply.message


@pytest.mark.parametrize(
    ("versions", "expression", "missing"),
    [
        (["v1"], "object.dta.size() < 2", "undefined field 'dta'"),
        (["v1"], "object.?metadata.?lables.hasValue()", "undefined field 'lables'"),
        (["v1"], "object.data.size() < 2 && has(object.metadata.labels)", ""),
        (["v1"], "dyn(object).dta.size() < 2", ""),
        (["*"], "object.dta.size() < 2", ""),
    ],
    ids=["a field", "an optional field", "all there", "of unknown type", "every version"],
)
async def test_a_field_that_the_kind_does_not_have_is_warned_of_in_the_status(
    world, versions, expression, missing
):
    spec = {
        "matchConstraints": {"resourceRules": [{**RULE, "apiVersions": versions}]},
        "validations": [{"expression": expression}],
    }
    made = await world.make("validatingadmissionpolicies", spec=spec)
    path = world.path("validatingadmissionpolicies", made["metadata"]["name"])
    reply = await world.eventually(
        lambda: world.api.get(path), lambda reply: "typeChecking" in (reply.body.get("status") or {})
    )
    assert reply.body["status"]["observedGeneration"] == 1
    warnings = reply.body["status"]["typeChecking"].get("expressionWarnings") or []
    assert [warning["fieldRef"] for warning in warnings] == (
        ["spec.validations[0].expression"] if missing else []
    )
    assert all(
        missing in warning["warning"] and "Kind=ConfigMap" in warning["warning"] for warning in warnings
    )
