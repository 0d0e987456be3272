"""The scheduler's and the claim controller's side of the negotiation with a driver, as a 1.31 control plane was seen to do it."""

import pytest

from contract import bodies
from contract.negotiation import FINALIZER


class Site:
    """Two nodes for pods of this test, and the driver that serves them."""

    def __init__(self, driver, label, nodes):
        self.driver = driver
        self.world = driver.world
        self.label = label
        self.nodes = nodes

    async def pod(self, *claims, **spec):
        """Create a pod that uses claims, called g0, g1 and so on in it, and return its name."""
        uses = self.driver.uses(**{f"g{number}": claim.name for number, claim in enumerate(claims)})
        made = await self.world.make(
            "pods", spec=bodies.pod_spec(node=self.label, **{"resourceClaims": uses, **spec})
        )
        return made["metadata"]["name"]

    async def context(self, pod, holds=lambda _: True):
        """Wait for the pod's context, and until something holds of it."""
        self.world.remember(self.world.path("podschedulingcontexts", pod))
        return await self.world.until("podschedulingcontexts", pod, holds)

    async def wait_until_selected(self, pod, *nodes):
        """Wait until one of these nodes is selected for the pod, and return it."""
        wanted = nodes or self.nodes
        return selection(await self.context(pod, lambda context: selection(context) in wanted))

    async def answer(self, pod, **unsuitable):
        """Report the nodes that do not suit the pod's claims."""
        answers = [{"name": name, "unsuitableNodes": list(nodes)} for name, nodes in unsuitable.items()]
        path = self.world.path("podschedulingcontexts", pod, "status")
        reply = await self.world.api.merge(path, {"status": {"resourceClaims": answers}})
        assert reply.code == 200, reply.body

    async def allocate(self, claim, pod, node):
        """Allocate a claim for the node selected for a pod."""
        stored = (await self.world.api.get(self.world.path("pods", pod))).body
        consumer = {"resource": "pods", "name": pod, "uid": stored["metadata"]["uid"]}
        await claim.allocate(node, reserved=[consumer])

    async def wait_until_bound(self, pod):
        """Wait until a pod has its node, and return that."""
        assigned = await self.world.until("pods", pod, lambda stored: stored["spec"].get("nodeName"))
        return assigned["spec"]["nodeName"]

    async def run_pod(self, claim):
        """Return a pod that got the claim, on its node."""
        pod = await self.pod(claim)
        await self.allocate(claim, pod, await self.wait_until_selected(pod))
        await self.wait_until_bound(pod)
        return pod

    async def claim_until(self, claim, holds):
        """Wait until something holds of a claim's status."""
        return await self.world.until(
            "resourceclaims", claim.name, lambda stored: holds(stored.get("status") or {})
        )

    async def delete(self, pod):
        """Delete a pod; no kubelet has to let it go."""
        await self.world.api.delete(self.world.path("pods", pod), gracePeriodSeconds=0)


def selection(context):
    return (context.get("spec") or {}).get("selectedNode")


def potential(context):
    return sorted((context.get("spec") or {}).get("potentialNodes") or [])


@pytest.fixture
async def site(driver):
    world = driver.world
    label = world.name("site")
    nodes = [await world.node(f"{label}-{number}", **{bodies.NODE_LABEL: label}) for number in (1, 2)]
    return Site(driver, label, [node["metadata"]["name"] for node in nodes])


async def test_for_one_claim_a_node_is_selected_before_anybody_answered(site):
    pod = await site.pod(await site.driver.claim())
    context = await site.context(pod, selection)
    assert potential(context) == sorted(site.nodes)
    assert selection(context) in site.nodes
    (owner,) = context["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("Pod", pod, True)


async def test_for_several_claims_the_answers_are_waited_for(site):
    claims = [await site.driver.claim() for _ in range(2)]
    pod = await site.pod(*claims)
    context = await site.context(pod, potential)
    assert (potential(context), selection(context)) == (sorted(site.nodes), None)
    first, second = site.nodes
    await site.answer(pod, g0=[first], g1=[])
    assert await site.wait_until_selected(pod) == second


async def test_another_node_is_selected_when_the_selected_one_does_not_suit(site):
    pod = await site.pod(await site.driver.claim())
    first = await site.wait_until_selected(pod)
    (other,) = set(site.nodes) - {first}
    await site.answer(pod, g0=[first])
    context = await site.context(pod, lambda stored: selection(stored) == other)
    assert potential(context) == sorted(site.nodes)


async def test_the_pod_is_bound_once_its_claim_is_allocated_and_its_context_goes(site):
    claim = await site.driver.claim()
    pod = await site.pod(claim)
    node = await site.wait_until_selected(pod)
    await site.allocate(claim, pod, node)
    assert await site.wait_until_bound(pod) == node
    await site.world.wait_until_gone("podschedulingcontexts", pod)
    assert [consumer["name"] for consumer in (await claim.current())["status"]["reservedFor"]] == [pod]


async def test_a_pod_with_several_claims_is_bound_when_all_are_allocated(site):
    claims = [await site.driver.claim() for _ in range(2)]
    pod = await site.pod(*claims)
    await site.context(pod, potential)
    await site.answer(pod, g0=[], g1=[])
    node = await site.wait_until_selected(pod)
    await site.allocate(claims[0], pod, node)
    assert not (await site.world.api.get(site.world.path("pods", pod))).body["spec"].get("nodeName")
    await site.allocate(claims[1], pod, node)
    assert await site.wait_until_bound(pod) == node


async def test_a_claim_that_is_allocated_already_is_reserved_by_the_scheduler(site):
    claim = await site.driver.claim()
    await claim.allocate(site.nodes[1])
    pod = await site.pod(claim)
    assert await site.wait_until_bound(pod) == site.nodes[1]
    status = (await claim.current())["status"]
    assert [consumer["name"] for consumer in status["reservedFor"]] == [pod]


async def test_the_claim_of_a_pod_that_went_is_asked_back_and_stays_allocated(site):
    claim = await site.driver.claim()
    pod = await site.run_pod(claim)
    await site.delete(pod)
    asked = await site.claim_until(claim, lambda status: status.get("deallocationRequested"))
    assert not asked["status"].get("reservedFor")
    assert asked["status"]["allocation"]["controller" if not site.driver.by_class else "resourceHandles"]
    assert asked["metadata"]["finalizers"] == [FINALIZER]
    await claim.deallocate()
    assert not (await claim.current()).get("status")


async def test_a_claim_that_was_deallocated_serves_the_next_pod(site):
    claim = await site.driver.claim()
    pod = await site.run_pod(claim)
    await site.delete(pod)
    await site.claim_until(claim, lambda status: status.get("deallocationRequested"))
    await claim.deallocate()
    assert await site.run_pod(claim) != pod


async def test_a_claim_is_asked_back_only_when_its_last_pod_went(site):
    claim = await site.driver.claim()
    pods = [await site.run_pod(claim), await site.pod(claim)]
    await site.wait_until_bound(pods[1])
    await site.delete(pods[0])
    left = await site.claim_until(
        claim, lambda status: [consumer["name"] for consumer in status["reservedFor"]] == [pods[1]]
    )
    assert not left["status"].get("deallocationRequested")
    await site.delete(pods[1])
    await site.claim_until(claim, lambda status: status.get("deallocationRequested"))


async def test_a_claim_made_from_a_template_goes_with_its_pod_when_the_driver_lets_go(site):
    template = await site.world.make("resourceclaimtemplates", spec={"spec": site.driver.spec()})
    pod = await site.pod(resourceClaims=site.driver.makes(g0=template["metadata"]["name"]))
    created = await site.world.until(
        "pods", pod, lambda stored: stored["status"].get("resourceClaimStatuses")
    )
    (entry,) = created["status"]["resourceClaimStatuses"]
    assert entry["name"] == "g0"
    claim = site.driver.remember(entry["resourceClaimName"])
    await site.allocate(claim, pod, await site.wait_until_selected(pod))
    await site.wait_until_bound(pod)
    await site.delete(pod)
    await site.world.until(
        "resourceclaims", claim.name, lambda stored: stored["metadata"].get("deletionTimestamp")
    )
    await site.claim_until(claim, lambda status: not status.get("reservedFor"))
    await claim.deallocate()
    await site.world.wait_until_gone("resourceclaims", claim.name)


async def test_for_a_pod_that_has_its_node_already_a_context_selects_that_node(site):
    claim = await site.driver.claim()
    pod = await site.pod(claim, nodeName=site.nodes[0])
    context = await site.context(pod, selection)
    assert (selection(context), potential(context)) == (site.nodes[0], [])
    (owner,) = context["metadata"]["ownerReferences"]
    assert owner["name"] == pod
    await claim.allocate(site.nodes[0])
    reserved = await site.claim_until(claim, lambda status: status.get("reservedFor"))
    assert [consumer["name"] for consumer in reserved["status"]["reservedFor"]] == [pod]


@pytest.mark.needs("classic v1alpha2")
async def test_an_immediate_claim_needs_no_pod_and_its_pod_waits_for_it(site):
    claim = await site.driver.claim(allocationMode="Immediate")
    pod = await site.pod(claim)
    await site.world.until("pods", pod, is_unschedulable)
    await claim.allocate(site.nodes[1])
    assert await site.wait_until_bound(pod) == site.nodes[1]


@pytest.mark.needs("classic v1alpha2")
async def test_an_immediate_claim_stays_allocated_when_its_pod_went(site):
    claim = await site.driver.claim(allocationMode="Immediate")
    await claim.allocate(site.nodes[0])
    pod = await site.pod(claim)
    await site.wait_until_bound(pod)
    await site.delete(pod)
    left = await site.claim_until(claim, lambda status: not status.get("reservedFor"))
    assert left["status"]["allocation"]
    assert not left["status"].get("deallocationRequested")


async def test_of_two_claims_on_different_nodes_one_is_asked_back(site):
    claims = {}
    for node in site.nodes:
        claim = await site.driver.claim()
        await claim.allocate(node)
        claims[claim.name] = claim
    await site.pod(*claims.values())

    def find_deallocation_requests(reply):
        return [
            item["metadata"]["name"]
            for item in reply.items
            if item["metadata"]["name"] in claims and (item.get("status") or {}).get("deallocationRequested")
        ]

    path = site.world.path("resourceclaims")
    reply = await site.world.eventually(lambda: site.world.api.get(path), find_deallocation_requests)
    assert len(find_deallocation_requests(reply)) == 1


async def test_nodes_that_do_not_suit_the_class_are_not_asked_about(site):
    chosen = site.nodes[1]
    device_class = await site.driver.more(suitableNodes=bodies.node_selector(chosen))
    pod = await site.pod(await device_class.claim())
    context = await site.context(pod, selection)
    assert (potential(context), selection(context)) == ([chosen], chosen)


def is_unschedulable(pod):
    """Return whether the scheduler reported a pod as unschedulable."""
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(
        condition["type"] == "PodScheduled" and condition["status"] == "False" for condition in conditions
    )
