"""Pods that are evicted on request: deleted where their disruption budget allows it, and refused where not."""

import pytest

from contract import bodies

FINALIZERS = ["contract.drawbar.dev/hold"]
RUNNING = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
# As the controller of budgets computes it for one ready pod and minAvailable: 1.
NO_MORE = {
    "observedGeneration": 1,
    "expectedPods": 1,
    "currentHealthy": 1,
    "desiredHealthy": 1,
    "disruptionsAllowed": 0,
}


@pytest.fixture
async def pod(world):
    """Return a running pod that stays when it is deleted."""
    name = world.name()
    metadata = {"finalizers": FINALIZERS, "labels": {"app": name}}
    await world.make("pods", name, metadata=metadata, spec=bodies.pod_spec(nodeName="nowhere"))
    await world.api.merge(world.path("pods", name, "status"), {"status": RUNNING})
    return name


async def evict(world, name, *, client=None, called=None, query=None, **options):
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": called or name},
        "deleteOptions": options,
    }
    return await (client or world.api).post(world.path("pods", name, "eviction"), body, **(query or {}))


async def budget(world, pod):
    name = world.name()
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": pod}}}
    await world.make("poddisruptionbudgets", name, spec=spec)
    await world.api.merge(world.path("poddisruptionbudgets", name, "status"), {"status": NO_MORE})

    def is_settled(stored):
        return {key: stored["status"].get(key) for key in NO_MORE} == NO_MORE

    await world.until("poddisruptionbudgets", name, is_settled)
    return name


async def get_pod(world, name):
    return (await world.api.get(world.path("pods", name))).body


async def test_a_pod_without_a_budget_is_deleted_and_says_why(world, pod):
    reply = await evict(world, pod)
    assert (reply.code, reply.body["kind"], reply.body["status"]) == (201, "Status", "Success")
    left = await get_pod(world, pod)
    assert left["metadata"]["deletionTimestamp"]
    (reason,) = [held for held in left["status"]["conditions"] if held["type"] == "DisruptionTarget"]
    assert (reason["status"], reason["reason"]) == ("True", "EvictionByEvictionAPI")


async def test_a_budget_that_allows_no_disruption_refuses(world, pod):
    name = await budget(world, pod)
    reply = await evict(world, pod)
    assert (reply.code, reply.body["reason"]) == (429, "TooManyRequests")
    assert reply.body["message"] == "Cannot evict pod as it would violate the pod's disruption budget."
    (cause,) = reply.body["details"]["causes"]
    assert cause["reason"] == "DisruptionBudget"
    assert cause["message"] == f"The disruption budget {name} needs 1 healthy pods and has 1 currently"
    assert "deletionTimestamp" not in (await get_pod(world, pod))["metadata"]


async def test_a_pod_that_does_not_run_yet_needs_no_budget(world, pod):
    await budget(world, pod)
    await world.api.merge(world.path("pods", pod, "status"), {"status": {"phase": "Pending"}})
    assert (await evict(world, pod)).code == 201
    assert (await get_pod(world, pod))["metadata"]["deletionTimestamp"]


async def test_a_dry_run_evicts_nothing(world, pod):
    assert (await evict(world, pod, query={"dryRun": "All"})).code == 201
    assert "deletionTimestamp" not in (await get_pod(world, pod))["metadata"]


async def test_a_pod_of_another_uid_is_spared(world, pod):
    reply = await evict(world, pod, preconditions={"uid": "00000000-0000-0000-0000-000000000000"})
    assert (reply.code, reply.body["reason"]) == (409, "Conflict")
    assert "deletionTimestamp" not in (await get_pod(world, pod))["metadata"]


async def test_path_and_body_name_the_same_pod(world, pod):
    reply = await evict(world, pod, called="another")
    assert reply.code == 400
    assert "name in URL does not match name in Eviction object" in reply.body["message"]


async def test_no_pod_of_that_name_can_be_evicted(world):
    assert (await evict(world, "none-of-that-name")).code == 404


async def test_evicting_needs_a_right_of_its_own(world, pod):
    alice = world.acting_as("alice")
    await world.allow("alice", {"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]})
    await world.eventually(lambda: alice.get(world.path("pods", pod)), lambda reply: reply.code == 200)
    reply = await evict(world, pod, client=alice)
    assert reply.code == 403
    assert 'cannot create resource "pods/eviction"' in reply.body["message"]
