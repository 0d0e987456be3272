"""One controller at a time."""

import asyncio
import contextlib

import pytest

from drawbar.driver.api import core, meta
from drawbar.driver.controller.leadership import deadlines, elector
from drawbar.driver.kube import client, config, kinds
from drawbar.mocks import apiserver

QUICK = elector.Terms(duration_seconds=1, renew_within_seconds=0.6, retry_seconds=0.1)


def lease(holder, duration=15):
    spec = core.LeaseSpec(holder_identity=holder, lease_duration_seconds=duration, lease_transitions=3)
    return core.Lease(metadata=meta.ObjectMeta(name="l"), spec=spec)


@pytest.mark.parametrize(
    ("lease", "now", "action"),
    [
        (None, 0.0, deadlines.Create()),
        (lease("me"), 0.0, deadlines.Take()),
        (lease(""), 0.0, deadlines.Take()),
        (lease(None), 0.0, deadlines.Take()),
        (lease("other"), 100.0, deadlines.Wait(seconds=15.0)),
        (lease("other"), 114.0, deadlines.Wait(seconds=1.0)),
        (lease("other"), 115.0, deadlines.Take()),
        (lease("other", None), 108.0, deadlines.Take()),
    ],
    ids=["none", "ours", "given back", "never held", "held", "nearly over", "abandoned", "says no duration"],
)
def test_a_lease_of_another_is_taken_only_when_it_has_run_out_by_our_own_clock(lease, now, action):
    seen = deadlines.Candidacy(lease=lease, identity="me", seen_at=100.0, duration_seconds=8)
    assert deadlines.plan(seen, now) == action


def test_taking_over_counts_a_transition_and_renewing_does_not():
    taken = deadlines.build_held_lease(
        lease("other"), meta.ObjectMeta(), identity="me", duration_seconds=15, stamp="t1"
    )
    assert (taken.spec.lease_transitions, taken.spec.acquire_time) == (4, "t1")
    renewed = deadlines.build_held_lease(
        taken, taken.metadata, identity="me", duration_seconds=15, stamp="t2"
    )
    assert (renewed.spec.lease_transitions, renewed.spec.acquire_time) == (4, "t1")
    assert renewed.spec.renew_time == "t2"


class Candidates:
    """Electors that say in one place when they lead; two at once fail the test."""

    def __init__(self, api):
        self.api = api
        self.leading = set()
        self.history = []
        self.changed = asyncio.Event()

    async def lead(self, name):
        assert not self.leading, f"{name} leads beside {self.leading}"
        self.leading.add(name)
        self.history.append(name)
        self.changed.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.leading.discard(name)
            self.changed.set()

    def start(self, tasks, name, api=None):
        candidate = elector.Elector(
            api or self.api, namespace="default", name="controller", identity=name, terms=QUICK
        )
        return tasks.create_task(candidate.run(lambda: self.lead(name)))

    async def until(self, holds):
        async with asyncio.timeout(120):
            while not holds():
                self.changed.clear()
                await self.changed.wait()

    async def holder(self):
        return await self.api.read(kinds.LEASE, "controller", namespace="default", into=core.Lease)


@contextlib.asynccontextmanager
async def candidates(tmp_path):
    async with apiserver.serving() as server:
        server.kubeconfig(tmp_path / "admin", "admin")
        async with client.connecting(config.from_kubeconfig(tmp_path / "admin")) as api:
            yield Candidates(api)


async def test_a_cancelled_leader_stops_first_and_then_hands_over_at_once(tmp_path):
    async with candidates(tmp_path) as field, asyncio.TaskGroup() as tasks:
        first = field.start(tasks, "first")
        await field.until(lambda: field.leading == {"first"})
        second = field.start(tasks, "second")
        first.cancel()
        await field.until(lambda: field.leading == {"second"})
        held = await field.holder()
        assert held.spec.holder_identity == "second"
        second.cancel()


async def test_a_leader_that_vanished_is_followed_when_its_lease_has_run_out(tmp_path):
    async with candidates(tmp_path) as field, asyncio.TaskGroup() as tasks:
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "controller"},
            "spec": {
                "holderIdentity": "gone",
                "leaseDurationSeconds": 1,
                "renewTime": "2020-01-01T00:00:00.000000Z",
            },
        }
        await field.api.create(kinds.LEASE, body, namespace="default", into=dict)
        follower = field.start(tasks, "follower")
        await field.until(lambda: field.leading == {"follower"})
        assert (await field.holder()).spec.lease_transitions == 1
        follower.cancel()


async def test_a_leader_whose_lease_was_taken_stops(tmp_path):
    async with candidates(tmp_path) as field, asyncio.TaskGroup() as tasks:
        leader = field.start(tasks, "leader")
        await field.until(lambda: field.leading == {"leader"})
        held = await field.holder()
        stolen = {"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 60}}
        merge = {"content": client.Patch.MERGE, "namespace": "default", "into": dict}
        await field.api.patch(kinds.LEASE, "controller", stolen, **merge)
        await field.until(lambda: not field.leading)
        assert held.spec.holder_identity == "leader"
        leader.cancel()


async def test_a_leader_that_cannot_renew_stops_before_its_lease_runs_out(tmp_path):
    async with apiserver.serving() as server:
        server.kubeconfig(tmp_path / "admin", "admin")
        connection = config.from_kubeconfig(tmp_path / "admin")
        async with client.connecting(connection) as api, client.connecting(connection) as cut_off:
            field = Candidates(api)

            async def silent(*_args, **_kwargs):
                await asyncio.get_running_loop().create_future()

            async with asyncio.TaskGroup() as tasks:
                leader = field.start(tasks, "leader", cut_off)
                await field.until(lambda: field.leading == {"leader"})
                cut_off.replace = silent
                follower = field.start(tasks, "follower")
                await field.until(lambda: field.leading == {"follower"})
                assert field.history == ["leader", "follower"]
                leader.cancel()
                follower.cancel()


async def test_work_that_fails_ends_the_elector_and_gives_the_lease_back(tmp_path):
    async with candidates(tmp_path) as field:
        candidate = elector.Elector(
            field.api, namespace="default", name="controller", identity="x", terms=QUICK
        )

        async def fail():
            raise RuntimeError("broken")

        with pytest.raises(ExceptionGroup):
            await candidate.run(fail)
        assert (await field.holder()).spec.holder_identity == ""
