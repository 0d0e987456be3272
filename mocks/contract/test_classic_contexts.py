"""PodSchedulingContexts, where the scheduler asks and drivers answer, and the claims of a pod."""

import pytest

from contract import bodies
from contract.negotiation import refuses


@pytest.fixture
async def context(driver):
    """Make a context with a spec and return its path."""

    async def make(**spec):
        made = await driver.world.make("podschedulingcontexts", spec=spec)
        return driver.world.path("podschedulingcontexts", made["metadata"]["name"])

    return make


def nodes(number):
    return [f"node-{index}" for index in range(number)]


def answers(**unsuitable):
    """Return the answers of drivers: a claim's name and the nodes that do not suit it."""
    return [{"name": name, "unsuitableNodes": nodes} for name, nodes in unsuitable.items()]


async def test_the_scheduler_asks_in_the_spec_and_drivers_answer_in_the_status(driver, context):
    path = await context(potentialNodes=["a", "b"], selectedNode="a")
    api = driver.world.api
    crossed = {"spec": {"selectedNode": "b"}, "status": {"resourceClaims": answers(g=["a"])}}
    assert "resourceClaims" not in (await api.merge(path, {"status": crossed["status"]})).body.get(
        "status", {}
    )
    reply = await api.merge(f"{path}/status", crossed)
    assert (reply.code, reply.body["spec"]["selectedNode"]) == (200, "a")
    assert reply.body["status"]["resourceClaims"] == answers(g=["a"])


async def test_the_selected_node_changes_and_goes(driver, context):
    path = await context(selectedNode="a")
    reply = await driver.world.api.merge(path, {"spec": {"selectedNode": "b", "potentialNodes": ["b"]}})
    assert reply.body["spec"] == {"selectedNode": "b", "potentialNodes": ["b"]}
    assert (await driver.world.api.merge(path, {"spec": None})).code == 200
    assert not (await driver.world.api.get(path)).body.get("spec")


async def test_there_are_128_potential_nodes(driver, context):
    path = await context(potentialNodes=nodes(128))
    reply = await driver.world.api.merge(path, {"spec": {"potentialNodes": nodes(129)}})
    refuses(reply, "spec.potentialNodes", "FieldValueTooLong")


async def test_potential_nodes_are_different_and_named_as_nodes_are(driver, context):
    path = await context()
    reply = await driver.world.api.merge(path, {"spec": {"potentialNodes": ["a", "a"]}})
    refuses(reply, "spec.potentialNodes[1]", "FieldValueDuplicate")
    reply = await driver.world.api.merge(path, {"spec": {"potentialNodes": ["A b"]}})
    refuses(reply, "spec.potentialNodes[0]", "FieldValueInvalid")


async def test_each_claim_has_128_unsuitable_nodes(driver, context):
    path = await context()
    both = answers(g=nodes(128), h=nodes(128))
    assert (await driver.world.api.merge(f"{path}/status", {"status": {"resourceClaims": both}})).code == 200
    more = {"status": {"resourceClaims": answers(g=nodes(129))}}
    reply = await driver.world.api.merge(f"{path}/status", more)
    # The real server calls the field by a name that it does not have.
    refuses(reply, "status.claims[0].unsuitableNodes", "FieldValueTooLong")


async def test_an_answer_may_name_no_node(driver, context):
    path = await context()
    reply = await driver.world.api.merge(f"{path}/status", {"status": {"resourceClaims": [{"name": "g"}]}})
    assert (reply.code, reply.body["status"]["resourceClaims"]) == (200, [{"name": "g"}])


async def test_a_claim_is_answered_once(driver, context):
    path = await context()
    twice = answers(g=["a"]) + answers(g=["b"])
    reply = await driver.world.api.merge(f"{path}/status", {"status": {"resourceClaims": twice}})
    refuses(reply, "status.claims[1]", "FieldValueDuplicate")


async def test_drivers_answer_for_their_own_claims_by_apply(driver, context):
    path = await context(potentialNodes=["a", "b"])
    kind = driver.world.kinds["podschedulingcontexts"]

    def answer(**unsuitable):
        status = {"resourceClaims": answers(**unsuitable)}
        return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {}, "status": status}

    first = await driver.world.api.apply(f"{path}/status", answer(g=["a"]), manager="one")
    assert first.code == 200, first.body
    second = await driver.world.api.apply(f"{path}/status", answer(h=["b"]), manager="two")
    assert second.body["status"]["resourceClaims"] == answers(g=["a"], h=["b"])
    taken = await driver.world.api.apply(f"{path}/status", answer(g=["b"]), manager="two")
    assert (taken.code, taken.reason) == (409, "Conflict")
    gone = await driver.world.api.apply(f"{path}/status", answer(), manager="one")
    assert gone.body["status"]["resourceClaims"] == answers(h=["b"])


async def test_a_merge_patch_replaces_the_answers_of_all(driver, context):
    path = await context()
    for answer in (answers(g=["a"]), answers(h=["b"])):
        reply = await driver.world.api.merge(f"{path}/status", {"status": {"resourceClaims": answer}})
        assert reply.body["status"]["resourceClaims"] == answer


async def test_a_strategic_merge_patch_replaces_them_too(driver, context):
    path = await context()
    for answer in (answers(g=["a"]), answers(h=["b"])):
        reply = await driver.world.api.strategic(f"{path}/status", {"status": {"resourceClaims": answer}})
        assert reply.body["status"]["resourceClaims"] == answer


async def test_an_answer_to_an_older_context_conflicts(driver, context):
    path = await context(selectedNode="a")
    seen = (await driver.world.api.get(path)).body
    await driver.world.api.merge(path, {"spec": {"selectedNode": "b"}})
    reply = await driver.world.api.put(
        f"{path}/status", {**seen, "status": {"resourceClaims": answers(g=[])}}
    )
    assert (reply.code, reply.reason) == (409, "Conflict")


async def test_a_context_goes_with_its_pod(driver):
    world = driver.world
    pod = await world.make("pods", spec=bodies.pod_spec())
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid, "controller": True}
    await world.make("podschedulingcontexts", name, metadata={"ownerReferences": [owner]}, spec={})
    await world.api.delete(world.path("pods", name), gracePeriodSeconds=0)
    await world.wait_until_gone("podschedulingcontexts", name)


async def test_a_pod_says_where_its_claims_come_from(driver):
    entries = driver.uses(own="c") + driver.makes(new="t")
    pod = await driver.world.make("pods", spec=bodies.pod_spec(resourceClaims=entries))
    assert pod["spec"]["resourceClaims"] == entries


async def test_the_form_of_another_release_is_not_understood(driver):
    other = [{"name": "g", "resourceClaimName": "c"}] if driver.by_class else [{"name": "g", "source": {}}]
    body = driver.world.body("pods", driver.world.name(), spec=bodies.pod_spec(resourceClaims=other))
    reply = await driver.world.post("pods", body)
    where = "spec.resourceClaims[0]" + (".source" if driver.by_class else "")
    refuses(reply, where, "FieldValueInvalid")
    assert "unknown field" in reply.headers.get("Warning", "")


async def test_a_claim_of_a_pod_has_one_source(driver):
    key = driver.uses(g="c")[0]
    both = driver.makes(g="t")[0]
    merged = (
        {**key, **both, "source": {**key["source"], **both["source"]}} if driver.by_class else {**key, **both}
    )
    body = driver.world.body("pods", driver.world.name(), spec=bodies.pod_spec(resourceClaims=[merged]))
    reply = await driver.world.post("pods", body)
    refuses(reply, "spec.resourceClaims[0]" + (".source" if driver.by_class else ""), "FieldValueInvalid")


async def test_a_container_uses_claims_of_its_pod(driver):
    container = {
        "name": "main",
        "image": "registry.invalid/contract:none",
        "resources": {"claims": [{"name": "h"}]},
    }
    spec = bodies.pod_spec(resourceClaims=driver.uses(g="c"), containers=[container])
    reply = await driver.world.post("pods", driver.world.body("pods", driver.world.name(), spec=spec))
    refuses(reply, "spec.containers[0].resources.claims[0]", "FieldValueNotFound")
