"""The state machine of the storm: the whole controller, in virtual time, in a cluster where anything may happen at any moment.

Claims come, move and go; controllers die between two steps of the event loop; replies are lost, watches lag and break;
nodes die; the fabric refuses, fails, is silent, loses devices, and others use it too. Three things are checked after
every step, and that everything comes to rest once the trouble is over. Here devices are given one by one;
`test_storm_composites` and `test_storm_shares` add what composites and pools of memory have of their own.
"""

import asyncio
import json
import logging
import os
import shutil
import tempfile
from pathlib import Path

import hypothesis
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.driver.storm import agreement, world
from tests.scenes import defects

from drawbar.fabric import contract
from drawbar.fabric import errors as fabric_errors
from drawbar.mocks.apiserver import faults
from drawbar.mocks.fabric import faults as fabric_faults
from drawbar.mocks.testing import virtualtime

DRIVER = "drawbar.dev"
NODES = ("n1", "n2", "n3")
DEVICES = tuple(f"d{number}" for number in range(4))
OTHERS_MARK = "drawbar/another-cluster/f"
CONTROLLER = "system:serviceaccount:drawbar:drawbar-controller"
REST_SECONDS = 7200
# So long a controller may act for a record that it has not seen vanish, for its watch is down.
UNSEEN_SECONDS = 60
# The longest patience with a claim, and then the scheduler's, after which a failed allocation is rolled back.
CALM_SECONDS = 1300
# Some 75 steps each. The short run is the same every time; `make storm` sets the variable for a long one that is not.
EXAMPLES, STEPS = int(os.environ.get("DRAWBAR_STORM_EXAMPLES", "25")), 100
# Where to add what the fabric did in each example, to compare two runs.
JOURNAL = os.environ.get("DRAWBAR_STORM_JOURNAL")
ATTACH, DETACH = contract.OperationKind.ATTACH, contract.OperationKind.DETACH

nodes, devices = st.sampled_from(NODES), st.sampled_from(DEVICES)


fabric_troubles = st.sampled_from(
    [
        fabric_faults.Refuse(method="attach"),
        fabric_faults.Refuse(method="detach"),
        fabric_faults.Refuse(method="operation", times=3),
        fabric_faults.Refuse(method="devices", times=2),
        fabric_faults.Refuse(method="attach", code=fabric_errors.Code.FAILED_PRECONDITION, reason="POWER"),
        fabric_faults.Hang(method="attach"),
        fabric_faults.Hang(method="operation"),
        fabric_faults.Fail(method=ATTACH),
        fabric_faults.Fail(method=ATTACH, happens=True),
        fabric_faults.Fail(method=ATTACH, code=fabric_errors.Code.FAILED_PRECONDITION, times=2),
        fabric_faults.Fail(method=DETACH),
        fabric_faults.Fail(method=DETACH, happens=True),
        fabric_faults.Stick(method=ATTACH),
        fabric_faults.Stick(method=DETACH),
        fabric_faults.LoseEvents(resync_seconds=7.0),
        fabric_faults.LoseReply(method=ATTACH),
        fabric_faults.LoseReply(method=DETACH),
        fabric_faults.LoseReply(method=ATTACH, hang=True),
    ]
)
WRITES = "create,update,patch,delete"
api_troubles = st.sampled_from(
    [
        faults.Refusal(code=500),
        faults.Refusal(code=500, after=True),
        faults.Refusal(code=429, retry_after=1),
        faults.Refusal(code=409, after=True),
        faults.Disconnect(),
        faults.Disconnect(after=True),
        faults.Latency(seconds=3),
        faults.Latency(seconds=3, after=True),
        faults.DroppedWatch(),
        faults.DroppedWatch(ending="expired"),
        faults.DuplicatedEvents(copies=2),
        faults.DelayedEvents(seconds=4),
    ]
)


class Truth:
    """What must hold of a cluster in the storm, and after it."""

    def __init__(self, storm):
        self.storm = storm
        self.stated = set()

    async def check(self):
        """Check what must hold at every moment."""
        recorded = await self.storm.attachments()
        specs = self._by_device(recorded)
        assert len(specs) == len(recorded), f"two attachments are of one device: {recorded}"
        connected = self.storm.connections()
        on_the_way = {record.device_id for record in self.storm.fabric._world.list_unfinished_records()}
        on_the_way |= {device for device, count in self.storm.asked.items() if count}
        on_the_way = set(map(self.storm.name_of, on_the_way))
        unseen = self.storm.loop.time() - UNSEEN_SECONDS
        for device, since in list(self.storm.orphans.items()):
            if device in connected:
                is_over = specs.get(device, {}).get("hostID") == connected[device]
            else:
                is_over = since < unseen
            if is_over and device not in on_the_way:
                del self.storm.orphans[device]
        unmarked = self.storm.find_unmarked()
        wanted = await self.storm.list_allocated() if unmarked else set()
        # Where a claim for that very node has no attachment yet, it may be taken as it is at any moment.
        undecided = {
            device for device in unmarked if device not in specs and (device, connected[device]) in wanted
        }
        for device in unmarked:
            # On the very node that an attachment is for, it is taken as it is: the difference does not show.
            taken = specs.get(device, {}).get("hostID") == connected[device] or device in undecided
            (self.storm.foreign.discard if taken else self.storm.foreign.add)(device)
        for device, host in connected.items():
            if device not in self.storm.foreign | self.storm.orphans.keys() | undecided:
                assert device in specs, f"{device} hangs on {host} and no attachment is for it"
                assert specs[device]["hostID"] == host, (
                    f"{device} hangs on {host}, recorded is {specs[device]}"
                )
        for device in self.storm.foreign:
            assert device in connected, f"{device} was taken from another cluster"
        await self._check_claims(connected)
        await agreement.check(self.storm)

    def _by_device(self, recorded):
        """Return the specs of attachments by the name that `connections` has for their device."""
        specs = [attachment["spec"] for attachment in recorded]
        return {self.storm.name_of(spec["device"]): spec for spec in specs}

    async def _check_claims(self, connected):
        """Check that each condition was true when it was first written; it may stand longer than its cause."""
        stated = set()
        for claim in await self.storm.claims():
            allocation = claim.get("status", {}).get("allocation")
            for reported in claim.get("status", {}).get("devices", ()):
                if any(
                    condition["type"] == f"{DRIVER}/attached" and condition["status"] == "True"
                    for condition in reported["conditions"]
                ):
                    node = world.node_of(allocation)
                    device = (reported["device"], reported.get("shareID"))
                    key = (claim["metadata"]["uid"], allocation["allocationTimestamp"], *device, node)
                    stated.add(key)
                    if key not in self.stated:
                        self._check_statement(key, await self._parts(claim, reported), connected)
        self.stated = stated

    async def _parts(self, claim, reported):
        """Return what may be the devices of a statement; those of one alternative have to be there."""
        return [self.storm.devices_of(reported)]

    def _check_statement(self, key, alternatives, connected):
        host = f"h-{key[-1]}"
        for devices in alternatives:
            assert self.storm.marked.isdisjoint(devices), f"{key} reports a device of another claim"
        where = [
            {device: (connected.get(device), self.storm.broken.get(device)) for device in devices}
            for devices in alternatives
        ]
        assert any(all(host in hosts for hosts in devices.values()) for devices in where), (
            f"{key} reports that it is attached, and is at {where}"
        )

    async def come_to_rest(self):
        """End the trouble and release all claims; check that everything becomes free and nothing is left."""
        await self._end_trouble()
        await self.check_calm()
        for attachment in await self.storm.attachments():
            if "claim" not in attachment["spec"] and "idleSince" not in attachment["spec"]:
                await self.storm.delete_an_attachment(attachment["spec"]["device"])
        for _ in await self.storm.claims():
            await self.storm.release(0, deletes=True)
        deadline = self.storm.loop.time() + REST_SECONDS
        while not await self._is_at_rest():
            assert self.storm.loop.time() < deadline, await self._what_is_left()
            await self.storm.nodes_do_their_duty()
            await asyncio.sleep(5)
            await self.check()
        await agreement.settle(self.storm)

    async def _end_trouble(self):
        self.storm.server.faults.clear()
        self.storm.fabric.console.clear_faults()
        self.storm.fabric.console.resume()
        if not self.storm.controlled:
            self.storm.start_controller()
        for name in sorted(self.storm.dead):
            await self.storm.a_node_comes_back(name)

    async def check_calm(self):
        """Check what must hold once the trouble is over, while claims have devices."""

    async def grow_calm(self):
        """Let everything that waits come to its end: deadlines, and the allocation that failed."""
        until = self.storm.loop.time() + CALM_SECONDS
        while self.storm.loop.time() < until:
            await self.storm.nodes_do_their_duty()
            await asyncio.sleep(15)
            # What stands on a claim may be over at the end: one that fails as a whole keeps it.
            await self._check_claims(self.storm.connections())
        await self.check()

    async def _is_at_rest(self):
        free = set(self.storm.connections()) == self.storm.foreign
        marked = {
            device["name"]
            for spec in await self.storm.specs()
            for device in spec.get("devices", ())
            if device.get("taints")
        }
        return (
            not await self.storm.attachments()
            and not await self.storm.claims()
            and free
            and marked == {name for name in map(self.storm.offered_as, self.storm.foreign) if name}
        )

    async def _what_is_left(self):
        return json.dumps(
            {
                "claims": await self.storm.claims(),
                "attachments": await self.storm.attachments(),
                "connections": self.storm.connections(),
                "slices": await self.storm.specs(),
                "foreign": sorted(self.storm.foreign),
            }
        )


class StormMachine(RuleBasedStateMachine):
    """What may happen.

    Attributes:
        cluster: the class of the cluster that it happens to.
        judge: the class that checks what must hold of it.
    """

    cluster, judge = world.Storm, Truth

    def __init__(self):
        super().__init__()
        forget()
        self.loop = virtualtime.VirtualTimeLoop()
        self.path = Path(tempfile.mkdtemp(prefix="storm-"))
        self.storm = self.cluster(self.loop, self.path, NODES, DEVICES)
        self.truth = self.judge(self.storm)
        self.began = False

    def does(self, *steps, loop_rounds=0):
        """Take steps, let the event loop run `loop_rounds` times, and check the outcome."""

        async def all_of_it():
            for step in steps:
                await step
            for _ in range(loop_rounds):
                await asyncio.sleep(0)
            await self.truth.check()
            defects.check()

        self.loop.run_until_complete(all_of_it())

    @initialize(keep_seconds=st.sampled_from([0, 0, 20]))
    def begin(self, keep_seconds):
        self.began = True
        self.does(self.storm.begin(keep_seconds), asyncio.sleep(1))

    @rule(device=devices, node=nodes, loop_rounds=st.integers(0, 60))
    def allocate(self, device, node, loop_rounds):
        self.does(self.storm.allocate(device, node), loop_rounds=loop_rounds)

    @rule(number=st.integers(0, 9), deletes=st.booleans(), loop_rounds=st.integers(0, 60))
    def release(self, number, deletes, loop_rounds):
        self.does(self.storm.release(number, deletes=deletes), loop_rounds=loop_rounds)

    @rule(number=st.integers(0, 9), loop_rounds=st.integers(0, 60))
    def reallocate(self, number, loop_rounds):
        self.does(self.storm.reallocate(number), loop_rounds=loop_rounds)

    @rule(loop_rounds=st.integers(0, 200))
    def the_controller_dies_and_another_begins(self, loop_rounds):
        self.does(self.storm.kill_controller())
        self.loop.call_soon(self.storm.start_controller)
        self.does(loop_rounds=loop_rounds)

    @rule(seconds=st.sampled_from([0.1, 1, 3, 10, 40, 90]))
    def time_passes(self, seconds):
        self.does(asyncio.sleep(seconds))

    @rule()
    def nodes_do_their_duty(self):
        self.does(self.storm.nodes_do_their_duty())

    @rule(number=st.integers(0, 9))
    def a_node_fails_a_device(self, number):
        self.does(self.storm.a_node_fails_a_device(number))

    @rule(number=st.integers(0, 9))
    def a_node_acts_once(self, number):
        self.does(self.storm.a_node_acts_once(number))

    @rule(number=st.integers(0, 9))
    def a_node_cannot_release(self, number):
        self.does(self.storm.a_node_cannot_release(number))

    @rule(node=nodes)
    def a_node_dies(self, node):
        self.does(self.storm.a_node_dies(node))

    @rule(node=nodes)
    def a_node_comes_back(self, node):
        self.does(self.storm.a_node_comes_back(node))

    @rule(device=devices, node=nodes, mark=st.sampled_from([None, OTHERS_MARK]))
    def somebody_else_attaches(self, device, node, mark):
        self.does(self.storm.somebody_else_attaches(device, node, mark))

    @rule(device=devices)
    @precondition(lambda self: self.storm.foreign)
    def somebody_else_detaches(self, device):
        self.does(self.storm.somebody_else_detaches(device))

    @rule(device=devices)
    def the_link_breaks(self, device):
        self.does(self.storm.surprise(device))

    @rule(device=devices, node=nodes)
    def an_operator_attaches(self, device, node):
        self.does(self.storm.attach_by_hand(device, node))

    @rule(device=devices)
    def somebody_deletes_an_attachment(self, device):
        self.does(self.storm.delete_an_attachment(device))

    @rule(device=devices, loop_rounds=st.integers(0, 60))
    def an_attachment_vanishes(self, device, loop_rounds):
        self.does(self.storm.an_attachment_vanishes(device), loop_rounds=loop_rounds)

    @rule(fault=fabric_troubles)
    def the_fabric_has_trouble(self, fault):
        self.storm.fabric.console.add_fault(fault)

    @rule()
    def the_fabric_forgets_its_operations(self):
        self.does(self.storm.fabric.console.forget_operations())

    @rule(silent=st.booleans())
    def the_fabric_is_silent(self, silent):
        (self.storm.fabric.console.pause if silent else self.storm.fabric.console.resume)()

    @rule(effect=api_troubles, times=st.integers(1, 3))
    def the_api_server_has_trouble(self, effect, times):
        # A real API server refuses no reading for a conflict.
        verb = WRITES if isinstance(effect, faults.Refusal) and effect.code == 409 else "*"
        select = faults.Selection(user=CONTROLLER, verb=verb)
        self.storm.server.faults.add(
            faults.Fault(effect=effect, select=select, when=faults.Occasions(times=times))
        )

    @rule()
    def it_is_quiet_for_a_while(self):
        self.does(
            asyncio.sleep(5),
            self.storm.nodes_do_their_duty(),
            asyncio.sleep(5),
            agreement.settle(self.storm),
        )

    def teardown(self):
        try:
            if self.began:
                self.loop.run_until_complete(self.truth.come_to_rest())
        finally:
            self.loop.run_until_complete(self.storm.end())
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()
            if JOURNAL and self.began:
                with Path(JOURNAL).open("a") as kept:
                    kept.write(f"{(self.path / 'journal').read_text()}after {self.loop.time()} s\n")
            shutil.rmtree(self.path)
        defects.check()


def forget():
    """Forget the example before: its log, as that of a thousand takes a gigabyte, and its defects, which are told by then."""
    defects.SEEN.clear()
    for handler in logging.getLogger().handlers:
        if reset := getattr(handler, "reset", None):
            reset()


SETTINGS = hypothesis.settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    # What fails is long to shrink; the line that is printed finds it again, on any machine.
    phases=(hypothesis.Phase.explicit, hypothesis.Phase.reuse, hypothesis.Phase.generate),
    print_blob=True,
    derandomize="DRAWBAR_STORM_EXAMPLES" not in os.environ,
    database=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)


# `make storm EXAMPLES=2000` takes hours on a busy machine.
TIMEOUT_SECONDS = max(1500, 30 * EXAMPLES)


def run(machine, *, short=EXAMPLES):
    """Take a machine through as many examples as are asked for, or else through the short run's number."""
    count = EXAMPLES if "DRAWBAR_STORM_EXAMPLES" in os.environ else short
    run_state_machine_as_test(machine, settings=hypothesis.settings(SETTINGS, max_examples=count))
