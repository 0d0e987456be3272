"""The rights for parts of a claim's status: `resourceclaims/driver` and `resourceclaims/binding`, asked since 1.36."""

import pytest

from contract import bodies, targets

pytestmark = pytest.mark.needs("v1")

GROUP = "resource.k8s.io"
STATUS = {"apiGroups": [GROUP], "resources": ["resourceclaims/status"], "verbs": ["update", "patch", "get"]}
BINDING = {"apiGroups": [GROUP], "resources": ["resourceclaims/binding"], "verbs": ["update", "patch"]}
POOL = "pool"


def driver_rule(driver, *verbs):
    return {
        "apiGroups": [GROUP],
        "resources": ["resourceclaims/driver"],
        "resourceNames": [driver],
        "verbs": list(verbs),
    }


@pytest.fixture
async def claim(world):
    """Return the path of the status of a claim that is allocated for one node."""
    made = await world.make("resourceclaims", spec={"devices": {"requests": [bodies.request("one", "x")]}})
    path = world.path("resourceclaims", made["metadata"]["name"], "status")
    allocation = {
        "devices": {"results": [bodies.result(world.driver, POOL, "d1")]},
        "nodeSelector": bodies.node_selector(targets.NODE),
    }
    assert (await world.api.merge(path, {"status": {"allocation": allocation}})).code == 200
    return path


def devices(world):
    return {"status": {"devices": [bodies.device_status(world.driver, POOL, "d1", bodies.condition("a"))]}}


async def ask_until_accepted(world, ask):
    """Return the first answer after the rights just given have been taken up."""
    return await world.eventually(ask, lambda reply: reply.code == 200)


async def refusal(world, ask):
    """Return the answer that names the missing right, once `resourceclaims/status` is allowed."""
    return await world.eventually(ask, lambda reply: reply.code != 403)


def forbids(reply, *words):
    assert (reply.code, reply.reason) == (422, "Invalid"), reply.body
    assert "FieldValueForbidden" in reply.causes.values()
    for word in words:
        assert word in reply.message


@pytest.mark.needs("before 1.36")
async def test_before_136_the_right_to_the_status_is_enough(world, claim):
    await world.allow("alice", STATUS)
    alice = world.acting_as("alice")
    assert (await ask_until_accepted(world, lambda: alice.merge(claim, devices(world)))).code == 200


@pytest.mark.needs("since 1.36")
async def test_a_devices_status_needs_the_right_to_its_driver(world, claim):
    await world.allow("alice", STATUS)
    alice = world.acting_as("alice")
    reply = await refusal(world, lambda: alice.merge(claim, devices(world)))
    forbids(
        reply,
        'changing status.devices requires resource="resourceclaims/driver", verb="[arbitrary-node:patch]" permission',
    )
    assert list(reply.causes) == ["status.devices"]


@pytest.mark.needs("since 1.36")
async def test_the_right_for_any_node_is_enough(world, claim):
    await world.allow("alice", STATUS, driver_rule(world.driver, "arbitrary-node:patch"))
    alice = world.acting_as("alice")
    assert (await ask_until_accepted(world, lambda: alice.merge(claim, devices(world)))).code == 200


@pytest.mark.needs("since 1.36")
async def test_a_right_to_patch_is_not_one_to_update(world, claim):
    await world.allow("alice", STATUS, driver_rule(world.driver, "arbitrary-node:patch"))
    alice = world.acting_as("alice")
    current = (await world.api.get(claim)).body
    reply = await refusal(
        world,
        lambda: alice.put(claim, {**current, "status": {**current["status"], **devices(world)["status"]}}),
    )
    forbids(reply, "arbitrary-node:update")


@pytest.mark.needs("since 1.36")
async def test_the_right_to_one_driver_is_not_one_to_another(world, claim):
    await world.allow("alice", STATUS, driver_rule("other.drawbar.dev", "arbitrary-node:patch"))
    alice = world.acting_as("alice")
    forbids(await refusal(world, lambda: alice.merge(claim, devices(world))), "resourceclaims/driver")


@pytest.mark.needs("since 1.36")
async def test_the_right_for_the_own_node_is_enough_on_that_node(world, claim):
    await world.allow("alice", STATUS, driver_rule(world.driver, "associated-node:patch"))
    alice = world.acting_as("alice", node=targets.NODE)
    assert (await ask_until_accepted(world, lambda: alice.merge(claim, devices(world)))).code == 200


@pytest.mark.needs("since 1.36")
async def test_the_right_for_the_own_node_is_nothing_without_a_node(world, claim):
    await world.allow("alice", STATUS, driver_rule(world.driver, "associated-node:patch"))
    alice = world.acting_as("alice")
    forbids(await refusal(world, lambda: alice.merge(claim, devices(world))), "resourceclaims/driver")


@pytest.mark.needs("since 1.36")
async def test_the_right_for_the_own_node_is_nothing_for_a_claim_of_another(world):
    made = await world.make("resourceclaims", spec={"devices": {"requests": [bodies.request("one", "x")]}})
    path = world.path("resourceclaims", made["metadata"]["name"], "status")
    allocation = {
        "devices": {"results": [bodies.result(world.driver, POOL, "d1")]},
        "nodeSelector": bodies.node_selector("another-node"),
    }
    assert (await world.api.merge(path, {"status": {"allocation": allocation}})).code == 200
    await world.allow("alice", STATUS, driver_rule(world.driver, "associated-node:patch"))
    alice = world.acting_as("alice", node=targets.NODE)
    forbids(await refusal(world, lambda: alice.merge(path, devices(world))), "resourceclaims/driver")


@pytest.mark.needs("since 1.36")
async def test_who_changes_one_drivers_devices_needs_no_right_to_the_others(world):
    other = f"other-{world.driver}"
    made = await world.make("resourceclaims", spec={"devices": {"requests": [bodies.request("one", "x")]}})
    path = world.path("resourceclaims", made["metadata"]["name"], "status")
    results = [bodies.result(driver, POOL, "d1") for driver in (world.driver, other)]
    status = {
        "allocation": {"devices": {"results": results}},
        "devices": [bodies.device_status(other, POOL, "d1", bodies.condition("a"))],
    }
    assert (await world.api.merge(path, {"status": status})).code == 200
    await world.allow("alice", STATUS, driver_rule(world.driver, "arbitrary-node:patch"))
    alice = world.acting_as("alice")
    body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {}, **devices(world)}
    applied = await ask_until_accepted(world, lambda: alice.apply(path, body))
    assert {device["driver"] for device in applied.body["status"]["devices"]} == {world.driver, other}
    forbids(await alice.merge(path, devices(world)), "resourceclaims/driver")


@pytest.mark.needs("since 1.36")
async def test_allocating_needs_the_right_to_bind(world):
    made = await world.make("resourceclaims", spec={"devices": {"requests": [bodies.request("one", "x")]}})
    path = world.path("resourceclaims", made["metadata"]["name"], "status")
    allocation = {
        "status": {"allocation": {"devices": {"results": [bodies.result(world.driver, POOL, "d1")]}}}
    }
    await world.allow("alice", STATUS)
    alice = world.acting_as("alice")
    reply = await refusal(world, lambda: alice.merge(path, allocation))
    forbids(reply, 'resource="resourceclaims/binding", verb="patch"')
    await world.allow("alice", BINDING, everywhere=True)
    assert (await ask_until_accepted(world, lambda: alice.merge(path, allocation))).code == 200


@pytest.mark.needs("since 1.36")
async def test_reserving_needs_the_right_to_bind(world, claim):
    await world.allow("alice", STATUS, driver_rule(world.driver, "arbitrary-node:patch"))
    alice = world.acting_as("alice")
    reserve = {"status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}}
    forbids(await refusal(world, lambda: alice.merge(claim, reserve)), "resourceclaims/binding")


@pytest.mark.needs("since 1.36")
async def test_the_right_to_bind_is_asked_for_the_whole_cluster(world, claim):
    await world.allow("alice", STATUS, BINDING)
    alice = world.acting_as("alice")
    reserve = {"status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}}
    forbids(await refusal(world, lambda: alice.merge(claim, reserve)), "resourceclaims/binding")


@pytest.mark.needs("since 1.36")
async def test_a_status_that_changes_nothing_needs_no_further_right(world, claim):
    await world.allow("alice", STATUS)
    alice = world.acting_as("alice")
    current = (await world.api.get(claim)).body
    assert (await ask_until_accepted(world, lambda: alice.put(claim, current))).code == 200
