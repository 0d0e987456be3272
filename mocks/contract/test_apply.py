"""Server-side apply: the owners of fields, and their conflicts."""

import pytest

from contract import api, bodies, features

OTHER_UID = "11111111-1111-1111-1111-111111111111"


class Applied:
    """One config map that managers apply."""

    def __init__(self, world):
        self.world = world
        self.name = world.name()
        self.path = world.path("configmaps", self.name)
        world.remember(self.path)

    async def apply_as(self, manager, *, metadata=None, data=None, **query):
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": self.name, **(metadata or {})},
            **({"data": data} if data is not None else {}),
        }
        return await self.world.api.apply(self.path, body, manager=manager, **query)


@pytest.fixture
def appliers(world):
    return Applied(world)


async def test_applying_a_missing_object_creates_it(appliers):
    reply = await appliers.apply_as("a", data={"x": "1"})
    assert (reply.code, reply.body["data"]) == (201, {"x": "1"})


async def test_applying_the_same_again_keeps_the_version(appliers):
    first = await appliers.apply_as("a", data={"x": "1"})
    again = await appliers.apply_as("a", data={"x": "1"})
    assert (again.code, again.version) == (200, first.version)


async def test_a_manager_must_be_named(appliers):
    reply = await appliers.apply_as(None, data={"x": "1"})
    assert (reply.code, reply.causes) == (422, {"fieldManager": "FieldValueRequired"})


async def test_ownership_is_recorded(appliers):
    reply = await appliers.apply_as("a", data={"x": "1"})
    (entry,) = reply.body["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"], entry["apiVersion"]) == ("a", "Apply", "v1")
    assert (entry["fieldsType"], entry["fieldsV1"]) == ("FieldsV1", {"f:data": {"f:x": {}}})
    assert entry["time"]
    assert "subresource" not in entry


async def test_two_managers_share_an_object(appliers):
    await appliers.apply_as("a", data={"x": "1"})
    reply = await appliers.apply_as("b", data={"y": "2"})
    assert reply.body["data"] == {"x": "1", "y": "2"}
    assert {entry["manager"] for entry in reply.body["metadata"]["managedFields"]} == {"a", "b"}


async def test_another_managers_value_is_a_conflict_that_names_it_and_the_field(appliers):
    await appliers.apply_as("a", data={"x": "1"})
    reply = await appliers.apply_as("b", data={"x": "2"})
    assert (reply.code, reply.reason) == (409, "Conflict")
    (cause,) = reply.body["details"]["causes"]
    assert (cause["reason"], cause["field"]) == ("FieldManagerConflict", ".data.x")
    assert 'conflict with "a"' in cause["message"]


async def test_force_takes_the_field(appliers):
    await appliers.apply_as("a", data={"x": "1"})
    reply = await appliers.apply_as("b", data={"x": "2"}, force=True)
    assert (reply.code, reply.body["data"]) == (200, {"x": "2"})
    assert [entry["manager"] for entry in reply.body["metadata"]["managedFields"]] == ["b"]
    back = await appliers.apply_as("a", data={"x": "1"})
    assert back.code == 409


async def test_the_same_value_is_owned_together_without_a_conflict(appliers):
    await appliers.apply_as("a", data={"x": "1"})
    assert (await appliers.apply_as("b", data={"x": "1"})).code == 200
    left = await appliers.apply_as("a", data={})
    assert left.body["data"] == {"x": "1"}
    gone = await appliers.apply_as("b", data={})
    assert not gone.body.get("data")


async def test_a_field_that_its_only_manager_leaves_out_is_removed(appliers):
    await appliers.apply_as("a", data={"x": "1", "y": "2"})
    reply = await appliers.apply_as("a", data={"y": "2"})
    assert reply.body["data"] == {"y": "2"}


async def test_an_update_takes_a_field_without_asking(appliers):
    await appliers.apply_as("a", data={"x": "1"})
    reply = await appliers.world.api.merge(appliers.path, {"data": {"x": "2"}}, fieldManager="b")
    assert reply.code == 200
    owners = {entry["manager"]: entry for entry in reply.body["metadata"]["managedFields"]}
    assert owners["b"]["operation"] == "Update"
    assert "a" not in owners
    assert (await appliers.apply_as("a", data={"x": "1"})).code == 409


async def test_a_wrong_uid_is_refused_as_immutable(appliers):
    made = await appliers.apply_as("a", data={"x": "1"})
    reply = await appliers.apply_as("a", metadata={"uid": OTHER_UID}, data={"x": "2"})
    assert (reply.code, reply.causes) == (422, {"metadata.uid": "FieldValueInvalid"})
    assert "field is immutable" in reply.message
    assert (await appliers.world.api.get(appliers.path)).version == made.version


async def test_a_uid_for_a_missing_object_is_a_conflict(appliers):
    reply = await appliers.apply_as("a", metadata={"uid": OTHER_UID}, data={"x": "1"})
    assert (reply.code, reply.reason) == (409, "Conflict")


async def test_a_stale_version_is_a_conflict_even_with_force(appliers):
    made = await appliers.apply_as("a", data={"x": "1"})
    await appliers.apply_as("b", data={"y": "1"})
    reply = await appliers.apply_as(
        "a", metadata={"resourceVersion": made.version}, data={"x": "2"}, force=True
    )
    assert (reply.code, reply.reason) == (409, "Conflict")
    assert "the object has been modified" in reply.message


async def test_applied_objects_must_not_carry_managed_fields(appliers):
    reply = await appliers.apply_as("a", metadata={"managedFields": [{"manager": "z"}]}, data={"x": "1"})
    assert reply.code == 400


async def test_force_is_for_applying_alone(appliers):
    await appliers.apply_as("a", data={"x": "1"})
    reply = await appliers.world.api.merge(appliers.path, {"data": {"x": "2"}}, force=True)
    assert (reply.code, reply.causes) == (422, {"force": "FieldValueForbidden"})


async def test_a_field_that_no_schema_knows_is_not_applied(appliers):
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": appliers.name}, "colour": "red"}
    reply = await appliers.world.api.apply(appliers.path, body)
    assert reply.code == 500
    assert ".colour: field not declared in schema" in reply.message


async def test_an_apply_accepts_yaml(appliers):
    text = f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {appliers.name}\ndata:\n  x: '1'\n".encode()
    reply = await appliers.world.api.send("PATCH", appliers.path, text, kind=api.APPLY, fieldManager="a")
    assert (reply.code, reply.body["data"]) == (201, {"x": "1"})


async def test_a_dry_run_of_applying_stores_nothing(appliers):
    assert (await appliers.apply_as("a", data={"x": "1"}, dryRun="All")).code == 201
    assert (await appliers.world.api.get(appliers.path)).code == 404


async def test_finalizers_are_a_set_to_which_each_manager_adds_its_own(appliers):
    await appliers.apply_as("a", metadata={"finalizers": ["x.dev/a"]})
    both = await appliers.apply_as("b", metadata={"finalizers": ["x.dev/b"]})
    assert set(both.body["metadata"]["finalizers"]) == {"x.dev/a", "x.dev/b"}
    left = await appliers.apply_as("a", metadata={})
    assert left.body["metadata"]["finalizers"] == ["x.dev/b"]


async def test_a_manager_of_update_and_one_of_apply_are_two(appliers):
    await appliers.apply_as("a", data={"x": "1"})
    reply = await appliers.world.api.merge(appliers.path, {"data": {"y": "2"}}, fieldManager="a")
    operations = {(entry["manager"], entry["operation"]) for entry in reply.body["metadata"]["managedFields"]}
    assert operations == {("a", "Apply"), ("a", "Update")}


class Claimed:
    """A claim with two allocated devices, whose status managers apply."""

    def __init__(self, world, name):
        self.world = world
        self.name = name
        self.path = world.path("resourceclaims", name, "status")

    async def apply_as(self, manager, *devices, metadata=None, **query):
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": self.name, "namespace": self.world.namespace, **(metadata or {})},
            "status": {"devices": list(devices)},
        }
        return await self.world.api.apply(self.path, body, manager=manager, **query)

    def device(self, name, *conditions):
        return bodies.device_status(self.world.driver, "pool", name, *conditions)


@pytest.fixture
@features.declare_needs("v1")
async def claim_parts(world):
    made = await world.make("resourceclaims", spec={"devices": {"requests": [bodies.request("one", "x")]}})
    claim = Claimed(world, made["metadata"]["name"])
    results = [bodies.result(world.driver, "pool", name) for name in ("d1", "d2")]
    reply = await world.api.merge(claim.path, {"status": {"allocation": {"devices": {"results": results}}}})
    assert reply.code == 200, reply.body
    return claim


async def test_two_managers_keep_their_conditions_in_one_device_entry(claim_parts):
    await claim_parts.apply_as("controller", claim_parts.device("d1", bodies.condition(bodies.ATTACHED)))
    reply = await claim_parts.apply_as("node", claim_parts.device("d1", bodies.condition(bodies.VISIBLE)))
    (entry,) = reply.body["status"]["devices"]
    assert {condition["type"] for condition in entry["conditions"]} == {bodies.ATTACHED, bodies.VISIBLE}


async def test_device_entries_are_distinguished_by_driver_pool_and_device(claim_parts):
    await claim_parts.apply_as("controller", claim_parts.device("d1", bodies.condition(bodies.ATTACHED)))
    reply = await claim_parts.apply_as(
        "node", claim_parts.device("d2", bodies.condition(bodies.ATTACHED, "False"))
    )
    assert {
        device["device"]: device["conditions"][0]["status"] for device in reply.body["status"]["devices"]
    } == {
        "d1": "True",
        "d2": "False",
    }


async def test_a_condition_that_its_manager_leaves_out_goes_and_the_others_stay(claim_parts):
    await claim_parts.apply_as("controller", claim_parts.device("d1", bodies.condition(bodies.ATTACHED)))
    await claim_parts.apply_as("node", claim_parts.device("d1", bodies.condition(bodies.VISIBLE)))
    reply = await claim_parts.apply_as("controller", claim_parts.device("d1"))
    (entry,) = reply.body["status"]["devices"]
    assert [condition["type"] for condition in entry["conditions"]] == [bodies.VISIBLE]


async def test_two_managers_conflict_over_one_condition(claim_parts):
    await claim_parts.apply_as("controller", claim_parts.device("d1", bodies.condition(bodies.ATTACHED)))
    reply = await claim_parts.apply_as(
        "node", claim_parts.device("d1", bodies.condition(bodies.ATTACHED, "False"))
    )
    assert reply.code == 409
    (cause,) = reply.body["details"]["causes"]
    assert cause["field"].endswith(f'conditions[type="{bodies.ATTACHED}"].status')
    forced = await claim_parts.apply_as(
        "node", claim_parts.device("d1", bodies.condition(bodies.ATTACHED, "False")), force=True
    )
    assert forced.body["status"]["devices"][0]["conditions"][0]["status"] == "False"


async def test_ownership_of_a_status_is_recorded_with_its_subresource(claim_parts):
    reply = await claim_parts.apply_as(
        "controller", claim_parts.device("d1", bodies.condition(bodies.ATTACHED))
    )
    entry = next(
        managed for managed in reply.body["metadata"]["managedFields"] if managed["manager"] == "controller"
    )
    assert (entry["subresource"], entry["operation"]) == ("status", "Apply")
    (device,) = [key for key in entry["fieldsV1"]["f:status"]["f:devices"] if key.startswith("k:")]
    assert device == f'k:{{"device":"d1","driver":"{claim_parts.world.driver}","pool":"pool"}}'


async def test_a_stale_view_of_a_claim_does_not_mark_it_ready(claim_parts):
    before = await claim_parts.world.api.get(claim_parts.path)
    await claim_parts.apply_as("node", claim_parts.device("d1", bodies.condition(bodies.VISIBLE)))
    ready = claim_parts.device("d1", bodies.condition(bodies.ATTACHED))
    stale = await claim_parts.apply_as("controller", ready, metadata={"resourceVersion": before.version})
    assert (stale.code, stale.reason) == (409, "Conflict")
    other = await claim_parts.apply_as("controller", ready, metadata={"uid": OTHER_UID})
    assert (other.code, other.causes) == (422, {"metadata.uid": "FieldValueInvalid"})
    now = (await claim_parts.world.api.get(claim_parts.path)).body["metadata"]
    fresh = await claim_parts.apply_as(
        "controller", ready, metadata={key: now[key] for key in ("uid", "resourceVersion")}
    )
    assert fresh.code == 200


@pytest.mark.needs("v1")
async def test_the_status_of_a_missing_claim_is_not_created(world):
    missing = Claimed(world, world.name())
    assert (await missing.apply_as("controller")).code == 404
