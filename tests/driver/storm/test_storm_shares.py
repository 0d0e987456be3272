"""The storm over shares of a pool of memory: each becomes a slice, while others carve from the pool, too."""

import asyncio
import collections

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule
from tests.driver.storm import machine, world

from drawbar.driver.api import quantities
from drawbar.fabric import contract
from drawbar.fabric import errors as fabric_errors
from drawbar.mocks.fabric import faults
from drawbar.mocks.testing import worlds

POOL = "m0"
STEP = 256 << 20
STEPS = 6
# Of a share that all trouble has ended for.
USABLE_SECONDS, TRIES = 120, 4
CREATE, DELETE = contract.OperationKind.CREATE_SLICE, contract.OperationKind.DELETE_SLICE

sizes = st.integers(1, 3)
slice_troubles = st.sampled_from(
    [
        faults.Refuse(method="create-slice", times=2),
        faults.Refuse(method="create-slice", code=fabric_errors.Code.FAILED_PRECONDITION, reason="DECODER"),
        faults.Hang(method="create-slice"),
        faults.Fail(method=CREATE),
        faults.Fail(method=CREATE, happens=True),
        faults.Fail(method=CREATE, code=fabric_errors.Code.FAILED_PRECONDITION, times=2),
        faults.Stick(method=CREATE),
        faults.LoseReply(method=CREATE),
        faults.LoseReply(method=CREATE, hang=True),
        faults.LoseReply(method=machine.ATTACH),
        faults.Fail(method=machine.ATTACH),
        faults.Fail(method=machine.ATTACH, times=2),
        faults.Refuse(method="delete-slice", times=2),
        faults.Hang(method="delete-slice"),
        faults.Fail(method=DELETE),
        faults.Fail(method=DELETE, happens=True),
        faults.Stick(method=DELETE),
        faults.LoseReply(method=DELETE),
    ]
)


class ShareStorm(world.Storm):
    """A cluster whose fabric has a pool of memory besides.

    Attributes:
        others: the slices of other owners.
    """

    def __init__(self, *args):
        super().__init__(*args)
        self.others = set()
        # The ids of their requests.
        self._asked_by_others = set()
        self._names = {}

    def describe_fabric(self):
        described = super().describe_fabric()
        pool = {"id": POOL, "class": "cxl-memory", "serial": "0x1000", "memoryBytes": STEPS * STEP}
        described["enclosures"][0]["devices"].append(pool | {"sliceStepBytes": STEP, "isPool": True})
        described["hosts"] = [host | {"ports": 8} for host in described["hosts"]]
        return described

    @property
    def slices(self):
        """All slices of the pool, by id."""
        return {made.id: made for made in self.fabric._world.stock.slices(POOL)}

    @property
    def ours(self):
        """The slices that this cluster had made."""
        return {name: made for name, made in self.slices.items() if _share_of(made) is not None}

    def name_of(self, device_id):
        if device_id not in self._names and device_id in self.ours:
            self._names[device_id] = f"share-{_share_of(self.slices[device_id])}"
        return self._names.get(device_id, device_id)

    def devices_of(self, result):
        return (f"share-{result['shareID']}" if "shareID" in result else result["device"],)

    # Claims.

    async def offered_bytes(self):
        """Return the amount of memory that the pool is published with; 0 while it is not published."""
        values = [
            device["capacity"]["memory"]["value"]
            for spec in await self.specs()
            for device in spec.get("devices", ())
            if device["name"] == POOL
        ]
        return sum(map(quantities.parse, values))

    async def allocate_shares(self, counts, node, *, careless=False):
        """Give shares of so many steps to one claim; a scheduler that is not careless looks what is left."""
        offered, allocated = await self.offered_bytes(), sum(share["bytes"] for share in await self.shares())
        if not offered or (not careless and allocated + sum(counts) * STEP > offered):
            return
        results = [
            worlds.result("f/e", POOL)
            | {
                "shareID": self._share_id(),
                "consumedCapacity": {"memory": quantities.format_bytes(count * STEP)},
            }
            for count in counts
        ]
        await self._create_claim(node, *results)

    def _share_id(self):
        self._serial += 1
        return f"00000000-0000-4000-8000-{self._serial:012x}"

    def _renew_result(self, result):
        return result | {"shareID": self._share_id()} if "shareID" in result else result

    async def shares(self):
        """Return the id and the size of each share that claims have."""
        return [
            {"id": result["shareID"], "bytes": quantities.parse(result["consumedCapacity"]["memory"])}
            for claim in await self.claims()
            for result in claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
            if "shareID" in result
        ]

    # Operators and others.

    async def recorded_shares(self):
        """Return the device names of the attachments of shares and slices."""
        devices = [attachment["spec"]["device"] for attachment in await self.attachments()]
        return [device for device in devices if device not in self.devices]

    async def a_record_of_a_share_vanishes(self, number):
        recorded = await self.recorded_shares()
        if recorded:
            await self.an_attachment_vanishes(recorded[number % len(recorded)])

    async def delete_an_attachment_of_a_share(self, number):
        recorded = await self.recorded_shares()
        if recorded:
            await self.delete_an_attachment(recorded[number % len(recorded)])

    async def the_link_of_a_slice_breaks(self, number):
        connected = [name for name, made in self.ours.items() if made.connection is not None]
        if connected:
            await self.surprise(connected[number % len(connected)])

    async def somebody_else_carves(self, count, mark):
        # As a controller of another cluster names it.
        request = contract.CreateSliceRequest(
            request_id=f"{self._share_id()}-s1", device_id=POOL, memory_bytes=count * STEP, mark=mark
        )
        await self._ask_as_another(request)

    async def somebody_else_gives_back(self, number):
        names = sorted(self.others & self.slices.keys())
        if names:
            name = names[number % len(names)]
            self.others.discard(name)
            request = contract.DeleteSliceRequest(request_id=self._share_id(), device_id=name)
            await self._ask_as_another(request)

    async def _ask_as_another(self, request):
        self._asked_by_others.add(request.request_id)
        try:
            await self.fabric._works.begin(request)
        except fabric_errors.FabricError:
            # The pool is busy or full, or the slice is: another owner waits as well.
            return

    async def others_end(self):
        """Cancel the unfinished operations of other owners."""
        for record in self.fabric._world.list_unfinished_records():
            if record.operation.request_id in self._asked_by_others:
                await self.fabric._works.cancel(record.operation.id)


def _share_of(made):
    """Return the id of the share that a slice was made for; None for a slice of another owner."""
    slice_ = made.slice_of
    if slice_.mark in (None, machine.OTHERS_MARK):
        return None
    return slice_.request_id.rpartition("-s")[0]


class ShareTruth(machine.Truth):
    """One slice for each share, as large as that is, and none that is left over."""

    async def check(self):
        await super().check()
        slices, ours = self.storm.slices, self.storm.ours
        assert sum(made.memory_bytes for made in slices.values()) <= STEPS * STEP
        assert await self.storm.offered_bytes() <= STEPS * STEP
        count = collections.Counter(map(_share_of, ours.values()))
        assert not count or max(count.values()) == 1, f"more slices than one are of one share: {count}"
        bytes_of = {_share_of(made): made.memory_bytes for made in ours.values()}
        claimed = {share["id"]: share["bytes"] for share in await self.storm.shares()}
        for share, memory_bytes in bytes_of.items():
            assert memory_bytes == claimed.get(share, memory_bytes), f"share {share} has {memory_bytes} bytes"
        await self._check_records(bytes_of, claimed)
        self._check_others(slices)

    async def _check_records(self, bytes_of, claimed):
        """Check that attachments have as much memory as their claims were given, and share no slice."""
        occupied = collections.Counter()
        for attachment in await self.storm.attachments():
            share, device = attachment["spec"].get("share"), attachment.get("status", {}).get("device")
            occupied.update([device["id"]] if device else [])
            if share:
                wanted = share["memoryBytes"]
                id_ = share["shareID"]
                assert wanted == claimed.get(id_, wanted) == bytes_of.get(id_, wanted), attachment["spec"]
        assert not occupied or max(occupied.values()) == 1, f"a slice is in two attachments: {occupied}"

    def _check_others(self, slices):
        for name in self.storm.others:
            assert name in slices, f"{name} was taken from another owner"
            assert slices[name].connection is None, f"{name} of another owner is attached"
        busy = {
            record.device_id
            for record in self.storm.fabric._world.list_unfinished_records()
            if record.delete is not None
        }
        self.storm.others |= slices.keys() - self.storm.ours.keys() - busy

    async def _end_trouble(self):
        await super()._end_trouble()
        await self.storm.others_end()

    async def check_calm(self):
        """Check that each slice has its attachment, and that the pool is published with all that is free."""
        await self.grow_calm()
        recorded = {
            attachment["spec"]["share"]["shareID"]
            for attachment in await self.storm.attachments()
            if "share" in attachment["spec"]
        }
        left = {_share_of(made) for made in self.storm.ours.values()} - recorded
        assert not left, f"slices of {left} are left over: {await self._what_is_left()}"
        assert await self.storm.offered_bytes() == self._free_of_others()

    def _free_of_others(self):
        held = sum(made.memory_bytes for made in self.storm.slices.values() if _share_of(made) is None)
        return STEPS * STEP - held

    async def come_to_rest(self):
        await super().come_to_rest()
        await self._check_usable()

    async def _is_at_rest(self):
        return (
            not self.storm.ours
            and await self.storm.offered_bytes() == self._free_of_others()
            and await super()._is_at_rest()
        )

    async def _check_usable(self):
        """Check that a claim gets all that is free: nothing left at the fabric keeps the pool busy."""
        free = self._free_of_others() // STEP
        if not free:
            return
        for _ in range(TRIES):
            await self.storm.allocate_shares([free], "n1")
            until = self.storm.loop.time() + USABLE_SECONDS
            while self.storm.loop.time() < until:
                await asyncio.sleep(1)
                if any(made.connection is not None for made in self.storm.ours.values()):
                    return
            for _ in await self.storm.claims():
                await self.storm.release(0, deletes=True)
            await self.storm.nodes_do_their_duty()
            await asyncio.sleep(5)
        raise AssertionError(f"no claim gets {free} steps of the pool: {await self._what_is_left()}")


class ShareMachine(machine.StormMachine):
    """What may happen to a pool and its shares besides."""

    cluster, judge = ShareStorm, ShareTruth

    @rule(size=sizes, node=machine.nodes, careless=st.booleans(), loop_rounds=st.integers(0, 60))
    def allocate_a_share(self, size, node, careless, loop_rounds):
        self.does(self.storm.allocate_shares([size], node, careless=careless), loop_rounds=loop_rounds)

    @rule(both=st.tuples(sizes, sizes), node=machine.nodes, loop_rounds=st.integers(0, 60))
    def allocate_two_shares(self, both, node, loop_rounds):
        self.does(self.storm.allocate_shares(both, node), loop_rounds=loop_rounds)

    @rule(number=st.integers(0, 9), loop_rounds=st.integers(0, 60))
    def a_record_of_a_share_vanishes(self, number, loop_rounds):
        self.does(self.storm.a_record_of_a_share_vanishes(number), loop_rounds=loop_rounds)

    @rule(number=st.integers(0, 9))
    def somebody_deletes_an_attachment_of_a_share(self, number):
        self.does(self.storm.delete_an_attachment_of_a_share(number))

    @rule(number=st.integers(0, 9))
    def the_link_of_a_slice_breaks(self, number):
        self.does(self.storm.the_link_of_a_slice_breaks(number))

    @rule(size=sizes, mark=st.sampled_from([None, machine.OTHERS_MARK]))
    def somebody_else_carves(self, size, mark):
        self.does(self.storm.somebody_else_carves(size, mark))

    @rule(number=st.integers(0, 9))
    def somebody_else_gives_back(self, number):
        self.does(self.storm.somebody_else_gives_back(number))

    @rule(fault=slice_troubles, size=sizes, node=machine.nodes, loop_rounds=st.integers(0, 60))
    def a_share_has_trouble(self, fault, size, node, loop_rounds):
        self.storm.fabric.console.add_fault(fault)
        self.does(self.storm.allocate_shares([size], node), loop_rounds=loop_rounds)

    @rule(fault=slice_troubles)
    def the_carving_has_trouble(self, fault):
        self.storm.fabric.console.add_fault(fault)


@pytest.mark.timeout(machine.TIMEOUT_SECONDS)
def test_each_share_is_one_memory_chunk_and_none_is_left_in_a_storm():
    machine.run(ShareMachine, short=8)


# What the storm found once, as the few steps that matter.


async def until_free(storm, seconds):
    """Wait until nothing is attached, recorded or carved."""
    for _ in range(seconds // 5):
        await storm.nodes_do_their_duty()
        await asyncio.sleep(5)
        if not await storm.attachments() and not storm.ours:
            return
    raise AssertionError(f"after {seconds} s: {await storm.attachments()}, {storm.slices}")


def test_a_share_whose_record_vanished_before_it_was_reported_is_attached_with_the_same_slice(in_storm):
    async def steps(storm):
        await storm.allocate_shares([1], "n1")
        # The slice is made, and on its way to the node.
        await asyncio.sleep(3)
        assert [record.device_id for record in storm.fabric._world.list_unfinished_records()] == [*storm.ours]
        await storm.kill_controller()
        await storm.a_record_of_a_share_vanishes(0)
        (made,) = storm.ours
        await asyncio.sleep(5)
        storm.start_controller()
        await asyncio.sleep(5)
        (claim,) = await storm.claims()
        assert claim["status"]["devices"][0]["conditions"][0]["type"] == "drawbar.dev/attached"
        assert list(storm.ours) == [made]

    in_storm(steps, ShareStorm)


@pytest.mark.parametrize("counts", [[1], [1, 1]], ids=["not-attached", "attached"])
def test_a_memory_chunk_without_a_record_is_deleted_despite_its_failed_claim(in_storm, counts):
    async def steps(storm):
        fails = faults.Fail(
            method=machine.ATTACH, code=fabric_errors.Code.FAILED_PRECONDITION, skip=len(counts) - 1
        )
        storm.fabric.console.add_fault(fails)
        await storm.allocate_shares(counts, "n1")
        await asyncio.sleep(20)
        await storm.nodes_do_their_duty()
        assert (len(storm.ours), len(storm.connections())) == (len(counts), len(counts) - 1)
        for _ in counts:
            await storm.a_record_of_a_share_vanishes(0)
        await until_free(storm, 60)
        assert len(await storm.claims()) == 1

    in_storm(steps, ShareStorm)


def test_an_endless_deletion_is_cancelled_and_the_memory_is_freed(in_storm):
    async def steps(storm):
        await storm.allocate_shares([1], "n1")
        await asyncio.sleep(5)
        await storm.nodes_do_their_duty()
        storm.fabric.console.add_fault(faults.Stick(method=DELETE))
        await storm.release(0, deletes=True)
        await until_free(storm, 180)

    in_storm(steps, ShareStorm)


def test_a_deletion_that_never_ends_is_cancelled_for_the_share_whose_claim_still_has_the_slice(in_storm):
    async def steps(storm):
        await storm.allocate_shares([1], "n1")
        await asyncio.sleep(5)
        await storm.nodes_do_their_duty()
        (made,) = storm.ours
        storm.fabric.console.add_fault(faults.Stick(method=DELETE))
        await storm.delete_an_attachment_of_a_share(0)
        await asyncio.sleep(1)
        await storm.nodes_do_their_duty()
        await asyncio.sleep(5)
        # The record is new, and what the one before had begun goes on.
        assert [record.device_id for record in storm.fabric._world.list_unfinished_records()] == [made]
        assert len(await storm.attachments()) == 1
        await storm.release(0, deletes=True)
        await until_free(storm, 180)

    in_storm(steps, ShareStorm)


def test_a_node_that_fails_with_an_attached_share_occupies_no_controller_and_taints_no_memory(in_storm):
    async def steps(storm):
        await storm.allocate_shares([1], "n1")
        await asyncio.sleep(5)
        await storm.a_node_fails_a_device(0)
        await asyncio.sleep(5)
        (claim,) = await storm.claims()
        reasons = {each["reason"] for each in claim["status"]["devices"][0]["conditions"]}
        assert "DriverNotBound" in reasons
        assert not any((await storm.taints()).values())
        await storm.release(0, deletes=True)
        await asyncio.sleep(1)
        await storm.nodes_do_their_duty()
        await until_free(storm, 60)

    in_storm(steps, ShareStorm)


def test_a_creation_whose_record_vanished_and_that_never_ends_is_cancelled_for_the_next_share(in_storm):
    async def steps(storm):
        storm.fabric.console.add_fault(faults.Stick(method=CREATE))
        await storm.allocate_shares([1], "n1")
        await asyncio.sleep(1)
        await storm.release(0, deletes=True)
        await storm.a_record_of_a_share_vanishes(0)
        for _ in range(2):
            await storm.allocate_shares([1], "n2")
            await asyncio.sleep(100)
            if storm.connections():
                return
            await storm.release(0, deletes=True)
            await storm.nodes_do_their_duty()
            await asyncio.sleep(5)
        raise AssertionError(storm.fabric._world.list_unfinished_records())

    in_storm(steps, ShareStorm)
