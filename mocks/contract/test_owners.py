"""Garbage collection by owner reference, and namespaces that take their content with them."""

import pytest


def owned_by(owner, **fields):
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"]}
    reference |= {key: owner["metadata"][key] for key in ("name", "uid")}
    return {"ownerReferences": [{**reference, **fields}]}


async def test_dependents_are_deleted_after_their_owner(world):
    owner = await world.make("configmaps")
    child = await world.make("configmaps", metadata=owned_by(owner))
    grandchild = await world.make("configmaps", metadata=owned_by(child))
    await world.api.delete(world.path("configmaps", owner["metadata"]["name"]))
    await world.wait_until_gone("configmaps", child["metadata"]["name"])
    await world.wait_until_gone("configmaps", grandchild["metadata"]["name"])


async def test_a_dependent_of_another_owner_only_loses_the_reference(world):
    first, second = await world.make("configmaps"), await world.make("configmaps")
    both = owned_by(first)["ownerReferences"] + owned_by(second)["ownerReferences"]
    child = await world.make("configmaps", metadata={"ownerReferences": both})
    await world.api.delete(world.path("configmaps", first["metadata"]["name"]))
    left = await world.until(
        "configmaps",
        child["metadata"]["name"],
        lambda stored: len(stored["metadata"]["ownerReferences"]) == 1,
    )
    assert left["metadata"]["ownerReferences"][0]["uid"] == second["metadata"]["uid"]


async def test_an_object_whose_owner_has_another_uid_is_collected(world):
    owner = await world.make("configmaps")
    wrong = owned_by(owner, uid="11111111-1111-1111-1111-111111111111")
    child = await world.make("configmaps", metadata=wrong)
    await world.wait_until_gone("configmaps", child["metadata"]["name"])


async def test_foreground_deletion_waits_for_those_that_block_it(world):
    owner = await world.make("configmaps")
    metadata = {**owned_by(owner, blockOwnerDeletion=True), "finalizers": ["contract.drawbar.dev/hold"]}
    child = await world.make("configmaps", metadata=metadata)
    name, child_name = owner["metadata"]["name"], child["metadata"]["name"]
    reply = await world.api.delete(world.path("configmaps", name), propagationPolicy="Foreground")
    assert reply.code == 200
    waiting = (await world.api.get(world.path("configmaps", name))).body
    assert waiting["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert waiting["metadata"]["deletionTimestamp"]
    await world.until("configmaps", child_name, lambda stored: stored["metadata"].get("deletionTimestamp"))
    assert (await world.api.get(world.path("configmaps", name))).code == 200
    await world.api.merge(world.path("configmaps", child_name), {"metadata": {"finalizers": None}})
    await world.wait_until_gone("configmaps", name)


async def test_orphaned_objects_stay_without_the_reference(world):
    owner = await world.make("configmaps")
    child = await world.make("configmaps", metadata=owned_by(owner))
    reply = await world.api.delete(
        world.path("configmaps", owner["metadata"]["name"]), propagationPolicy="Orphan"
    )
    assert reply.code == 200
    await world.wait_until_gone("configmaps", owner["metadata"]["name"])
    left = await world.until(
        "configmaps", child["metadata"]["name"], lambda stored: not stored["metadata"].get("ownerReferences")
    )
    assert left["metadata"]["uid"] == child["metadata"]["uid"]


@pytest.mark.needs("v1")
async def test_a_cluster_scoped_object_can_own_a_namespaced_one(world):
    owner = await world.make("deviceclasses", spec={})
    child = await world.make("configmaps", metadata=owned_by(owner))
    await world.api.delete(world.path("deviceclasses", owner["metadata"]["name"]))
    await world.wait_until_gone("configmaps", child["metadata"]["name"])


async def test_two_controllers_cannot_own_one_object(world):
    first, second = await world.make("configmaps"), await world.make("configmaps")
    both = (
        owned_by(first, controller=True)["ownerReferences"]
        + owned_by(second, controller=True)["ownerReferences"]
    )
    body = world.body("configmaps", world.name(), metadata={"ownerReferences": both})
    reply = await world.post("configmaps", body)
    assert reply.code == 422
    assert "metadata.ownerReferences" in reply.causes


async def test_an_owner_reference_names_the_owner_in_full(world):
    body = world.body(
        "configmaps", world.name(), metadata={"ownerReferences": [{"apiVersion": "v1", "kind": "Pod"}]}
    )
    reply = await world.post("configmaps", body)
    assert reply.code == 422
    assert {"metadata.ownerReferences.name", "metadata.ownerReferences.uid"} <= reply.causes.keys()


async def test_a_namespace_takes_everything_in_it_along(world):
    home = (await world.make("namespaces"))["metadata"]["name"]
    made = await world.make("configmaps", metadata={"namespace": home})
    reply = await world.api.delete(world.path("namespaces", home))
    assert reply.code == 200
    await world.wait_until_gone("namespaces", home)
    gone = await world.api.get(world.path("configmaps", made["metadata"]["name"], namespace=home))
    assert gone.code == 404


async def test_a_namespace_that_ends_takes_nothing_new(world):
    home = (await world.make("namespaces"))["metadata"]["name"]
    held = {"namespace": home, "finalizers": ["contract.drawbar.dev/hold"]}
    made = await world.make("configmaps", metadata=held)
    await world.api.delete(world.path("namespaces", home))
    ending = await world.until("namespaces", home, lambda stored: stored["status"]["phase"] == "Terminating")
    assert ending["metadata"]["deletionTimestamp"]
    reply = await world.eventually(
        lambda: world.post(
            "configmaps", world.body("configmaps", world.name(), metadata={"namespace": home})
        ),
        lambda reply: reply.code != 201,
    )
    assert (reply.code, reply.reason) == (403, "Forbidden")
    path = world.path("configmaps", made["metadata"]["name"], namespace=home)
    await world.api.merge(path, {"metadata": {"finalizers": None}})
    await world.wait_until_gone("namespaces", home)
