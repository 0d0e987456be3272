"""Binding conditions: a pod waits for its devices, fails with them, and is scheduled again."""

import pytest

from contract import bodies, features
from contract.lab import devices, is_allocated, list_consumers, results, state

pytestmark = pytest.mark.needs("v1")

TAINT = {"key": "contract.drawbar.dev/broken", "effect": "NoSchedule"}
TWO = {**bodies.BINDING, "bindingConditions": [bodies.ATTACHED, bodies.VISIBLE]}


def device(name, **fields):
    return {"name": name, **bodies.BINDING, **fields}


@pytest.fixture
@features.declare_needs("bindingConditions")
async def waiting(lab):
    """Return a lab on a server that keeps binding conditions."""
    return lab


@pytest.mark.needs("no bindingConditions")
async def test_without_the_gate_a_pod_is_bound_before_its_device_is_there(lab):
    await lab.pool(device("d1"))
    claim = await lab.claim()
    await lab.wait_until_bound(await lab.pod(claim))
    allocated = await lab.wait_until_allocated(claim)
    assert "allocationTimestamp" not in allocated["status"]["allocation"]
    assert "bindingConditions" not in results(allocated)[0]


async def test_a_pod_is_bound_when_its_device_is_ready(waiting):
    await waiting.pool(device("d1"))
    claim = await waiting.claim()
    pod = await waiting.pod(claim)
    allocated = await waiting.wait_until_allocated(claim)
    assert not (await waiting.world.api.get(waiting.world.path("pods", pod))).body["spec"].get("nodeName")
    await waiting.ready(allocated)
    await waiting.wait_until_bound(pod)


async def test_an_allocation_names_its_binding_conditions_timestamp_and_node(waiting):
    await waiting.pool(device("d1"))
    claim = await waiting.claim()
    pod = await waiting.pod(claim)
    allocated = await waiting.wait_until_allocated(claim)
    allocation = allocated["status"]["allocation"]
    (result,) = results(allocated)
    assert result["bindingConditions"] == [bodies.ATTACHED]
    assert result["bindingFailureConditions"] == [bodies.FAILED]
    assert allocation["nodeSelector"] == bodies.node_selector(waiting.node)
    assert allocation["allocationTimestamp"]
    assert list_consumers(allocated) == [pod]
    assert "resource.kubernetes.io/delete-protection" in allocated["metadata"]["finalizers"]


async def test_a_device_that_does_not_bind_to_its_node_leaves_the_slices_selector(waiting):
    await waiting.pool(device("d1", bindsToNode=False))
    claim = await waiting.claim()
    await waiting.pod(claim)
    allocation = (await waiting.wait_until_allocated(claim))["status"]["allocation"]
    assert allocation["nodeSelector"] == bodies.for_nodes(waiting.label)


async def test_a_waiting_pod_nominates_its_node(waiting):
    await waiting.pool(device("d1"))
    pod = await waiting.pod(await waiting.claim())
    nominated = await waiting.world.until(
        "pods", pod, lambda stored: stored["status"].get("nominatedNodeName")
    )
    assert nominated["status"]["nominatedNodeName"] == waiting.node


async def test_a_waiting_pod_says_so_in_an_event(waiting):
    await waiting.pool(device("d1"))
    pod = await waiting.pod(await waiting.claim())
    await waiting.event(pod, "BindingConditionsPending")


async def test_all_conditions_must_be_true(waiting):
    await waiting.pool(device("d1", **TWO))
    claim = await waiting.claim()
    pod = await waiting.pod(claim)
    allocated = await waiting.wait_until_allocated(claim)
    (result,) = results(allocated)
    unsure = [bodies.condition(bodies.ATTACHED), bodies.condition(bodies.VISIBLE, "Unknown")]
    await waiting.tell(claim, state(result, *unsure))
    await waiting.quiet("pods", pod, lambda stored: stored["spec"].get("nodeName"))
    await waiting.ready(allocated, bodies.ATTACHED, bodies.VISIBLE)
    await waiting.wait_until_bound(pod)


async def test_all_devices_of_all_claims_must_be_ready(waiting):
    await waiting.pool(device("d1"), device("d2"))
    claims = [await waiting.claim(), await waiting.claim()]
    pod = await waiting.pod(*claims)
    first, second = [await waiting.wait_until_allocated(claim) for claim in claims]
    await waiting.ready(first)
    await waiting.quiet("pods", pod, lambda stored: stored["spec"].get("nodeName"))
    await waiting.ready(second)
    await waiting.wait_until_bound(pod)


@pytest.mark.needs("taints")
async def test_a_failure_of_a_tainted_device_moves_the_claim_to_another(waiting):
    slice_ = await waiting.pool(device("d1"), device("d2"))
    claim = await waiting.claim()
    pod = await waiting.pod(claim)
    allocated = await waiting.wait_until_allocated(claim)
    assert devices(allocated) == ["d1"]
    path = waiting.world.path("resourceslices", slice_["metadata"]["name"])
    tainted = [device("d1", taints=[TAINT]), device("d2")]
    assert (await waiting.world.api.merge(path, {"spec": {"devices": tainted}})).code == 200
    failed = bodies.condition(bodies.FAILED, reason="FabricError", message="port down")
    await waiting.tell(claim, state(results(allocated)[0], failed))
    moved = await waiting.wait_until_allocated(claim, lambda stored: devices(stored) == ["d2"])
    assert "devices" not in moved["status"]
    await waiting.ready(moved)
    await waiting.wait_until_bound(pod)


async def test_a_failure_is_reported_in_the_controllers_words(waiting):
    await waiting.pool(device("d1"))
    claim = await waiting.claim()
    pod = await waiting.pod(claim)
    allocated = await waiting.wait_until_allocated(claim)
    failed = bodies.condition(bodies.FAILED, reason="FabricError", message="port down")
    await waiting.tell(claim, state(results(allocated)[0], failed))
    words = f'device binding failed: claim={claim}, reason=FabricError, message="port down"'
    if waiting.world.can.minor < 36:
        words = f'claim {claim} binding failed: reason=FabricError, message="port down"'
    await waiting.event(pod, "FailedScheduling", f'running PreBind plugin "DynamicResources": {words}')


async def test_the_same_device_may_be_chosen_again_if_nothing_keeps_it_away(waiting):
    await waiting.pool(device("d1"))
    claim = await waiting.claim()
    pod = await waiting.pod(claim)
    allocated = await waiting.wait_until_allocated(claim)
    await waiting.tell(claim, state(results(allocated)[0], bodies.condition(bodies.FAILED)))
    again = await waiting.wait_until_allocated(claim, lambda stored: not stored["status"].get("devices"))
    assert devices(again) == ["d1"]
    await waiting.ready(again)
    await waiting.wait_until_bound(pod)


async def test_a_failure_behind_a_device_that_is_not_ready_is_unseen(waiting):
    await waiting.pool(device("d1"), device("d2"))
    claim = await waiting.claim(requests=[waiting.request(count=2)])
    pod = await waiting.pod(claim)
    first, second = results(await waiting.wait_until_allocated(claim))
    failed = state(second, bodies.condition(bodies.FAILED, reason="Late", message="unseen"))
    await waiting.tell(claim, failed)
    await waiting.quiet("resourceclaims", claim, lambda stored: not stored["status"].get("devices"))
    await waiting.tell(claim, state(first, bodies.condition(bodies.ATTACHED)), failed)
    await waiting.event(pod, "FailedScheduling", "reason=Late")


async def test_a_failure_in_a_later_claim_is_unseen_while_an_earlier_one_waits(waiting):
    await waiting.pool(device("d1"), device("d2"))
    claims = [await waiting.claim(), await waiting.claim()]
    pod = await waiting.pod(*claims)
    first, second = [await waiting.wait_until_allocated(claim) for claim in claims]
    await waiting.tell(claims[1], state(results(second)[0], bodies.condition(bodies.FAILED, reason="Late")))
    await waiting.quiet("resourceclaims", claims[1], lambda stored: not stored["status"].get("devices"))
    await waiting.ready(first)
    await waiting.event(pod, "FailedScheduling", "reason=Late")


async def test_failed_claims_are_deallocated_one_at_a_time(waiting):
    await waiting.pool(device("d1"), device("d2"))
    claims = [await waiting.claim(), await waiting.claim()]
    await waiting.pod(*claims)
    allocated = [await waiting.wait_until_allocated(claim) for claim in claims]
    collection = waiting.world.path("resourceclaims")
    listed = await waiting.world.api.get(collection)
    # The later claim first, or it could be taken back before it has failed.
    for claim, document in reversed(list(zip(claims, allocated, strict=True))):
        await waiting.tell(claim, state(results(document)[0], bodies.condition(bodies.FAILED)))
    async with waiting.world.api.watch(collection, resourceVersion=listed.version) as changes:
        held = dict.fromkeys(claims, True)
        taken_back = []
        while len(taken_back) < 2:
            event = await changes.next()
            name = event["object"]["metadata"]["name"]
            if name in held and held[name] and not is_allocated(event["object"]):
                taken_back.append(event["object"])
            if name in held:
                held[name] = is_allocated(event["object"])
    first, second = taken_back
    assert first["metadata"]["name"] != second["metadata"]["name"]
    exact = {"resourceVersion": first["metadata"]["resourceVersion"], "resourceVersionMatch": "Exact"}
    then = await waiting.world.api.get(collection, limit=500, **exact)
    other = next(item for item in then.items if item["metadata"]["name"] == second["metadata"]["name"])
    assert is_allocated(other)


async def test_a_claim_that_another_pod_uses_is_not_taken_back(waiting):
    await waiting.pool(device("d1"))
    claim = await waiting.claim()
    first = await waiting.pod(claim)
    allocated = await waiting.wait_until_allocated(claim)
    await waiting.ready(allocated)
    await waiting.wait_until_bound(first)
    await waiting.tell(claim, state(results(allocated)[0], bodies.condition(bodies.FAILED)))
    second = await waiting.pod(claim)
    assert await waiting.unschedulable(second)
    current = (await waiting.world.api.get(waiting.world.path("resourceclaims", claim))).body
    assert is_allocated(current)
    assert list_consumers(current) == [first]


async def test_a_condition_counts_by_its_status_alone(waiting):
    await waiting.pool(device("d1"))
    claim = await waiting.claim()
    pod = await waiting.pod(claim)
    allocated = await waiting.wait_until_allocated(claim)
    old = bodies.condition(bodies.ATTACHED, lastTransitionTime="2001-01-01T00:00:00Z", observedGeneration=0)
    await waiting.tell(claim, state(results(allocated)[0], old))
    await waiting.wait_until_bound(pod)


async def test_a_pod_that_goes_while_it_waits_gives_its_claim_back(waiting):
    await waiting.pool(device("d1"))
    claim = await waiting.claim()
    pod = await waiting.pod(claim)
    await waiting.wait_until_allocated(claim)
    await waiting.world.api.delete(waiting.world.path("pods", pod), gracePeriodSeconds=0)
    await waiting.world.until("resourceclaims", claim, lambda stored: not list_consumers(stored))


@pytest.mark.needs("bindingConditions")
async def test_an_allocation_is_retried_if_its_device_never_becomes_ready(hasty_lab):
    await hasty_lab.pool(device("d1"))
    claim = await hasty_lab.claim()
    pod = await hasty_lab.pod(claim)
    first = (await hasty_lab.wait_until_allocated(claim))["status"]["allocation"]["allocationTimestamp"]
    await hasty_lab.event(pod, "FailedScheduling", "timeout")
    later = await hasty_lab.wait_until_allocated(
        claim, lambda stored: stored["status"]["allocation"]["allocationTimestamp"] != first
    )
    assert devices(later) == ["d1"]


@pytest.mark.needs("bindingConditions")
async def test_a_pod_recovers_from_a_timeout(hasty_lab):
    await hasty_lab.pool(device("d1"))
    claim = await hasty_lab.claim()
    pod = await hasty_lab.pod(claim)
    first = (await hasty_lab.wait_until_allocated(claim))["status"]["allocation"]["allocationTimestamp"]
    api, path = hasty_lab.world.api, hasty_lab.world.path

    async def report_ready():
        """Report the device of a new allocation as ready; return the pod."""
        stored = (await api.get(path("resourceclaims", claim))).body
        if is_allocated(stored) and stored["status"]["allocation"]["allocationTimestamp"] != first:
            ready = state(results(stored)[0], bodies.condition(bodies.ATTACHED))
            await api.merge(path("resourceclaims", claim, "status"), {"status": {"devices": [ready]}})
        return await api.get(path("pods", pod))

    await hasty_lab.world.eventually(report_ready, lambda reply: reply.body["spec"].get("nodeName"))
    await hasty_lab.wait_until_bound(pod)
