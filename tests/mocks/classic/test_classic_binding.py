"""How the scheduler double writes when what it knows is out of date."""

import msgspec
import pytest

from drawbar.mocks.claims import documents
from drawbar.mocks.kube import client, mirror
from drawbar.mocks.scheduler.binding import BindingFailed, PodGone
from drawbar.mocks.scheduler.classic import binding

pytestmark = pytest.mark.parametrize("profile", ["1.31-classic"], indirect=True)


class Scheduler:
    """A binder whose copies of claims and contexts are never brought up to date."""

    def __init__(self, cluster, api):
        self.cluster, self.api = cluster, api
        copies = [
            mirror.Mirror(api, kind, into=documents.Document, changed=lambda _old, _new: None)
            for kind in (cluster.dialect.claim, cluster.dialect.context)
        ]
        self.binder = binding.Binder(api, cluster.dialect, claims=copies[0], contexts=copies[1])

    async def claim(self, name):
        return msgspec.convert(
            await self.cluster.wait_for(self.cluster.dialect.claim, name), documents.Document
        )

    async def pod(self, name, *claims):
        return msgspec.convert(await self.cluster.pod(name, *claims), documents.Document)

    async def list_consumers(self, name):
        claim = await self.cluster.wait_for(self.cluster.dialect.claim, name)
        return [consumer["name"] for consumer in claim["status"].get("reservedFor", ())]


@pytest.fixture
async def stale(idle):
    async with client.connecting(idle.connection) as api:
        yield Scheduler(idle, api)


async def test_an_answer_that_came_in_between_survives_the_next_selection(idle, stale):
    pod = await stale.pod("p1", "c1")
    await stale.binder.publish(pod, {"potentialNodes": ["a", "b"], "selectedNode": "a"})
    await idle.answer("p1", c1=["a"])
    await stale.binder.publish(pod, {"selectedNode": "b"})
    context = await idle.wait_for(idle.dialect.context, "p1")
    assert context["spec"] == {"potentialNodes": ["a", "b"], "selectedNode": "b"}
    assert context["status"]["resourceClaims"] == [{"name": "c1", "unsuitableNodes": ["a"]}]


async def test_a_reservation_is_added_to_concurrent_ones(idle, stale):
    await idle.nodes("a")
    await idle.claim("c1")
    await idle.allocate("c1", "a")
    claim = await stale.claim("c1")
    first, second = await stale.pod("p1", "c1"), await stale.pod("p2", "c1")
    await stale.binder.bind(first, [claim], "a")
    await Scheduler(idle, stale.api).binder.bind(second, [claim], "a")
    assert await stale.list_consumers("c1") == ["p1", "p2"]


async def test_a_pod_that_is_gone_leaves_its_claims(idle, stale):
    await idle.claim("c1")
    await idle.allocate("c1", "a")
    pod = await stale.pod("p1", "c1")
    await idle.api.delete(binding.kinds.POD, "p1", namespace="default")
    with pytest.raises(PodGone):
        await stale.binder.bind(pod, [await stale.claim("c1")], "a")
    assert await stale.list_consumers("c1") == []


async def test_a_claim_that_is_being_deleted_is_not_reserved(idle, stale):
    await idle.claim("c1")
    await idle.allocate("c1", "a")
    claim = await stale.claim("c1")
    await idle.delete(idle.dialect.claim, "c1")
    with pytest.raises(BindingFailed, match="got deleted in the meantime"):
        await stale.binder.bind(await stale.pod("p1", "c1"), [claim], "a")
    assert await stale.list_consumers("c1") == []


async def test_a_claim_that_was_replaced_is_not_reserved(idle, stale):
    await idle.claim("c1")
    claim = await stale.claim("c1")
    await idle.delete(idle.dialect.claim, "c1")
    with pytest.raises(BindingFailed, match="not found"):
        await stale.binder.bind(await stale.pod("p1", "c1"), [claim], "a")
    await idle.claim("c1")
    with pytest.raises(BindingFailed, match="was replaced"):
        await stale.binder.bind(await stale.pod("p2", "c1"), [claim], "a")
