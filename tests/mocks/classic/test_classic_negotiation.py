"""The scheduler double and a resource driver negotiate over the API server double."""

import argparse
import asyncio
import json

import pytest

from drawbar.driver.kube import kinds
from drawbar.mocks.apiserver import faults
from drawbar.mocks.scheduler import command

NEWER = pytest.mark.parametrize("profile", ["1.31-classic"], indirect=True)


def _selected_node(context):
    return context["spec"].get("selectedNode")


def _list_consumers(claim):
    return [consumer["name"] for consumer in claim.get("status", {}).get("reservedFor", ())]


async def test_conflicting_claims_are_deallocated_until_the_pod_fits(cluster, driving):
    claim = cluster.dialect.claim
    # The first attempt breaks off.
    refused = faults.Selection(verb="update", resource="resourceclaims", subresource="status")
    once = faults.Occasions(times=1)
    cluster.server.faults.add(faults.Fault(select=refused, when=once, effect=faults.Refusal(code=500)))
    await cluster.nodes("a", "b")
    for name, node in (("c1", "a"), ("c2", "b")):
        await cluster.claim(name)
        await cluster.allocate(name, node)
    await cluster.pod("p1", "c1", "c2")
    await cluster.event("p1", "deallocation of ResourceClaim completed")
    asked = await cluster.until(
        claim,
        lambda items: [
            stored["metadata"]["name"] for stored in items if stored["status"].get("deallocationRequested")
        ],
    )
    assert len(asked) == 1, "one at a time"
    assert (await cluster.wait_for(claim, asked[0]))["status"]["allocation"], "the driver clears it"
    async with driving(2, ["a", "b"]):
        node = await cluster.wait_until_bound("p1")
    claims = await cluster.all(claim)
    assert {tuple(_list_consumers(stored)) for stored in claims.values()} == {("p1",)}
    assert all(f"'{node}'" in str(stored["status"]["allocation"]) for stored in claims.values())


@NEWER
async def test_a_selection_is_withdrawn_before_deallocation_is_asked_for(cluster):
    await cluster.nodes("a", "b")
    await cluster.claim("c1")
    pod = await cluster.pod("p1", "c1")
    await cluster.wait_for(cluster.dialect.context, "p1", _selected_node)
    await cluster.allocate("c1", "elsewhere", pod)
    claim = await cluster.wait_for(
        cluster.dialect.claim, "c1", lambda claim: claim["status"].get("deallocationRequested")
    )
    assert not _list_consumers(claim)
    assert not _selected_node(await cluster.wait_for(cluster.dialect.context, "p1"))
    updates = [
        (write.resource, write.subresource) for write in cluster.server.writes if write.verb == "update"
    ]
    assert updates == [("podschedulingcontexts", ""), ("resourceclaims", "status")]


@NEWER
async def test_a_pod_finds_the_one_node_of_many_that_its_claim_can_be_allocated_for(cluster, driving):
    names = [f"n{number:03}" for number in range(131)]
    await cluster.nodes(*names)
    await cluster.claim("c1")
    async with driving(1, ["n070"]):
        await cluster.pod("p1", "c1")
        assert await cluster.wait_until_bound("p1") == "n070"


async def test_pods_that_compete_are_all_served_in_turn(cluster, controlling, driving):
    await cluster.nodes("a", "b", "c")
    await cluster.template("gpus")
    waiting = {f"p{number}" for number in range(5)}
    async with controlling(), driving(2, ["a", "b"]) as driver:
        for name in sorted(waiting):
            await cluster.pod(name, template="gpus")
        while waiting:
            ready = await cluster.until(
                kinds.POD,
                lambda items: [pod["metadata"]["name"] for pod in items if pod["spec"].get("nodeName")],
            )
            for name in ready:
                await cluster.patch(kinds.POD, name, {"status": {"phase": "Succeeded"}}, "status")
                await cluster.delete(kinds.POD, name)
                waiting.discard(name)
        await cluster.until(cluster.dialect.claim, lambda claims: not claims)
        await cluster.until(cluster.dialect.context, lambda contexts: not contexts)
    assert driver.most_used <= 2
    # No other client writes the spec: so it is the scheduler that does not go round in circles.
    for number in range(5):
        assert len(cluster.writes("podschedulingcontexts", name=f"p{number}")) <= 12


@NEWER
async def test_a_restarted_scheduler_takes_a_negotiation_up_where_it_stands(idle, scheduling):
    await idle.nodes("a", "b")
    await idle.claim("c1")
    pod = await idle.pod("p1", "c1")
    async with scheduling():
        await idle.wait_for(idle.dialect.context, "p1", _selected_node)
    await idle.allocate("c1", "a", pod)
    async with scheduling():
        assert await idle.wait_until_bound("p1") == "a"
        await idle.wait_until_gone(idle.dialect.context, "p1")


@pytest.fixture
def late(cluster):
    """Delay the answer to the scheduler's first context; the server stores the context at once."""
    effect = faults.Latency(seconds=0.3, after=True)
    select = faults.Selection(verb="create", resource="podschedulingcontexts")
    cluster.server.faults.add(faults.Fault(select=select, when=faults.Occasions(times=1), effect=effect))
    return cluster


@NEWER
async def test_an_answer_that_comes_while_the_scheduler_still_writes_is_not_lost(late):
    await late.nodes("a", "b")
    await late.claim("c1")
    await late.pod("p1", "c1")
    refused = _selected_node(await late.wait_for(late.dialect.context, "p1"))
    await late.answer("p1", c1=[refused])
    await late.wait_for(
        late.dialect.context, "p1", lambda context: _selected_node(context) not in {"", refused}
    )


@NEWER
async def test_a_drivers_reservation_survives_a_late_scheduler(late):
    await late.nodes("a")
    await late.claim("c1")
    pod = await late.pod("p1", "c1")
    await late.wait_for(late.dialect.context, "p1")
    await late.allocate("c1", "a", pod)
    assert await late.wait_until_bound("p1") == "a"
    assert [write.verb for write in late.writes("resourceclaims", "status")] == ["patch"], (
        "the driver's alone"
    )


@NEWER
@pytest.mark.parametrize("after", [False, True], ids=["refused", "done-but-unanswered"])
async def test_any_write_may_fail_once_and_the_pod_is_bound_and_its_claim_reserved(
    cluster, controlling, driving, after
):
    for select in (
        faults.Selection(verb="create", resource="podschedulingcontexts"),
        faults.Selection(verb="update", resource="podschedulingcontexts"),
        faults.Selection(verb="update", resource="resourceclaims", subresource="status"),
        faults.Selection(verb="create", resource="pods", subresource="binding"),
    ):
        refusal = faults.Refusal(code=500, after=after)
        cluster.server.faults.add(faults.Fault(select=select, when=faults.Occasions(times=1), effect=refusal))
    await cluster.nodes("a", "b")
    await cluster.claim("c1")
    async with controlling(), driving(1, ["b"]):
        await cluster.pod("p1", "c1")
        assert await cluster.wait_until_bound("p1") == "b"
        await cluster.wait_for(cluster.dialect.claim, "c1", lambda claim: _list_consumers(claim) == ["p1"])


@NEWER
async def test_a_pod_that_goes_while_it_waits_leaves_nothing_behind(cluster, controlling):
    await cluster.nodes("a")
    await cluster.claim("c1")
    async with controlling():
        await cluster.pod("p1", "c1")
        await cluster.wait_for(cluster.dialect.context, "p1", _selected_node)
        await cluster.delete(kinds.POD, "p1")
        await cluster.wait_until_gone(cluster.dialect.context, "p1")
        again = await cluster.pod("p1", "c1")
        context = await cluster.wait_for(cluster.dialect.context, "p1", _selected_node)
        assert context["metadata"]["ownerReferences"][0]["uid"] == again["metadata"]["uid"]
        await cluster.allocate("c1", "a", again)
        assert await cluster.wait_until_bound("p1") == "a"


@NEWER
async def test_a_pod_that_goes_at_the_last_moment_leaves_its_claim_unreserved(cluster):
    slow = faults.Selection(verb="create", resource="pods", subresource="binding")
    held = cluster.server.faults.add(faults.Fault(select=slow, effect=faults.Partition()))
    claim = cluster.dialect.claim
    await cluster.nodes("a")
    await cluster.claim("c1")
    await cluster.allocate("c1", "a")
    await cluster.pod("p1", "c1")
    await cluster.wait_for(claim, "c1", lambda stored: _list_consumers(stored) == ["p1"])
    await cluster.delete(kinds.POD, "p1")
    await cluster.wait_until_gone(kinds.POD, "p1")
    held.lift()
    left = await cluster.wait_for(claim, "c1", lambda stored: not _list_consumers(stored))
    assert not left["status"].get("deallocationRequested")


@NEWER
async def test_a_context_that_belongs_to_another_pod_is_left_alone_until_it_goes(cluster):
    await cluster.nodes("a")
    await cluster.claim("c1")
    other = await cluster.pod("other", "missing")
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "other", "controller": True}
    metadata = {"name": "p1", "ownerReferences": [{**owner, "uid": other["metadata"]["uid"]}]}
    await cluster.create(cluster.dialect.context, "p1", metadata=metadata, spec={})
    pod = await cluster.pod("p1", "c1")
    await cluster.event("p1", "is not owned by Pod default/p1")
    assert await cluster.wait_for(cluster.dialect.context, "p1", lambda context: not _selected_node(context))
    await cluster.delete(cluster.dialect.context, "p1")
    await cluster.wait_for(cluster.dialect.context, "p1", _selected_node)
    await cluster.allocate("c1", "a", pod)
    assert await cluster.wait_until_bound("p1") == "a"


@NEWER
async def test_the_command_serves_a_cluster_that_has_no_device_taints(idle, tmp_path, capsys):
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    arguments = parser.parse_args(["--kubeconfig", str(tmp_path / "kubeconfig"), "--seed", "1"])
    await idle.nodes("a")
    await idle.template("gpus")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(command.serve(arguments))
        pod = await idle.pod("p1", template="gpus")
        await idle.wait_for(idle.dialect.context, "p1", _selected_node)
        (name,) = await idle.all(idle.dialect.claim)
        await idle.allocate(name, "a", pod)
        assert await idle.wait_until_bound("p1") == "a"
        task.cancel()
    assert json.loads(capsys.readouterr().out)["ready"]
