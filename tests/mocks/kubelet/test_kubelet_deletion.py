"""How pods go: gracefully, by force, finished, and while the driver is away."""

import pytest

from drawbar.driver.kube import kinds


async def with_pod(world, plugin, **spec):
    await plugin.wait_for_registration()
    await world.pod("p1", "c1", **spec)
    return await world.runs()


async def test_a_deleted_pod_is_unprepared_while_it_is_still_there_and_then_removed(world):
    seen = []

    async def look():
        pod = await world.api.read(kinds.POD, "p1", into=dict, namespace="default")
        configs = list((world.directory / "pods").glob("*/config*.json"))
        seen.append((pod["status"]["phase"], configs))

    async with world.kubelet(), world.plugin() as plugin:
        pod = await with_pod(world, plugin)
        plugin.unprepare_hook = look
        await world.delete(kinds.POD, "p1")
        await world.wait_until_pod_gone()
        assert plugin.unprepares == [["c1"]]
    assert seen == [("Running", [])]
    assert not (world.directory / "pods" / pod["metadata"]["uid"]).exists()
    assert world.state() == []


async def test_the_containers_of_a_deleted_pod_get_their_grace_period(world):
    async with world.kubelet(stop_seconds=30) as node, world.plugin() as plugin:
        pod = await with_pod(world, plugin, terminationGracePeriodSeconds=1)
        await world.delete(kinds.POD, "p1")
        await world.pod_that(lambda pod: pod["metadata"].get("deletionTimestamp"))
        assert node.sandboxes.exists(pod["metadata"]["uid"])
        assert plugin.unprepares == []
        await world.wait_until_pod_gone()
    assert plugin.unprepares == [["c1"]]


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(lambda claims: {claim.uid: "busy" for claim in claims}, id="claim-error"),
        pytest.param(lambda claims: {}, id="missing-uid"),
        pytest.param(lambda claims: {"x": ""}, id="unknown-uid"),
        pytest.param(RuntimeError("disk full"), id="rpc-error"),
    ],
)
async def test_a_pod_stays_until_its_claims_are_unprepared(world, answer):
    async with world.kubelet(), world.plugin() as plugin:
        await with_pod(world, plugin)
        plugin.unprepare_answers = [answer, *plugin.unprepare_answers]
        await world.delete(kinds.POD, "p1")
        await world.wait_until_pod_gone()
    assert plugin.unprepares == [["c1"], ["c1"]]


async def test_a_deleted_pod_stays_while_its_driver_is_gone(world):
    async with world.kubelet() as node:
        async with world.plugin() as plugin:
            await with_pod(world, plugin)
        await world.drivers(node)
        await world.delete(kinds.POD, "p1")
        await world.pod_that(lambda pod: pod["metadata"].get("deletionTimestamp"))
        async with world.plugin() as second:
            await world.wait_until_pod_gone()
            assert second.unprepares == [["c1"]]


@pytest.mark.parametrize("grace", [pytest.param(None, id="of-the-pod"), pytest.param(0, id="of-the-request")])
async def test_a_pod_without_grace_period_does_not_wait_for_unprepare(world, grace):
    async with world.kubelet() as node:
        async with world.plugin() as plugin:
            await with_pod(world, plugin, terminationGracePeriodSeconds=30 if grace == 0 else 0)
        await world.drivers(node)
        await world.delete(kinds.POD, "p1", grace=grace)
        await world.wait_until_pod_gone()
        assert [entry["ClaimName"] for entry in world.state()] == ["c1"]
        async with world.plugin() as second:
            assert await second.next_call() == ("unprepare", ["c1"])


async def test_a_new_claim_of_the_old_ones_name_waits_until_the_old_one_is_unprepared(world):
    async with world.kubelet() as node:
        async with world.plugin() as plugin:
            await with_pod(world, plugin)
            plugin.unprepare_answers = [lambda claims: {claim.uid: "busy" for claim in claims}]
            (old,) = world.state()
            await world.delete(kinds.POD, "p1", grace=0)
            await world.delete(kinds.CLAIM, "c1")
            await world.pod("p2", "c1")
            await world.event(
                "FailedPrepareDynamicResources",
                f"old ResourceClaim with same name c1 and different UID {old['ClaimUID']} still exists "
                f"(previous pod force-deleted?!)",
            )
            plugin.unprepare_answers = [lambda claims: {claim.uid: "" for claim in claims}]
            await world.runs("p2")
        await world.drivers(node)
    assert plugin.prepares == [["c1"], ["c1"]]


async def test_a_finished_pod_is_unprepared_and_stays(world):
    async with world.kubelet(), world.plugin() as plugin:
        await with_pod(world, plugin)
        assert await plugin.next_call() == ("prepare", ["c1"])
        await world.patch(kinds.POD, "p1", {"status": {"phase": "Succeeded"}}, "status")
        assert await plugin.next_call() == ("unprepare", ["c1"])
        assert len(await world.list(kinds.POD)) == 1


async def test_a_pod_that_went_while_the_kubelet_was_down_is_unprepared_by_the_loop(world):
    async with world.plugin() as plugin:
        async with world.kubelet():
            await with_pod(world, plugin)
        await world.delete(kinds.POD, "p1", grace=0)
        async with world.kubelet():
            await world.pod("p2", "c2")
            await world.runs("p2")
            assert plugin.unprepares == []
        async with world.kubelet(unprepare_seconds=0.05):
            while await plugin.next_call() != ("unprepare", ["c1"]):
                pass
    assert plugin.unprepares == [["c1"]]


async def test_a_pod_that_never_ran_is_removed_at_once(world):
    async with world.kubelet(), world.plugin() as plugin:
        await plugin.wait_for_registration()
        plugin.blocked.clear()
        await world.pod("p1", "c1")
        await plugin.wait_for_call()
        await world.delete(kinds.POD, "p1")
        plugin.blocked.set()
        await world.wait_until_pod_gone()
    assert plugin.unprepares == [["c1"]]
