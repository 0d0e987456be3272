"""The three older kinds of patch."""

import pytest

from contract import bodies

OTHER_UID = "11111111-1111-1111-1111-111111111111"


async def test_a_merge_patch_sets_removes_and_replaces_lists(world):
    made = await world.make(
        "configmaps", data={"a": "1", "b": "2"}, metadata={"finalizers": ["x.dev/a", "x.dev/b"]}
    )
    path = world.path("configmaps", made["metadata"]["name"])
    reply = await world.api.merge(
        path, {"data": {"a": None, "c": "3"}, "metadata": {"finalizers": ["x.dev/c"]}}
    )
    assert (reply.code, reply.body["data"]) == (200, {"b": "2", "c": "3"})
    assert reply.body["metadata"]["finalizers"] == ["x.dev/c"]


async def test_a_strategic_patch_merges_lists_that_have_keys(world):
    node = await world.node()
    path = world.path("nodes", node["metadata"]["name"], "status")
    pressure = {"type": "MemoryPressure", "status": "False", "reason": "r", "message": ""}
    reply = await world.api.strategic(path, {"status": {"conditions": [pressure]}})
    assert {condition["type"] for condition in reply.body["status"]["conditions"]} == {
        "Ready",
        "MemoryPressure",
    }


async def test_a_strategic_patch_deletes_an_entry_by_its_key(world):
    node = await world.node()
    path = world.path("nodes", node["metadata"]["name"], "status")
    reply = await world.api.strategic(
        path, {"status": {"conditions": [{"type": "Ready", "$patch": "delete"}]}}
    )
    assert reply.code == 200
    assert not [
        condition
        for condition in reply.body["status"].get("conditions") or []
        if condition["type"] == "Ready"
    ]


async def test_a_strategic_patch_unites_finalizers_and_deletes_them_by_value(world):
    made = await world.make("configmaps", metadata={"finalizers": ["x.dev/a"]})
    path = world.path("configmaps", made["metadata"]["name"])
    more = await world.api.strategic(path, {"metadata": {"finalizers": ["x.dev/b"]}})
    assert set(more.body["metadata"]["finalizers"]) == {"x.dev/a", "x.dev/b"}
    less = await world.api.strategic(path, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["x.dev/a"]}})
    assert less.body["metadata"]["finalizers"] == ["x.dev/b"]


async def test_a_strategic_patch_merges_owner_references_by_uid(world):
    first, second = await world.make("configmaps"), await world.make("configmaps")
    references = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
        }
        for owner in (first, second)
    ]
    child = await world.make("configmaps", metadata={"ownerReferences": references[:1]})
    path = world.path("configmaps", child["metadata"]["name"])
    reply = await world.api.strategic(path, {"metadata": {"ownerReferences": references[1:]}})
    assert {reference["uid"] for reference in reply.body["metadata"]["ownerReferences"]} == {
        reference["uid"] for reference in references
    }


@pytest.mark.needs("v1")
async def test_a_strategic_patch_takes_one_user_out_of_the_reservations(world):
    claim = await world.make("resourceclaims", spec={"devices": {"requests": [bodies.request("one", "x")]}})
    path = world.path("resourceclaims", claim["metadata"]["name"], "status")
    # No pods: the reservation of one that is not there is taken away by the cluster.
    kind = {"apiGroup": "contract.drawbar.dev", "resource": "users"}
    users = [{**kind, "name": name, "uid": name * 4} for name in ("a", "b")]
    results = [bodies.result(world.driver, "pool", "d1")]
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": users}
    assert (await world.api.merge(path, {"status": status})).code == 200
    patch = {
        "metadata": {"uid": claim["metadata"]["uid"]},
        "status": {"reservedFor": [{"$patch": "delete", "uid": "aaaa"}]},
    }
    reply = await world.api.strategic(path, patch)
    assert (reply.code, reply.body["status"]["reservedFor"]) == (200, users[1:])


async def test_a_json_patch_does_its_operations_in_order(world):
    made = await world.make("configmaps", data={"a": "1"})
    path = world.path("configmaps", made["metadata"]["name"])
    reply = await world.api.json_patch(
        path,
        {"op": "test", "path": "/data/a", "value": "1"},
        {"op": "add", "path": "/data/b", "value": "2"},
        {"op": "replace", "path": "/data/a", "value": "3"},
        {"op": "copy", "from": "/data/a", "path": "/data/c"},
        {"op": "move", "from": "/data/b", "path": "/data/d"},
        {"op": "remove", "path": "/data/a"},
    )
    assert (reply.code, reply.body["data"]) == (200, {"c": "3", "d": "2"})


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/data/a", "value": "other"},
        {"op": "remove", "path": "/data/none"},
        {"op": "replace", "path": "/none/a", "value": "x"},
    ],
)
async def test_a_json_patch_that_does_not_fit_changes_nothing(world, operation):
    made = await world.make("configmaps", data={"a": "1"})
    path = world.path("configmaps", made["metadata"]["name"])
    reply = await world.api.json_patch(path, {"op": "add", "path": "/data/b", "value": "2"}, operation)
    assert reply.code == 422
    assert (await world.api.get(path)).body == made


async def test_a_json_patch_that_replaces_a_key_that_is_not_there_adds_it(world):
    made = await world.make("configmaps", data={"a": "1"})
    path = world.path("configmaps", made["metadata"]["name"])
    reply = await world.api.json_patch(path, {"op": "replace", "path": "/data/none", "value": "x"})
    assert (reply.code, reply.body["data"]) == (200, {"a": "1", "none": "x"})


async def test_an_invalid_patch_is_a_bad_request(world):
    made = await world.make("configmaps")
    path = world.path("configmaps", made["metadata"]["name"])
    for kind in (
        "application/merge-patch+json",
        "application/json-patch+json",
        "application/strategic-merge-patch+json",
    ):
        assert (await world.api.send("PATCH", path, b"{", kind=kind)).code == 400


async def test_a_patch_of_an_unknown_kind_is_not_supported(world):
    made = await world.make("configmaps")
    reply = await world.api.send(
        "PATCH", world.path("configmaps", made["metadata"]["name"]), {}, kind="application/json"
    )
    assert (reply.code, reply.reason) == (415, "UnsupportedMediaType")


async def test_a_patch_with_an_old_version_is_a_conflict(world):
    made = await world.make("configmaps", data={"a": "1"})
    path = world.path("configmaps", made["metadata"]["name"])
    await world.api.merge(path, {"data": {"a": "2"}})
    stale = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"a": "3"}}
    reply = await world.api.merge(path, stale)
    assert (reply.code, reply.reason) == (409, "Conflict")


@pytest.mark.parametrize("kind", ["merge", "strategic"])
async def test_a_patch_for_another_uid_changes_nothing(world, kind):
    made = await world.make("configmaps", data={"a": "1"})
    path = world.path("configmaps", made["metadata"]["name"])
    patch = {"metadata": {"uid": OTHER_UID}, "data": {"a": "2"}}
    reply = await getattr(world.api, kind)(path, patch)
    assert reply.code in (409, 422)
    assert (await world.api.get(path)).body == made


async def test_a_patch_that_changes_nothing_keeps_the_version(world):
    made = await world.make("configmaps", data={"a": "1"})
    reply = await world.api.merge(world.path("configmaps", made["metadata"]["name"]), {"data": {"a": "1"}})
    assert reply.version == made["metadata"]["resourceVersion"]


async def test_a_patch_of_a_missing_object_is_not_found(world):
    assert (await world.api.merge(world.path("configmaps", world.name()), {"data": {}})).code == 404


async def test_a_patch_does_not_rename(world):
    made = await world.make("configmaps")
    reply = await world.api.merge(
        world.path("configmaps", made["metadata"]["name"]), {"metadata": {"name": "other"}}
    )
    assert reply.code in (400, 422)


async def test_the_result_of_a_patch_is_validated(world):
    made = await world.make("configmaps")
    path = world.path("configmaps", made["metadata"]["name"])
    reply = await world.api.merge(path, {"metadata": {"labels": {"a": "not valid"}}})
    assert (reply.code, reply.reason) == (422, "Invalid")
