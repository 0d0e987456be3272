"""Which device a pod's claim gets: order, pools, selectors, taints, nodes."""

import pytest

from contract import bodies
from contract.lab import devices, is_allocated, list_consumers, results, state

pytestmark = pytest.mark.needs("v1")

TAINT = {"key": "contract.drawbar.dev/broken", "value": "yes", "effect": "NoSchedule"}


def device(name, model="a", **fields):
    return {"name": name, "attributes": {"model": {"string": model}}, **fields}


async def test_a_pod_without_claims_gets_its_node(lab):
    await lab.wait_until_bound(await lab.pod())


async def test_a_claim_is_allocated_reserved_and_protected_and_its_pod_bound(lab):
    slice_ = await lab.pool(device("d1"))
    claim, pod = await lab.claim(), ""
    pod = await lab.pod(claim)
    await lab.wait_until_bound(pod)
    allocated = await lab.wait_until_allocated(claim)
    (result,) = results(allocated)
    assert (result["request"], result["driver"], result["device"]) == ("one", lab.world.driver, "d1")
    assert result["pool"] == slice_["spec"]["pool"]["name"]
    assert list_consumers(allocated) == [pod]
    assert "resource.kubernetes.io/delete-protection" in allocated["metadata"]["finalizers"]


async def test_an_allocation_of_a_slice_with_a_node_selector_is_for_these_nodes(lab):
    await lab.pool(device("d1"))
    claim = await lab.claim()
    await lab.wait_until_bound(await lab.pod(claim))
    allocation = (await lab.wait_until_allocated(claim))["status"]["allocation"]
    assert allocation["nodeSelector"] == bodies.for_nodes(lab.label)


async def test_an_allocation_of_a_slice_of_one_node_is_for_that_node(lab):
    await lab.pool(device("d1"), nodeSelector=None, nodeName=lab.node)
    claim = await lab.claim()
    await lab.wait_until_bound(await lab.pod(claim))
    allocation = (await lab.wait_until_allocated(claim))["status"]["allocation"]
    assert allocation["nodeSelector"] == bodies.node_selector(lab.node)


async def test_no_device_is_allocated_twice(lab):
    await lab.pool(device("d1"), device("d2"))
    claims = [await lab.claim() for _ in range(2)]
    for claim in claims:
        await lab.wait_until_bound(await lab.pod(claim))
    allocated = [devices(await lab.wait_until_allocated(claim)) for claim in claims]
    assert sorted(allocated) == [["d1"], ["d2"]]


async def test_a_waiting_pod_gets_a_device_once_it_is_free(lab):
    await lab.pool(device("d1"))
    first, second = await lab.claim(), await lab.claim()
    holder = await lab.pod(first)
    await lab.wait_until_bound(holder)
    waiting = await lab.pod(second)
    assert await lab.unschedulable(waiting)
    await lab.world.api.delete(lab.world.path("pods", holder), gracePeriodSeconds=0)
    await lab.wait_until_bound(waiting)
    assert not is_allocated((await lab.world.api.get(lab.world.path("resourceclaims", first))).body)


async def test_devices_are_tried_in_the_order_of_the_slice(lab):
    await lab.pool(device("z"), device("a"), device("m"))
    claim = await lab.claim()
    await lab.wait_until_bound(await lab.pod(claim))
    assert devices(await lab.wait_until_allocated(claim)) == ["z"]


@pytest.mark.needs("since 1.36")
async def test_pools_are_tried_in_the_order_of_their_names(lab):
    prefix = lab.world.name("p")
    for name in ("b", "a", "c"):
        await lab.pool(device(f"from-{name}"), name=f"{prefix}-{name}")
    claim = await lab.claim()
    await lab.wait_until_bound(await lab.pod(claim))
    assert devices(await lab.wait_until_allocated(claim)) == ["from-a"]


@pytest.mark.needs("bindingConditions")
async def test_pools_without_binding_conditions_are_tried_first(lab):
    prefix = lab.world.name("p")
    await lab.pool(device("slow", **bodies.BINDING), name=f"{prefix}-a")
    await lab.pool(device("quick"), name=f"{prefix}-b")
    claim = await lab.claim()
    await lab.wait_until_bound(await lab.pod(claim))
    assert devices(await lab.wait_until_allocated(claim)) == ["quick"]


@pytest.mark.needs("before 1.36")
async def test_before_1_36_an_incomplete_pool_serves_single_devices_but_not_all(lab):
    pool = {"name": lab.world.name("pool"), "generation": 1, "resourceSliceCount": 2}
    await lab.pool(device("d1"), pool=pool)
    everything = await lab.claim(requests=[lab.request(allocationMode="All")])
    assert await lab.unschedulable(await lab.pod(everything))
    await lab.wait_until_bound(await lab.pod(await lab.claim()))


@pytest.mark.needs("since 1.36")
async def test_an_incomplete_pool_allocates_no_device(lab):
    pool = {"name": lab.world.name("pool"), "generation": 1, "resourceSliceCount": 2}
    await lab.pool(device("d1"), pool=pool)
    claim = await lab.claim()
    pod = await lab.pod(claim)
    assert await lab.unschedulable(pod)
    await lab.pool(device("d2"), pool=pool)
    await lab.wait_until_bound(pod)


async def test_only_the_highest_generation_of_a_pool_counts(lab):
    name = lab.world.name("pool")
    await lab.pool(device("old"), pool={"name": name, "generation": 1, "resourceSliceCount": 1})
    await lab.pool(device("new"), pool={"name": name, "generation": 2, "resourceSliceCount": 1})
    claim = await lab.claim()
    await lab.wait_until_bound(await lab.pod(claim))
    assert devices(await lab.wait_until_allocated(claim)) == ["new"]


async def test_a_pool_with_a_duplicate_name_allocates_no_device(lab):
    pool = {"name": lab.world.name("pool"), "generation": 1, "resourceSliceCount": 2}
    await lab.pool(device("d1"), pool=pool)
    twin = await lab.pool(device("d1"), pool=pool)
    claim = await lab.claim()
    pod = await lab.pod(claim)
    assert await lab.unschedulable(pod)
    path = lab.world.path("resourceslices", twin["metadata"]["name"])
    await lab.world.api.merge(path, {"spec": {"devices": [device("d2")]}})
    await lab.wait_until_bound(pod)


async def test_a_slice_for_other_nodes_gives_nothing(lab):
    await lab.pool(device("d1"), nodeSelector=bodies.for_nodes("elsewhere"))
    claim = await lab.claim()
    pod = await lab.pod(claim)
    assert await lab.unschedulable(pod)
    await lab.pool(device("d2"))
    await lab.wait_until_bound(pod)


async def test_a_selector_chooses_by_attributes_and_capacity(lab):
    await lab.pool(
        device("small", capacity={"memory": {"value": "1Gi"}}),
        device("other", "b", capacity={"memory": {"value": "80Gi"}}),
        device("right", capacity={"memory": {"value": "80Gi"}}),
    )
    domain = lab.world.driver
    expression = (
        f'device.attributes["{domain}"].model == "a" && '
        f'device.capacity["{domain}"].memory.compareTo(quantity("40Gi")) >= 0'
    )
    claim = await lab.claim(requests=[lab.request(selectors=[{"cel": {"expression": expression}}])])
    await lab.wait_until_bound(await lab.pod(claim))
    assert devices(await lab.wait_until_allocated(claim)) == ["right"]


async def test_all_selectors_of_class_and_request_must_hold(lab):
    await lab.pool(device("d1"))
    selectors = [{"cel": {"expression": text}} for text in ("true", "false")]
    claim = await lab.claim(requests=[lab.request(selectors=selectors)])
    assert await lab.unschedulable(await lab.pod(claim))


async def test_a_missing_class_leaves_the_pod_unscheduled(lab):
    await lab.pool(device("d1"))
    claim = await lab.claim(requests=[bodies.request("one", lab.world.name("none"))])
    assert await lab.unschedulable(await lab.pod(claim))


async def test_a_count_is_allocated_completely_or_not_at_all(lab):
    await lab.pool(device("d1"), device("d2"))
    claim = await lab.claim(requests=[lab.request(count=3)])
    pod = await lab.pod(claim)
    assert await lab.unschedulable(pod)
    await lab.pool(device("d3"))
    await lab.wait_until_bound(pod)
    assert sorted(devices(await lab.wait_until_allocated(claim))) == ["d1", "d2", "d3"]


async def test_all_devices_means_all(lab):
    await lab.pool(device("d1"), device("d2"))
    claim = await lab.claim(requests=[lab.request(allocationMode="All")])
    await lab.wait_until_bound(await lab.pod(claim))
    assert sorted(devices(await lab.wait_until_allocated(claim))) == ["d1", "d2"]


async def test_the_first_available_alternative_is_allocated(lab):
    await lab.pool(device("d1", "b"))
    choices = [
        {
            "name": name,
            "deviceClassName": lab.device_class,
            "selectors": [
                {"cel": {"expression": f'device.attributes["{lab.world.driver}"].model == "{model}"'}}
            ],
        }
        for name, model in (("best", "a"), ("good", "b"))
    ]
    claim = await lab.claim(requests=[{"name": "one", "firstAvailable": choices}])
    await lab.wait_until_bound(await lab.pod(claim))
    (result,) = results(await lab.wait_until_allocated(claim))
    assert (result["request"], result["device"]) == ("one/good", "d1")


async def test_devices_that_must_match_in_an_attribute_do(lab):
    await lab.pool(device("a1", "a"), device("b1", "b"), device("b2", "b"))
    constraint = {"matchAttribute": f"{lab.world.driver}/model"}
    claim = await lab.claim(requests=[lab.request(count=2)], constraints=[constraint])
    await lab.wait_until_bound(await lab.pod(claim))
    assert sorted(devices(await lab.wait_until_allocated(claim))) == ["b1", "b2"]


@pytest.mark.needs("taints")
async def test_a_tainted_device_is_allocated_only_after_the_taint_is_removed(lab):
    slice_ = await lab.pool(device("d1", taints=[TAINT]))
    claim = await lab.claim()
    pod = await lab.pod(claim)
    assert await lab.unschedulable(pod)
    path = lab.world.path("resourceslices", slice_["metadata"]["name"])
    await lab.world.api.merge(path, {"spec": {"devices": [device("d1")]}})
    await lab.wait_until_bound(pod)


@pytest.mark.needs("taints")
async def test_a_taint_without_effect_keeps_nobody_away(lab):
    await lab.pool(device("d1", taints=[{**TAINT, "effect": "None"}]))
    claim = await lab.claim()
    await lab.wait_until_bound(await lab.pod(claim))


@pytest.mark.needs("taints")
@pytest.mark.parametrize(
    "toleration",
    [
        {"operator": "Exists"},
        {"key": TAINT["key"], "operator": "Exists", "effect": "NoSchedule"},
        {"key": TAINT["key"], "operator": "Equal", "value": "yes"},
    ],
)
async def test_a_tolerated_taint_does_not_matter_and_the_result_remembers_the_toleration(lab, toleration):
    await lab.pool(device("d1", taints=[TAINT]))
    claim = await lab.claim(requests=[lab.request(tolerations=[toleration])])
    await lab.wait_until_bound(await lab.pod(claim))
    (result,) = results(await lab.wait_until_allocated(claim))
    assert [{**toleration, **remembered} for remembered in result["tolerations"]] == result["tolerations"]


@pytest.mark.needs("taints")
async def test_another_toleration_does_not_help(lab):
    await lab.pool(device("d1", taints=[TAINT]))
    toleration = {"key": TAINT["key"], "operator": "Equal", "value": "no"}
    claim = await lab.claim(requests=[lab.request(tolerations=[toleration])])
    assert await lab.unschedulable(await lab.pod(claim))


async def test_two_pods_share_a_claim(lab):
    await lab.pool(device("d1"))
    claim = await lab.claim()
    pods = [await lab.pod(claim) for _ in range(2)]
    for pod in pods:
        await lab.wait_until_bound(pod)
    allocated = await lab.wait_until_allocated(claim)
    assert (sorted(list_consumers(allocated)), devices(allocated)) == (sorted(pods), ["d1"])


async def test_a_pod_waits_for_a_claim_that_is_not_there_yet(lab):
    await lab.pool(device("d1"))
    name = lab.world.name("late")
    pod = await lab.pod(name)
    assert not (await lab.world.api.get(lab.world.path("pods", pod))).body["spec"].get("nodeName")
    await lab.claim(name)
    await lab.wait_until_bound(pod)


async def test_a_pod_that_is_not_ready_to_be_scheduled_is_left_alone(lab):
    await lab.pool(device("d1"))
    claim = await lab.claim()
    pod = await lab.pod(claim, schedulingGates=[{"name": "contract.drawbar.dev/wait"}])
    gated = await lab.world.until("pods", pod, lambda _: True)
    assert not gated["spec"].get("nodeName")
    reply = await lab.world.api.merge(lab.world.path("pods", pod), {"spec": {"schedulingGates": None}})
    assert reply.code == 200, reply.body
    await lab.wait_until_bound(pod)


async def test_the_pod_says_where_it_was_assigned_in_an_event(lab):
    pod = await lab.pod()
    await lab.wait_until_bound(pod)
    event = await lab.event(pod, "Scheduled", "Successfully assigned")
    assert lab.node in event["note"]


async def make_extended_resource_pod(lab, amount):
    """Return a class of our devices with an extended resource, and a pod with a limit; give the pod and the resource."""
    resource = f"contract.drawbar.dev/{lab.world.name('r')}"
    selector = {"cel": {"expression": f'device.driver == "{lab.world.driver}"'}}
    spec = {"selectors": [selector], "extendedResourceName": resource}
    await lab.world.make("deviceclasses", spec=spec)
    resources = {"limits": {resource: str(amount)}, "requests": {resource: str(amount)}}
    pod = await lab.pod(containers=[{"name": "main", "image": "none", "resources": resources}])
    return pod, resource


@pytest.mark.needs("since 1.36")
async def test_a_limit_of_a_resource_that_a_class_backs_makes_a_claim_which_the_pod_owns_and_its_status_names(
    lab,
):
    await lab.pool(device("d1"), device("d2"))
    pod, resource = await make_extended_resource_pod(lab, 2)
    stored = await lab.wait_until_bound(pod)
    status = stored["status"]["extendedResourceClaimStatus"]
    claim = await lab.wait_until_allocated(status["resourceClaimName"])
    assert devices(claim) == ["d1", "d2"]
    assert list_consumers(claim) == [pod]
    assert claim["metadata"]["name"].startswith(f"{pod}-extended-resources-")
    assert claim["metadata"]["annotations"] == {"resource.kubernetes.io/extended-resource-claim": "true"}
    assert "resource.kubernetes.io/delete-protection" in claim["metadata"]["finalizers"]
    (owner,) = claim["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("Pod", pod, True)
    (request,) = claim["spec"]["devices"]["requests"]
    assert request["exactly"]["count"] == 2
    mapping = {"containerName": "main", "resourceName": resource, "requestName": request["name"]}
    assert status["requestMappings"] == [mapping]
    assert request["name"] == "container-0-request-0"


@pytest.mark.needs("bindingConditions", "since 1.36")
async def test_a_failed_claim_for_a_limit_is_deleted_and_another_made(lab):
    await lab.pool(device("d1", **bodies.BINDING))
    pod, _ = await make_extended_resource_pod(lab, 1)
    await lab.event(pod, "BindingConditionsPending")
    stored = await lab.world.until(
        "pods", pod, lambda stored: stored["status"].get("extendedResourceClaimStatus")
    )
    first = stored["status"]["extendedResourceClaimStatus"]["resourceClaimName"]
    claim = await lab.wait_until_allocated(first)
    failed = bodies.condition(bodies.FAILED)
    await lab.tell(first, *(state(result, failed) for result in results(claim)))
    stored = await lab.world.until(
        "pods",
        pod,
        lambda stored: stored["status"]["extendedResourceClaimStatus"]["resourceClaimName"] != first,
    )
    second = stored["status"]["extendedResourceClaimStatus"]["resourceClaimName"]
    await lab.ready(await lab.wait_until_allocated(second))
    await lab.wait_until_bound(pod)
    reply = await lab.world.api.get(lab.world.path("resourceclaims", first))
    assert reply.code == 404
