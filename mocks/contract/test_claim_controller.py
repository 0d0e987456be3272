"""Claims made from templates, and claims whose pods end."""

import pytest

from contract import bodies
from contract.lab import is_allocated, list_consumers

pytestmark = pytest.mark.needs("v1")

PROTECTION = "resource.kubernetes.io/delete-protection"


def device(name):
    return {"name": name}


@pytest.fixture
async def templated_pod(lab):
    """Create a pod whose claim is made from a template, and return pod and claim."""
    await lab.pool(device("d1"), device("d2"))

    async def create(**template_metadata):
        spec = {"devices": {"requests": [lab.request()]}}
        template = await lab.world.make(
            "resourceclaimtemplates", spec={"spec": spec, "metadata": template_metadata}
        )
        uses = [{"name": "gpu", "resourceClaimTemplateName": template["metadata"]["name"]}]
        name = await lab.pod(resourceClaims=uses)
        pod = await lab.world.until(
            "pods", name, lambda stored: stored["status"].get("resourceClaimStatuses")
        )
        (entry,) = pod["status"]["resourceClaimStatuses"]
        assert entry["name"] == "gpu"
        lab.world.remember(lab.world.path("resourceclaims", entry["resourceClaimName"]))
        return pod, await lab.world.until("resourceclaims", entry["resourceClaimName"], lambda _: True)

    return create


async def test_a_claim_is_made_from_a_template_for_its_pod(templated_pod):
    pod, claim = await templated_pod(labels={"colour": "red"}, annotations={"note": "x"})
    metadata = claim["metadata"]
    assert metadata["name"].startswith(f"{pod['metadata']['name']}-gpu-")
    assert metadata["annotations"]["resource.kubernetes.io/pod-claim-name"] == "gpu"
    assert metadata["annotations"]["note"] == "x"
    assert metadata["labels"]["colour"] == "red"
    (owner,) = metadata["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Pod", pod["metadata"]["uid"], True)


async def test_a_pod_with_a_template_is_bound_and_its_claim_goes_with_it(lab, templated_pod):
    pod, claim = await templated_pod()
    name = pod["metadata"]["name"]
    await lab.wait_until_bound(name)
    await lab.wait_until_allocated(claim["metadata"]["name"])
    await lab.world.api.delete(lab.world.path("pods", name), gracePeriodSeconds=0)
    await lab.world.wait_until_gone("resourceclaims", claim["metadata"]["name"])


async def test_a_pod_waits_for_its_template(lab):
    await lab.pool(device("d1"))
    template = lab.world.name("template")
    uses = [{"name": "gpu", "resourceClaimTemplateName": template}]
    pod = await lab.pod(resourceClaims=uses)
    spec = {"devices": {"requests": [lab.request()]}}
    await lab.world.make("resourceclaimtemplates", template, spec={"spec": spec})
    bound = await lab.wait_until_bound(pod)
    claim = bound["status"]["resourceClaimStatuses"][0]["resourceClaimName"]
    lab.world.remember(lab.world.path("resourceclaims", claim))


async def test_a_claim_made_for_a_finished_pod_is_deleted(lab, templated_pod):
    pod, claim = await templated_pod()
    name = pod["metadata"]["name"]
    await lab.wait_until_bound(name)
    await lab.world.api.merge(lab.world.path("pods", name, "status"), {"status": {"phase": "Succeeded"}})
    await lab.world.wait_until_gone("resourceclaims", claim["metadata"]["name"])


async def test_the_claim_of_a_finished_pod_is_deallocated_and_unprotected(lab):
    await lab.pool(device("d1"))
    claim = await lab.claim()
    pod = await lab.pod(claim)
    await lab.wait_until_bound(pod)
    await lab.world.api.merge(lab.world.path("pods", pod, "status"), {"status": {"phase": "Failed"}})
    freed = await lab.wait_until_deallocated(claim)
    assert list_consumers(freed) == []
    await lab.world.until(
        "resourceclaims", claim, lambda stored: PROTECTION not in stored["metadata"].get("finalizers", ())
    )


async def test_a_claim_is_freed_only_by_the_last_of_its_pods(lab):
    await lab.pool(device("d1"))
    claim = await lab.claim()
    pods = [await lab.pod(claim) for _ in range(2)]
    for pod in pods:
        await lab.wait_until_bound(pod)
    await lab.world.api.delete(lab.world.path("pods", pods[0]), gracePeriodSeconds=0)
    shared = await lab.world.until(
        "resourceclaims", claim, lambda stored: list_consumers(stored) == [pods[1]]
    )
    assert is_allocated(shared)
    await lab.world.api.delete(lab.world.path("pods", pods[1]), gracePeriodSeconds=0)
    await lab.wait_until_deallocated(claim)


async def test_an_allocation_by_another_writer_survives_its_last_pod(lab):
    pool = await lab.pool(device("d1"))
    claim = await lab.claim()
    await allocated_by_another(lab, pool, claim, allocationTimestamp=bodies.EPOCH)
    pod = await lab.pod(claim)
    await lab.wait_until_bound(pod)
    used = await lab.world.until("resourceclaims", claim, lambda stored: list_consumers(stored) == [pod])
    assert PROTECTION not in used["metadata"].get("finalizers", ())
    await lab.world.api.delete(lab.world.path("pods", pod), gracePeriodSeconds=0)
    free = await lab.world.until("resourceclaims", claim, lambda stored: list_consumers(stored) == [])
    assert is_allocated(free)
    await lab.quiet("resourceclaims", claim, lambda stored: not is_allocated(stored))


@pytest.mark.needs("bindingConditions")
async def test_an_allocation_by_another_writer_without_a_timestamp_is_unusable(lab):
    """The scheduler adds the timestamp when it reserves, and an allocation is immutable."""
    pool = await lab.pool(device("d1"))
    claim = await lab.claim()
    await allocated_by_another(lab, pool, claim)
    pod = await lab.pod(claim)
    await lab.event(pod, "FailedScheduling", "field is immutable")
    await lab.quiet("pods", pod, lambda stored: stored["spec"].get("nodeName"))


async def allocated_by_another(lab, pool, claim, **allocation):
    result = bodies.result(lab.world.driver, pool["spec"]["pool"]["name"], "d1")
    path = lab.world.path("resourceclaims", claim, "status")
    body = {"devices": {"results": [result]}, **allocation}
    reply = await lab.world.api.merge(path, {"status": {"allocation": body}})
    assert reply.code == 200, reply.body


async def on_the_node(lab, *claims):
    """Create a pod that got the lab's node without the scheduler, and return its name."""
    return await lab.pod(*claims, nodeName=lab.node)


async def test_an_allocated_claim_is_reserved_for_a_pod_that_passed_the_scheduler_by(lab):
    await lab.pool(device("d1"))
    claim = await lab.claim()
    scheduled = await lab.pod(claim)
    await lab.wait_until_bound(scheduled)
    pod = await on_the_node(lab, claim)
    await lab.world.until(
        "resourceclaims", claim, lambda stored: sorted(list_consumers(stored)) == sorted([scheduled, pod])
    )


@pytest.mark.needs("bindingConditions")
async def test_so_is_a_claim_whose_device_is_not_ready(lab):
    """Binding conditions hold up the scheduler alone."""
    await lab.pool({**device("d1"), **bodies.BINDING})
    claim = await lab.claim()
    waiting = await lab.pod(claim)
    await lab.wait_until_allocated(claim)
    pod = await on_the_node(lab, claim)
    used = await lab.world.until(
        "resourceclaims", claim, lambda stored: sorted(list_consumers(stored)) == sorted([waiting, pod])
    )
    assert not used["status"].get("devices")
    await lab.quiet("pods", waiting, lambda stored: stored["spec"].get("nodeName"))


async def test_a_claim_that_is_allocated_later_is_reserved_for_such_a_pod_then(lab):
    await lab.pool(device("d1"))
    claim = await lab.claim()
    pod = await on_the_node(lab, claim)
    await lab.quiet("resourceclaims", claim, lambda stored: is_allocated(stored) or list_consumers(stored))
    scheduled = await lab.pod(claim)
    await lab.wait_until_bound(scheduled)
    await lab.world.until(
        "resourceclaims", claim, lambda stored: sorted(list_consumers(stored)) == sorted([scheduled, pod])
    )


async def test_a_claim_of_a_template_is_reserved_for_such_a_pod_that_names_it(lab, templated_pod):
    owner, claim = await templated_pod()
    await lab.wait_until_bound(owner["metadata"]["name"])
    name = claim["metadata"]["name"]
    pod = await on_the_node(lab, name)
    await lab.world.until("resourceclaims", name, lambda stored: pod in list_consumers(stored))


async def test_a_claim_in_use_stays_until_its_pod_is_gone(lab):
    await lab.pool(device("d1"))
    claim = await lab.claim()
    pod = await lab.pod(claim)
    await lab.wait_until_bound(pod)
    assert (await lab.world.api.delete(lab.world.path("resourceclaims", claim))).code == 200
    held = await lab.world.until(
        "resourceclaims", claim, lambda stored: stored["metadata"].get("deletionTimestamp")
    )
    assert is_allocated(held)
    assert PROTECTION in held["metadata"]["finalizers"]
    await lab.world.api.delete(lab.world.path("pods", pod), gracePeriodSeconds=0)
    await lab.world.wait_until_gone("resourceclaims", claim)


async def test_a_claim_that_nobody_uses_is_deleted_at_once(lab):
    claim = await lab.claim()
    await lab.world.api.delete(lab.world.path("resourceclaims", claim))
    await lab.world.wait_until_gone("resourceclaims", claim)


async def test_a_new_pod_of_the_same_name_gets_a_new_template_claim(lab, templated_pod):
    pod, claim = await templated_pod()
    name = pod["metadata"]["name"]
    await lab.wait_until_bound(name)
    await lab.world.api.delete(lab.world.path("pods", name), gracePeriodSeconds=0)
    again = {**pod, "metadata": {"name": name, "labels": pod["metadata"]["labels"]}}
    again["spec"] = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    again.pop("status")
    reply = await lab.world.eventually(lambda: lab.world.post("pods", again), lambda reply: reply.code != 409)
    assert reply.code == 201, reply.body
    bound = await lab.wait_until_bound(name)
    fresh = bound["status"]["resourceClaimStatuses"][0]["resourceClaimName"]
    lab.world.remember(lab.world.path("resourceclaims", fresh))
    assert fresh != claim["metadata"]["name"]
