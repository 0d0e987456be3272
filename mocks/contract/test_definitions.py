"""CustomResourceDefinitions and the objects of their kinds."""

from typing import Any

import pytest

from contract import api

Json = dict[str, Any]

CONDITION = {
    "type": "object",
    "required": ["type"],
    "properties": {"type": {"type": "string"}, "status": {"type": "string"}},
}
SPEC = {
    "type": "object",
    "required": ["nodeName"],
    "x-kubernetes-validations": [
        {"rule": "!has(self.low) || !has(self.size) || self.low <= self.size", "message": "low is above size"}
    ],
    "properties": {
        "nodeName": {
            "type": "string",
            "maxLength": 20,
            "pattern": "^[a-z0-9-]+$",
            "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "nodeName is immutable"}],
        },
        "size": {"type": "integer", "minimum": 1, "maximum": 9, "default": 3},
        "low": {"type": "integer"},
        "mode": {"type": "string", "enum": ["fast", "safe"]},
        "port": {"x-kubernetes-int-or-string": True},
        "none": {"type": "string", "nullable": True},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "parts": {
            "type": "array",
            "maxItems": 4,
            "x-kubernetes-validations": [
                {"rule": "self.map(part, part.count).sum() <= 4", "message": "the parts are more than 4"}
            ],
            "items": {
                "type": "object",
                "properties": {"count": {"type": "integer", "maximum": 9, "default": 1}},
            },
        },
        "inner": {
            "type": "object",
            "default": {},
            "properties": {"deep": {"type": "string", "default": "yes"}},
        },
    },
}
STATUS = {
    "type": "object",
    "properties": {
        "phase": {"type": "string"},
        "conditions": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
            "items": CONDITION,
        },
    },
}
COLUMNS = [
    {"name": "Node", "type": "string", "jsonPath": ".spec.nodeName"},
    {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
    {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "priority": 1},
]


class Custom:
    """A definition of ours, and requests for its objects."""

    def __init__(self, world, definition: Json):
        self.world = world
        self.definition = definition
        spec = definition["spec"]
        self.kind = spec["names"]["kind"]
        self.collection = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
        self.api_version = f"{spec['group']}/{spec['versions'][0]['name']}"

    def body(self, name: str = "", spec: Json | None = None, **fields: Any) -> Json:
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "metadata": {"name": name or self.world.name("o")},
            "spec": {"nodeName": "a", **(spec or {})},
            **fields,
        }

    async def post(self, spec: Json | None = None, *, body: Json | None = None, **query: Any):
        whole = body if body is not None else self.body(spec=spec)
        reply = await self.world.api.post(self.collection, whole, **query)
        if reply.code == 201:
            self.world.remember(f"{self.collection}/{reply.body['metadata']['name']}")
        return reply

    async def make(self, spec: Json | None = None) -> Json:
        reply = await self.post(spec)
        assert reply.code == 201, reply.body
        return reply.body

    def path(self, item: Json) -> str:
        return f"{self.collection}/{item['metadata']['name']}"


def definition(world, **version: Any) -> Json:
    plural = f"widgets{world.name().replace('-', '')}"
    group = f"{world.driver}"
    schema = {"type": "object", "required": ["spec"], "properties": {"spec": SPEC, "status": STATUS}}
    whole = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": COLUMNS,
        "schema": {"openAPIV3Schema": schema},
        **version,
    }
    names = {
        "plural": plural,
        "singular": f"{plural}one",
        "kind": plural.capitalize(),
        "shortNames": [f"{plural}sn"],
    }
    spec = {"group": group, "scope": "Cluster", "names": names, "versions": [whole]}
    return world.body("customresourcedefinitions", f"{plural}.{group}", spec=spec)


async def establish_definition(world, body: Json) -> Custom:
    reply = await world.post("customresourcedefinitions", body)
    assert reply.code == 201, reply.body
    made = await world.until("customresourcedefinitions", body["metadata"]["name"], is_established)
    custom = Custom(world, made)
    await world.eventually(lambda: world.api.get(custom.collection), lambda reply: reply.code == 200)
    return custom


def is_established(definition: Json) -> bool:
    conditions = {c["type"]: c["status"] for c in definition.get("status", {}).get("conditions") or []}
    return conditions.get("Established") == "True" and conditions.get("NamesAccepted") == "True"


@pytest.fixture
async def custom(world):
    return await establish_definition(world, definition(world))


async def test_a_definition_that_was_just_made_has_null_for_conditions(world):
    body = definition(world)
    reply = await world.post("customresourcedefinitions", body)
    assert reply.code == 201
    assert reply.body["status"] == {
        "conditions": None,
        "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": ["v1alpha1"],
    }


async def test_a_definition_is_served_and_discovered_once_established(world, custom):
    names = custom.definition["spec"]["names"]
    reply = await world.eventually(
        lambda: world.api.get(f"/apis/{custom.api_version}"),
        lambda reply: reply.code == 200 and reply.body.get("resources"),
    )
    resources = {resource["name"]: resource for resource in reply.body["resources"]}
    assert resources[names["plural"]]["kind"] == names["kind"]
    assert resources[names["plural"]]["shortNames"] == names["shortNames"]
    assert resources[names["plural"]]["namespaced"] is False
    assert f"{names['plural']}/status" in resources


async def test_objects_of_a_definition_are_created_listed_and_deleted(world, custom):
    made = await custom.make()
    listed = await world.api.get(custom.collection)
    assert (listed.body["kind"], listed.names) == (f"{custom.kind}List", [made["metadata"]["name"]])
    assert listed.items[0]["kind"] == custom.kind
    assert (await world.api.delete(custom.path(made))).code == 200
    assert (await world.api.get(custom.path(made))).code == 404


@pytest.mark.parametrize(
    ("spec", "field", "reason"),
    [
        ({"size": 0}, "spec.size", "FieldValueInvalid"),
        ({"size": 10}, "spec.size", "FieldValueInvalid"),
        ({"size": "3"}, "spec.size", "FieldValueTypeInvalid"),
        ({"nodeName": "Not this"}, "spec.nodeName", "FieldValueInvalid"),
        ({"nodeName": "a" * 21}, "spec.nodeName", "FieldValueTooLong"),
        ({"mode": "loud"}, "spec.mode", "FieldValueNotSupported"),
        ({"tags": ["a", "a"]}, "spec.tags[1]", "FieldValueDuplicate"),
    ],
)
async def test_the_schema_is_kept(custom, spec, field, reason):
    reply = await custom.post(spec)
    assert (reply.code, reply.reason) == (422, "Invalid")
    assert reply.causes[field] == reason


async def test_a_required_field_must_be_there(world, custom):
    body = {**custom.body(), "spec": {"size": 3}}
    reply = await custom.post(body=body)
    assert (reply.code, reply.causes["spec.nodeName"]) == (422, "FieldValueRequired")
    assert "spec.nodeName: Required value" in reply.message


async def test_defaults_are_filled_in_also_below_defaults(custom):
    made = await custom.make()
    assert made["spec"]["size"] == 3
    assert made["spec"]["inner"] == {"deep": "yes"}


async def test_unknown_fields_are_pruned_with_a_warning(custom):
    reply = await custom.post({"colour": "red"})
    assert reply.code == 201
    assert "colour" not in reply.body["spec"]
    assert r"unknown field \"spec.colour\"" in reply.headers["Warning"]


async def test_unknown_fields_are_refused_if_validation_is_strict(custom):
    reply = await custom.post({"colour": "red"}, fieldValidation="Strict")
    assert (reply.code, reply.reason) == (400, "BadRequest")
    assert 'unknown field "spec.colour"' in reply.message


async def test_unknown_fields_stay_where_the_schema_preserves_them(custom):
    made = await custom.make({"free": {"any": [1, {"thing": True}]}})
    assert made["spec"]["free"] == {"any": [1, {"thing": True}]}


async def test_an_integer_or_a_string_is_either(custom):
    assert (await custom.make({"port": 80}))["spec"]["port"] == 80
    assert (await custom.make({"port": "http"}))["spec"]["port"] == "http"
    neither = await custom.post({"port": True})
    # The second reports that rules of the schema were not evaluated.
    assert (neither.code, list(neither.causes)) == (422, ["spec.port", "<nil>"])
    assert neither.causes["spec.port"] == "FieldValueTypeInvalid"
    assert "some validation rules were not checked" in neither.message


async def test_a_wrong_value_alone_does_not_keep_rules_from_being_evaluated(custom):
    reply = await custom.post({"size": 10, "low": 11})
    assert reply.causes == {"spec.size": "FieldValueInvalid", "spec": "FieldValueInvalid"}
    blocked = await custom.post({"size": 4, "low": 5, "mode": "odd"})
    assert blocked.causes == {"spec.mode": "FieldValueNotSupported", "<nil>": "FieldValueInvalid"}


async def test_null_stays_only_where_it_may(custom):
    made = await custom.make({"none": None, "size": None})
    assert made["spec"]["none"] is None
    assert made["spec"]["size"] == 3


async def test_a_rule_over_several_fields_is_kept(custom):
    reply = await custom.post({"low": 5, "size": 4})
    assert (reply.code, reply.reason) == (422, "Invalid")
    assert "low is above size" in reply.message
    assert (await custom.post({"low": 4, "size": 4})).code == 201


async def test_a_rule_about_a_sum_sees_the_defaults(custom):
    reply = await custom.post({"parts": [{"count": 4}, {}]})
    assert (reply.code, reply.reason) == (422, "Invalid")
    assert "the parts are more than 4" in reply.message
    assert (await custom.post({"parts": [{"count": 3}, {}]})).code == 201


async def test_a_rule_about_the_old_value_holds_for_updates(world, custom):
    made = await custom.make()
    reply = await world.api.merge(custom.path(made), {"spec": {"nodeName": "b"}})
    assert (reply.code, reply.reason) == (422, "Invalid")
    assert reply.causes == {"spec.nodeName": "FieldValueInvalid"}
    assert "nodeName is immutable" in reply.message
    assert (await world.api.merge(custom.path(made), {"spec": {"size": 4}})).code == 200


async def test_status_and_spec_are_written_apart(world, custom):
    reply = await custom.post(body=custom.body(status={"phase": "Made"}))
    made = reply.body
    assert "status" not in made
    status = f"{custom.path(made)}/status"
    written = await world.api.merge(status, {"spec": {"size": 9}, "status": {"phase": "Told"}})
    assert (written.body["spec"]["size"], written.body["status"]["phase"]) == (3, "Told")
    main = await world.api.merge(custom.path(made), {"spec": {"size": 9}, "status": {"phase": "Lost"}})
    assert (main.body["spec"]["size"], main.body["status"]["phase"]) == (9, "Told")


async def test_the_generation_counts_the_spec_and_not_the_status(world, custom):
    made = await custom.make()
    assert made["metadata"]["generation"] == 1
    written = await world.api.merge(f"{custom.path(made)}/status", {"status": {"phase": "x"}})
    assert written.body["metadata"]["generation"] == 1
    labelled = await world.api.merge(custom.path(made), {"metadata": {"labels": {"a": "b"}}})
    assert labelled.body["metadata"]["generation"] == 1
    grown = await world.api.merge(custom.path(made), {"spec": {"size": 4}})
    assert grown.body["metadata"]["generation"] == 2


async def test_a_replacement_of_a_custom_object_needs_its_version(world, custom):
    made = await custom.make()
    bare = {**made, "metadata": {"name": made["metadata"]["name"]}}
    reply = await world.api.put(custom.path(made), bare)
    assert (reply.code, reply.causes) == (422, {"metadata.resourceVersion": "FieldValueInvalid"})


async def test_a_strategic_patch_is_not_for_custom_objects(world, custom):
    made = await custom.make()
    reply = await world.api.strategic(custom.path(made), {"spec": {"size": 4}})
    assert reply.code == 415


async def test_applied_conditions_are_merged_by_the_keys_of_the_schema(world, custom):
    made = await custom.make()
    for manager, kind in (("a", "Ready"), ("b", "Seen")):
        body = {
            "apiVersion": custom.api_version,
            "kind": custom.kind,
            "metadata": {"name": made["metadata"]["name"]},
            "status": {"conditions": [{"type": kind, "status": "True"}]},
        }
        reply = await world.api.apply(f"{custom.path(made)}/status", body, manager=manager)
        assert reply.code == 200, reply.body
    assert {condition["type"] for condition in reply.body["status"]["conditions"]} == {"Ready", "Seen"}


async def test_printer_columns_make_the_table(world, custom):
    made = await custom.make()
    status = {
        "status": {"conditions": [{"type": "Seen", "status": "False"}, {"type": "Ready", "status": "True"}]}
    }
    await world.api.merge(f"{custom.path(made)}/status", status)
    reply = await world.eventually(
        lambda: world.api.get(custom.collection, accept=api.TABLE),
        lambda reply: len(reply.body.get("columnDefinitions", ())) > 2,
    )
    columns = [(column["name"], column["priority"]) for column in reply.body["columnDefinitions"]]
    assert columns == [("Name", 0), ("Node", 0), ("Ready", 0), ("Size", 1)]
    assert reply.body["rows"][0]["cells"] == [made["metadata"]["name"], "a", "True", 3]


async def test_a_watch_of_custom_objects_works_as_any(world, custom):
    listed = await world.api.get(custom.collection)
    async with world.api.watch(custom.collection, resourceVersion=listed.version) as changes:
        made = await custom.make()
        assert (await changes.expect("ADDED"))["metadata"]["uid"] == made["metadata"]["uid"]


async def test_a_definition_takes_its_objects_along(world, custom):
    await custom.make()
    name = custom.definition["metadata"]["name"]
    assert (await world.api.delete(world.path("customresourcedefinitions", name))).code == 200
    await world.wait_until_gone("customresourcedefinitions", name)
    await world.eventually(lambda: world.api.get(custom.collection), lambda reply: reply.code == 404)


async def test_every_served_version_shows_the_object(world):
    body = definition(world)
    first = body["spec"]["versions"][0]
    body["spec"]["versions"].append({**first, "name": "v1", "storage": False})
    custom = await establish_definition(world, body)
    made = await custom.make()
    other = custom.path(made).replace("/v1alpha1/", "/v1/")
    reply = await world.eventually(lambda: world.api.get(other), lambda reply: reply.code == 200)
    assert reply.body["apiVersion"].endswith("/v1")
    assert reply.body["metadata"]["uid"] == made["metadata"]["uid"]


async def test_a_definition_is_named_after_its_plural_and_group(world):
    body = definition(world)
    body["metadata"]["name"] = world.name() + ".elsewhere.dev"
    reply = await world.post("customresourcedefinitions", body)
    assert (reply.code, reply.causes.get("metadata.name")) == (422, "FieldValueInvalid")


async def test_a_definition_has_exactly_one_storage_version(world):
    body = definition(world)
    body["spec"]["versions"].append({**body["spec"]["versions"][0], "name": "v1"})
    reply = await world.post("customresourcedefinitions", body)
    assert (reply.code, reply.causes.get("spec.versions")) == (422, "FieldValueInvalid")


async def test_a_definition_needs_a_schema(world):
    body = definition(world)
    del body["spec"]["versions"][0]["schema"]
    assert (await world.post("customresourcedefinitions", body)).code == 422


def with_root_rule(world, rule: str) -> Json:
    """Return a definition with a rule about whole objects."""
    schema = {
        "type": "object",
        "properties": {"metadata": {"type": "object"}, "spec": SPEC, "status": STATUS},
        "x-kubernetes-validations": [{"rule": rule, "message": "the name is too long"}],
    }
    return definition(world, schema={"openAPIV3Schema": schema})


async def test_a_rule_at_the_root_sees_the_names_of_the_metadata(world):
    rule = "self.metadata.name.size() <= 9 && (!has(self.metadata.generateName) || self.metadata.generateName == 'short-')"
    custom = await establish_definition(world, with_root_rule(world, rule))
    for metadata, code in (
        ({"name": "short"}, 201),
        ({"name": "much-longer"}, 422),
        ({"generateName": "other-"}, 422),
    ):
        reply = await custom.post(body={**custom.body(), "metadata": metadata})
        assert (reply.code, metadata) == (code, metadata)


@pytest.mark.parametrize("field", ["labels", "annotations", "namespace", "uid", "finalizers"])
async def test_a_rule_at_the_root_sees_nothing_else_of_the_metadata(world, field):
    reply = await world.post(
        "customresourcedefinitions", with_root_rule(world, f"!has(self.metadata.{field})")
    )
    assert reply.code == 422
    assert any("x-kubernetes-validations[0].rule" in field for field in reply.causes)


async def test_a_rule_that_does_not_compile_is_refused(world):
    rules = [{"rule": "self.nothing == 1"}]
    schema = {"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-validations": rules}}}
    body = definition(world, schema={"openAPIV3Schema": schema})
    reply = await world.post("customresourcedefinitions", body)
    assert (reply.code, reply.reason) == (422, "Invalid")
    assert any("x-kubernetes-validations[0].rule" in field for field in reply.causes)


async def test_a_definition_says_nothing_of_the_metadata(world):
    metadata = {"type": "object", "description": "Of the object."}
    schema = {"type": "object", "properties": {"metadata": metadata, "spec": {"type": "object"}}}
    body = definition(world, schema={"openAPIV3Schema": schema})
    reply = await world.post("customresourcedefinitions", body)
    assert (reply.code, reply.reason) == (422, "Invalid")
    assert "metadata is implicitly specified" in reply.message
    assert set(reply.causes.values()) == {"FieldValueForbidden"}


async def test_a_status_default_is_set_at_creation_and_replaced_by_an_apply(world):
    """As Gateway API shows that an object waits for its controller."""
    waiting = [{"type": "Ready", "status": "Unknown"}]
    status = STATUS | {"default": {"conditions": waiting}}
    schema = {"type": "object", "required": ["spec"], "properties": {"spec": SPEC, "status": status}}
    custom = await establish_definition(world, definition(world, schema={"openAPIV3Schema": schema}))
    # A status in a write of the object itself is dropped before.
    made = (await custom.post(body=custom.body(status={"phase": "Lost"}))).body
    assert made["status"] == {"conditions": waiting}
    assert (await world.api.get(custom.path(made))).body["status"] == {"conditions": waiting}
    for kind in ("Seen", "Ready"):
        body = {
            "apiVersion": custom.api_version,
            "kind": custom.kind,
            "metadata": {"name": made["metadata"]["name"]},
            "status": {"conditions": [{"type": kind, "status": "True"}]},
        }
        reply = await world.api.apply(f"{custom.path(made)}/status", body, manager=kind.lower())
        assert reply.code == 200, reply.body
    conditions = {condition["type"]: condition["status"] for condition in reply.body["status"]["conditions"]}
    assert conditions == {"Ready": "True", "Seen": "True"}
