"""The allocator of immediate claims with the fabric, the pools and the API server played by small stand-ins."""

import asyncio
import contextlib
import dataclasses
import datetime
import types

import msgspec
import pytest

from drawbar.driver import containment, evaluation, watching
from drawbar.driver.api import claims, core, demands, fabrics, meta, slices
from drawbar.driver.catalogue import reasons
from drawbar.driver.controller import (
    absences,
    attachment_index,
    change_kinds,
    faults,
    hosts,
    maintenance,
    names,
    pairs,
    refusals,
)
from drawbar.driver.controller import claims as claim_index
from drawbar.driver.controller.allocation import selectors
from drawbar.driver.controller.immediate import allocator, service
from drawbar.driver.controller.pools import devices, fabric_state
from drawbar.driver.kube import errors
from drawbar.fabric import contract

DRIVER = "drawbar.dev"
SELECTOR = f'device.attributes["{DRIVER}"].class == "gpu"'


def _now():
    return datetime.datetime.now(datetime.UTC)


def gpu(name):
    return contract.Device(
        id=name, enclosure="enc", device_class=contract.DeviceClass.GPU, model="H100", serial=name
    )


class Session:
    """A fabric manager that answers, with one host for the node."""

    name, has_listing = "fab", True

    def __init__(self, *offered):
        self.manager = types.SimpleNamespace(silent_since=None)
        self.devices, self.hosts, self.faults, self.pairs = (
            offered,
            (contract.Host(id="h", name="node-1"),),
            faults.Ledger(),
            pairs.Pairs(),
        )
        self.nodes = hosts.NodeMap(host_of={"node-1": "h"}, with_room=frozenset({"node-1"}))


class Store(dict):
    """What a mirror holds, by name."""

    def is_unreadable(self, _name):
        return False

    merge = None

    def __iter__(self):
        return iter(self.values())

    def get(self, name, namespace=None):
        return super().get(name)

    def learn(self, item):
        self[item.metadata.name] = item


class Pools:
    """What is published."""

    def __init__(self):
        self.published, self.keeps_conditions = (), True
        self.changed, self.asked = (lambda old, new: None), 0
        self.beyond = frozenset()

    def find_not_offered(self, fabric):
        return self.beyond

    def show(self, *listed):
        old = self.published[0] if self.published else None
        shown = tuple(devices.build_device(DRIVER, "fab", device, ()) for device in listed)
        pool = slices.Pool(name="fab/enc", generation=1, resource_slice_count=1)
        spec = slices.SliceSpec(driver=DRIVER, pool=pool, devices=shown)
        metadata = meta.ObjectMeta(name="s", labels={fabric_state.FABRIC_LABEL: "fab"})
        self.published = (slices.ResourceSlice(metadata=metadata, spec=spec),)
        self.changed(old, self.published[0])

    def in_fabric(self, fabric):
        self.asked += 1
        return self.published


class AllocatorScene:
    """An allocator, what it sees, and what it wrote; it is the client and the recorder itself."""

    def __init__(self, *offered, settle=0.1, enabled=True, evaluator=None, node_gone_seconds=0):
        reserved = fabrics.Reservation(models=("H100",))
        spec = fabrics.FabricSpec(
            adapter="a",
            endpoint="e",
            policy=fabrics.Policy(
                immediate=reserved, probation_seconds=0, node_gone_seconds=node_gone_seconds
            ),
        )
        fabric = fabrics.Fabric(metadata=meta.ObjectMeta(name="fab"), spec=spec)
        self.session, self.pools = Session(*offered), Pools()
        self.session.spec = spec
        self.ahead = datetime.timedelta()
        self.claims, self.writes, self.events, self.refuse, self.config = Store(), [], [], 0, []
        self.claims.merge = self.merge
        self.read_classes, self.selector = [], SELECTOR
        # By claim name, beside those of its class.
        self.own_selectors, self.messages = {}, []
        self.index = claim_index.Index(DRIVER, _now)
        self.refusals = refusals.Refusals(lambda fabric: None)
        self.nodes = Store({"node-1": core.Node(metadata=meta.ObjectMeta(name="node-1"))})
        cluster = types.SimpleNamespace(
            api=self,
            claims=self.claims,
            recorder=self,
            refusals=self.refusals,
            manager="m",
            driver=DRIVER,
            fabrics=Store({"fab": fabric}),
            sessions=[self.session],
            attachments=Store(),
            placed=attachment_index.Index(),
            maintenance=maintenance.Index(),
            nodes=self.nodes,
            absences=absences.Absences(self.nodes, Store({"fab": self.session}), self.now),
            allocated=self.index,
            pools=self.pools,
            clock=self.now,
            time_of_day=self.now,
            contained=containment.Uncontained(),
        )
        evaluator = evaluator or evaluation.Inline()
        self.waiting = allocator.Waiting(settle_seconds=settle)
        self.allocator = allocator.Allocator(
            cluster=cluster, enabled=enabled, evaluator=evaluator, waiting=self.waiting
        )
        way = service.ImmediateAllocation(enabled=enabled, evaluator=evaluator, waiting=self.waiting)
        self.changes = watching.Dispatcher(watching.Reconciler(way.watches, way.wake))
        self.pools.changed = self.tell_slice_change

    def tell_slice_change(self, old, new):
        self.changes.tell(change_kinds.SliceChange(old=old, new=new))

    def now(self):
        """Return the time of the world's clock, which the test can set forward."""
        return _now() + self.ahead

    def change(self, claim):
        old = self.claims.get(claim.metadata.name)
        self.claims.learn(claim)
        self.index.change(old, claim)
        self.changes.tell(change_kinds.ClaimChange(old=old, new=claim))

    def ask(self, name="c", namespace="default"):
        annotations = {claims.MODE_ANNOTATION: demands.IMMEDIATE}
        metadata = meta.ObjectMeta(name=name, namespace=namespace, uid=f"uid-{name}", annotations=annotations)
        self.change(claims.ResourceClaim(metadata=metadata))

    async def read(self, kind, name, *, namespace=None, into):
        if kind.kind == "DeviceClass":
            self.read_classes.append(name)
            selectors = [{"cel": {"expression": self.selector}}]
            return msgspec.convert({"metadata": {"name": "gpu"}, "spec": {"selectors": selectors}}, into)
        own = [{"cel": {"expression": expression}} for expression in self.own_selectors.get(name, ())]
        request = {"name": "r", "exactly": {"deviceClassName": "gpu.drawbar.dev", "selectors": own}}
        metadata = msgspec.to_builtins(self.claims.get(name).metadata)
        wanted = {"requests": [request], "config": self.config}
        return msgspec.convert({"metadata": metadata, "spec": {"devices": wanted}}, into, strict=False)

    async def merge(self, claim, body, **options):
        name = claim.metadata.name
        self.writes.append((name, body))
        if self.refuse:
            self.refuse -= 1
            raise errors.Conflict("the object has been modified")
        current = self.claims.get(name)
        status = msgspec.convert(msgspec.json.decode(msgspec.json.encode(body["status"])), claims.ClaimStatus)
        stored = msgspec.structs.replace(current, status=status)
        self.change(stored)
        return stored

    def fail(self, name):
        """Report that the controller could not attach the claim's device."""
        claim = self.claims.get(name)
        (result,) = claim.results(DRIVER)
        failed = meta.Condition(type=f"{DRIVER}/attach-failed", status="True", message="dark")
        reports = claims.AllocatedDevice(
            driver=DRIVER, pool=result.pool, device=result.device, conditions=(failed,)
        )
        status = msgspec.structs.replace(claim.status, devices=(reports,))
        self.change(msgspec.structs.replace(claim, status=status))

    def record_normal(self, claim, *, reason, message):
        self.events.append((claim.name, reason))
        self.messages.append(message)

    record_warning = record_normal

    async def has(self, name="c"):
        return self.list_allocated().get(name)

    def list_allocated(self):
        return {
            claim.metadata.name: [result.device for result in claim.results(DRIVER)]
            for claim in self.claims
            if claim.status.allocation is not None
        }


@contextlib.asynccontextmanager
async def running(world):
    task = asyncio.Task(world.allocator.run(), name="allocator")
    try:
        yield world
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_of_two_claims_that_want_one_device_one_gets_it(until):
    async with running(AllocatorScene(gpu("g-0"))) as world:
        for name in ("a", "b"):
            world.ask(name)

        async def events():
            return set(world.events)

        await until(events, lambda reported: len(reported) == 2)
        assert {reason for _, reason in world.events} == {"ImmediatelyAllocated", "NoReservedDevice"}
        assert list(world.list_allocated().values()) == [["g-0"]]


async def test_a_device_that_the_scheduler_was_shown_is_left_alone_until_it_is_withdrawn_and_a_while(until):
    # Longer than what makes it look again.
    settle = 2 * allocator.GATHER_SECONDS
    async with running(AllocatorScene(gpu("g-0"), settle=settle)) as world:
        loop = asyncio.get_running_loop()
        world.pools.show(gpu("g-0"))
        world.ask()

        async def state():
            return world.list_allocated(), world.events

        await until(state, lambda observed: observed[1] == [("c", "NoReservedDevice")])
        withdrawn = loop.time()
        world.pools.show()
        world.waiting.requeue_all()
        await until(state, lambda observed: observed[0] == {"c": ["g-0"]})
        assert loop.time() - withdrawn >= settle


async def test_a_device_that_was_withdrawn_before_anybody_looked_is_left_alone_too(until):
    world = AllocatorScene(gpu("g-0"), gpu("g-1"), settle=0.2)
    loop = asyncio.get_running_loop()
    withdrawn = loop.time()
    world.pools.show(gpu("g-0"), gpu("g-1"))
    world.pools.show(gpu("g-1"))
    async with running(world):
        world.ask()
        assert await until(world.has, bool) == ["g-0"]
        assert loop.time() - withdrawn >= 0.2


async def test_a_conflicting_write_is_decided_again(until):
    async with running(AllocatorScene(gpu("g-0"))) as world:
        world.refuse = 2
        world.ask()

        await until(world.has, bool)
        assert len(world.writes) == 3
        assert {body["metadata"]["uid"] for _, body in world.writes} == {"uid-c"}


async def test_after_a_failure_it_waits_and_another_device_is_tried_first(until):
    async with running(AllocatorScene(gpu("g-0"), gpu("g-1"))) as world:
        world.ask()
        assert await until(world.has, bool) == ["g-0"]
        loop = asyncio.get_running_loop()
        began = loop.time()
        world.fail("c")
        await until(world.has, lambda held: held is None)
        assert await until(world.has, bool) == ["g-1"]
        assert loop.time() - began >= allocator.RETRY_FIRST_SECONDS
        assert ("c", "ImmediateAllocationFailed") in world.events


async def test_a_failure_whose_taking_back_is_refused_as_stale_counts_once(until):
    async with running(AllocatorScene(gpu("g-0"))) as world:
        world.ask()

        async def taken_back():
            return sum(body["status"]["allocation"] is None for _, body in world.writes)

        await until(world.has, bool)
        (memory,) = world.waiting.memories.values()
        world.refuse = 3
        world.fail("c")
        await until(taken_back, lambda tries: tries == 4)
        assert memory.failures == 1
        await until(world.has, bool)
        world.fail("c")
        await until(taken_back, lambda tries: tries == 5)
        assert memory.failures == 2


async def test_those_who_wait_read_their_classes_once_however_often_they_look(until):
    world = AllocatorScene(gpu("g-0"))
    world.selector = "false"
    async with running(world):
        for name in ("a", "b", "c"):
            world.ask(name)

        async def state():
            return len(world.events), world.pools.asked

        await until(state, lambda counts: counts[0] == 3)
        first = world.pools.asked
        world.waiting.requeue_all()
        # The first one looked twice, since the selector was evaluated in between.
        await until(state, lambda counts: counts[1] >= first + 3 * first // 4)
        assert world.read_classes == ["gpu.drawbar.dev"]


UNUSABLE = {
    "ill": {"health": contract.Health.CRITICAL},
    "connected": {"connection": contract.Connection(host_id="elsewhere")},
    "attached": {},
}


@pytest.mark.parametrize("why", UNUSABLE)
async def test_an_unusable_device_is_not_allocated(until, why):
    world = AllocatorScene(dataclasses.replace(gpu("g-0"), **UNUSABLE[why]), gpu("g-1"))
    if why == "attached":
        world.allocator.cluster.attachments[names.DeviceKey(fabric="fab", device="g-0").attachment] = object()
    async with running(world):
        world.ask()
        assert await until(world.has, bool) == ["g-1"]


async def test_a_claim_with_parameters_that_cannot_be_obeyed_is_reported_once_and_never_allocated(until):
    world = AllocatorScene(gpu("g-0"))
    parameters = {"apiVersion": "drawbar.dev/v1alpha1", "kind": "DeviceParameters", "colour": "red"}
    world.config = [{"opaque": {"driver": DRIVER, "parameters": parameters}}]
    async with running(world):
        world.ask()

        async def events():
            return list(world.events)

        await until(events, bool)
        world.config = []
        world.ask("good")
        await until(events, lambda reported: ("good", "ImmediatelyAllocated") in reported)
        world.session.devices = (*world.session.devices, gpu("g-1"))
        # In this order: it is looked at again before the last.
        world.ask("c")
        world.ask("last")
        await until(events, lambda reported: ("last", "ImmediatelyAllocated") in reported)
    assert [reason for name, reason in world.events if name == "c"] == ["InvalidParameters"]
    assert "c" not in [name for name, _ in world.writes]


async def test_no_device_is_allocated_while_the_api_server_drops_binding_conditions(until):
    async with running(AllocatorScene(gpu("g-0"))) as world:
        world.pools.keeps_conditions = False
        world.ask()

        async def state():
            return world.events, world.list_allocated()

        await until(state, lambda observed: observed[0] == [("c", "BindingConditionsDropped")])
        assert world.writes == []
        world.pools.keeps_conditions = True
        world.waiting.requeue_all()
        await until(state, lambda observed: observed[1] == {"c": ["g-0"]})


async def test_a_claim_is_left_to_the_scheduler_where_it_is_off(until):
    async with running(AllocatorScene(gpu("g-0"), enabled=False)) as world:
        world.ask()

        async def events():
            return world.events

        await until(events, lambda reported: reported == [("c", "ImmediateAllocationOff")])
        assert world.writes == []


async def test_a_claim_whose_node_is_gone_gets_a_device_on_another(until):
    world = AllocatorScene(gpu("g-0"))
    async with running(world):
        world.ask()

        async def node():
            allocation = world.claims.get("c").status.allocation
            return allocation.node if allocation is not None else None

        await until(node, lambda name: name == "node-1")
        del world.nodes["node-1"]
        world.nodes["node-2"] = core.Node(metadata=meta.ObjectMeta(name="node-2"))
        world.session.nodes = hosts.NodeMap(host_of={"node-2": "h"})
        world.waiting.requeue_all()
        await until(node, lambda name: name == "node-2")
        assert [reason for _, reason in world.events] == [
            "ImmediatelyAllocated",
            "NodeGone",
            "ImmediatelyAllocated",
        ]


async def test_a_claim_keeps_its_device_while_its_node_may_come_back(until):
    world = AllocatorScene(gpu("g-0"), node_gone_seconds=60)
    async with running(world):
        world.ask()

        async def read_allocated():
            return world.list_allocated()

        await until(read_allocated, lambda allocated: allocated == {"c": ["g-0"]})
        del world.nodes["node-1"]
        claim = world.claims.get("c")
        allocation, memory = claim.status.allocation, world.waiting.memories["default", "c"]
        left = await world.allocator._review(claim, allocation, memory)
        assert 55 < left <= 60
        assert world.list_allocated() == {"c": ["g-0"]}
        world.ahead = datetime.timedelta(seconds=60)
        await world.allocator._review(claim, allocation, memory)
        assert [reason for _, reason in world.events] == ["ImmediatelyAllocated", "NodeGone"]


async def test_a_node_that_is_cordoned_or_full_is_not_chosen(until):
    world = AllocatorScene(gpu("g-0"))
    cordoned = core.NodeSpec(unschedulable=True)
    world.nodes["node-1"] = core.Node(metadata=meta.ObjectMeta(name="node-1"), spec=cordoned)
    full = contract.Host(
        id="h2", name="node-2", ports=(contract.Port(id="p", state=contract.PortState.USED),)
    )
    world.nodes["node-2"] = core.Node(metadata=meta.ObjectMeta(name="node-2"))
    world.nodes["node-3"] = core.Node(metadata=meta.ObjectMeta(name="node-3"))
    world.session.hosts = (*world.session.hosts, full, contract.Host(id="h3", name="node-3"))
    world.session.nodes = hosts.NodeMap(host_of={"node-1": "h", "node-2": "h2", "node-3": "h3"})
    async with running(world):
        world.ask()

        async def node():
            allocation = world.claims.get("c").status.allocation
            return allocation.node if allocation is not None else None

        assert await until(node, bool) == "node-3"


class Slow:
    """An evaluator for which one expression takes long, and which counts what it was asked."""

    def __init__(self, expensive, seconds):
        self._expensive, self._seconds = expensive, seconds
        self.asked = 0

    async def evaluate(self, expression, driver, devices):
        self.asked += 1
        outcome = evaluation.evaluate(expression, driver, devices)
        if self._expensive in expression:
            return evaluation.Outcome(answers=outcome.answers, seconds=self._seconds)
        return evaluation.Outcome(answers=outcome.answers)


async def test_a_selector_that_takes_minutes_is_reported_and_keeps_no_other_waiting(until):
    endless = f"[{', '.join(['1'] * 3000)}].all(x, 'aaaa'.matches('\\\\pL{{1,200}}'))"
    async with (
        contextlib.aclosing(evaluation.Process()) as process,
        running(AllocatorScene(gpu("g-0"), gpu("g-1"), evaluator=process)) as world,
    ):
        world.own_selectors = {"hostile": [endless]}
        world.ask("hostile")

        async def events():
            return list(world.events)

        messages = await until(lambda: asyncio.sleep(0, list(world.messages)), bool)
        assert evaluation.TOO_EXPENSIVE in messages[0]
        world.ask("good")
        await until(events, lambda reported: ("good", "ImmediatelyAllocated") in reported)
    assert "hostile" not in [name for name, _ in world.writes]


async def test_a_namespace_whose_selectors_take_too_long_waits_and_no_other_does(until, monkeypatch):
    monkeypatch.setattr(selectors, "BUDGET_SECONDS", 1.0)
    async with running(AllocatorScene(gpu("g-0"), gpu("g-1"), evaluator=Slow("1 == 1", 0.6))) as world:
        for number in range(4):
            name = f"hostile-{number}"
            world.own_selectors[name] = [f"1 == 1 && {number} < 0"]
            world.ask(name, namespace="hostile")

        async def events():
            return list(world.events)

        reported = await until(events, lambda reported: len(reported) == 4)
        listed = sorted(reason for _, reason in reported)
        assert listed == ["NoReservedDevice"] * 2 + [reasons.SELECTORS_TOO_EXPENSIVE] * 2
        world.ask("good")
        await until(events, lambda reported: ("good", "ImmediatelyAllocated") in reported)


async def test_a_claim_with_selectors_without_end_is_refused_and_not_kept(until):
    world = AllocatorScene(gpu("g-0"))
    async with running(world):
        world.own_selectors = {"c": ["true" + " " * allocator.SELECTORS_CHARS_MAX]}
        world.ask("c")
        messages = await until(lambda: asyncio.sleep(0, list(world.messages)), bool)
    assert "its selectors have more than" in messages[0]
    assert world.waiting.memories["default", "c"].demanding.spec == demands.ClaimSpec()
