"""Devices between two claims, and devices that an operator holds or takes away."""

from tests.scenes import attachments as scenes

from drawbar.driver.api import attachments
from drawbar.driver.kube import kinds
from drawbar.mocks.testing import worlds

DEVICE = "gpu-0"
NAME = f"fab.{DEVICE}"


async def ready(cluster, until, claim):
    """Wait until the device is attached for the claim, and report it visible as its node does."""
    stored = await until(cluster.attachments, lambda value: _serves(value, claim))
    node = {"claimUID": stored[NAME]["spec"]["claim"]["uid"]}
    visible = scenes.condition(attachments.VISIBLE, reason="DeviceReady")
    await worlds.apply_status(cluster.api, NAME, "drawbar-node", node=node, conditions=[visible])


def _serves(stored, claim):
    spec = stored.get(NAME, {}).get("spec", {})
    conditions = stored.get(NAME, {}).get("status", {}).get("conditions", ())
    return spec.get("claim", {}).get("name") == claim and any(
        condition["type"] == attachments.ATTACHED and condition["status"] == "True"
        for condition in conditions
    )


async def in_use(cluster, until, claim="c1", **where):
    await cluster.allocate(DEVICE, name=claim, pod=claim, **where)
    await cluster.wait_until_attached(DEVICE, claim)
    await ready(cluster, until, claim)


async def test_the_next_claim_on_the_node_gets_an_idle_device_without_a_call_to_the_fabric(
    controller_world, until
):
    async with controller_world() as cluster:
        cluster.start()
        await cluster.make_fabric(policy={"keepAttachedSeconds": 600})
        specs = await cluster.wait_for_slices()
        await in_use(cluster, until)
        await cluster.deallocate("c1")
        idle = await until(cluster.attachments, lambda value: "idleSince" in value[NAME]["spec"])
        assert "claim" not in idle[NAME]["spec"]
        assert await cluster.slices() == specs, "an idle device is offered as it was"
        await in_use(cluster, until, "c2")
        taken = (await cluster.attachments())[NAME]
        assert taken["spec"]["claim"]["requests"] == ["r0"]
        assert "idleSince" not in taken["spec"]
        assert taken["metadata"]["uid"] == idle[NAME]["metadata"]["uid"]
        assert cluster.calls("attach") == [DEVICE]
        assert cluster.calls("detach") == []


async def test_a_claim_that_comes_at_once_gets_the_device_although_nothing_is_kept(served_world, until):
    async with served_world() as cluster:
        await in_use(cluster, until, by_class={"cleanUp": {"hook": "blank"}})
        assert "cleanUp" in (await cluster.attachments())[NAME]["spec"]["claim"]
        # Allocated before the first one is let go, so there is no moment without a claim.
        await cluster.allocate(DEVICE, name="c2", pod="c2")
        await cluster.deallocate("c1")
        await cluster.wait_until_attached(DEVICE, "c2")
        assert "cleanUp" not in (await cluster.attachments())[NAME]["spec"]["claim"]
        assert cluster.calls("detach") == []


async def test_an_idle_device_is_detached_when_its_time_is_over(served_world, until):
    async with served_world(spec={"policy": {"keepAttachedSeconds": 1}}) as cluster:
        await in_use(cluster, until)
        await cluster.deallocate("c1")
        await cluster.wait_until_deleting(NAME)
        await cluster.release_attachments(NAME)
        assert cluster.calls("detach") == [DEVICE]


async def test_an_idle_device_moves_to_the_node_of_the_next_claim(served_world, until):
    async with served_world(spec={"policy": {"keepAttachedSeconds": 600}}) as cluster:
        await in_use(cluster, until)
        await cluster.deallocate("c1")
        await until(cluster.attachments, lambda value: "idleSince" in value[NAME]["spec"])
        await cluster.allocate(DEVICE, name="c2", node="node-2", pod="c2")
        await cluster.wait_until_deleting(NAME)
        await cluster.node_says(NAME, attachments.RELEASED)
        await cluster.wait_until_attached(DEVICE, "c2")
        assert (await cluster.attachments())[NAME]["spec"]["nodeName"] == "node-2"
        assert cluster.calls("attach") == [DEVICE, DEVICE]


async def test_an_operator_takes_a_device_from_a_node_that_does_not_let_go(served_world, until):
    async with served_world() as cluster:
        await in_use(cluster, until)
        annotation = {"metadata": {"annotations": {attachments.FORCE_ANNOTATION: "true"}}}
        await cluster.patch(kinds.ATTACHMENT, NAME, annotation)
        await cluster.wait_until_called("detach")
        assert cluster.calls("detach") == [DEVICE]


async def test_a_device_attached_by_hand_is_never_reported_to_a_claim(served_world, until):
    async with served_world() as cluster:
        body = scenes.document(NAME, "node-1", pool="fab/enc-1", hostID="host-node-1")
        await cluster.api.create(kinds.ATTACHMENT, body, into=dict)
        await until(cluster.attachments, _is_attached)
        for node, claim in (("node-1", "c1"), ("node-2", "c2")):
            await cluster.allocate(DEVICE, name=claim, node=node, pod=claim)
            device_conditions = await until(
                lambda name=claim: cluster.device_conditions(name), lambda value: value.get(DEVICE)
            )
            assert device_conditions[DEVICE] == {"attach-failed": "DeviceInUse"}
        assert _is_attached(await cluster.attachments())


def _is_attached(stored):
    return any(
        condition["type"] == attachments.ATTACHED
        for condition in stored[NAME].get("status", {}).get("conditions", ())
    )
