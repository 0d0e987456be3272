"""The storm over composites: devices that are given together, while the Fabric's list of them changes, too."""

import asyncio
import collections
import dataclasses

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule
from tests.driver.storm import machine, world

from drawbar.driver.kube import client, kinds
from drawbar.fabric import errors as fabric_errors
from drawbar.mocks.fabric import faults

DUO = {"duo": ("d0", "d1")}
# What a Fabric may be changed to: other members, another name, more, fewer, none, and what is no composite.
LISTS = (
    DUO,
    {},
    {"duo": ("d0", "d1"), "rest": ("d2", "d3")},
    {"duo": ("d1", "d2")},
    {"pair": ("d0", "d1")},
    {"duo": ("d0", "d1", "d2")},
    {"duo": ("d0", "d9")},
)
NAMES = ("duo", "rest", "pair")
# After which a controller that runs has taken a change of the Fabric over, whatever its watch does.
TAKEN_OVER_SECONDS = 60
GONE_FOR_GOOD = 10**6
LASTING = {"retryable": False, "message": "the retimer is dark"}

members = st.sampled_from(("d0", "d1", "d2"))
member_troubles = st.sampled_from(
    [
        faults.Fail(method=machine.ATTACH, **LASTING),
        faults.Fail(method=machine.ATTACH, times=3, **LASTING),
        faults.Fail(method=machine.ATTACH, code=fabric_errors.Code.FAILED_PRECONDITION),
        faults.Refuse(method="attach", code=fabric_errors.Code.FAILED_PRECONDITION, reason="POWER"),
        faults.Fail(method=machine.ATTACH, happens=True),
        faults.Stick(method=machine.ATTACH),
        faults.Stick(method=machine.DETACH),
        faults.LoseReply(method=machine.ATTACH),
    ]
)


class CompositeStorm(world.Storm):
    """A cluster whose Fabric has composites.

    Attributes:
        composites: by name the members, as the Fabric has them now.
        changed_at: when that changed last, on the loop's clock.
        defined: by name all members that it ever had.
    """

    def __init__(self, *args):
        super().__init__(*args)
        self.composites, self.changed_at = DUO, 0.0
        self.defined = collections.defaultdict(set, {"duo": {DUO["duo"]}})
        # By device how many of the next listings lack it.
        self.unlisted = collections.Counter()

    def describe_fabric(self):
        # Otherwise all members would always arrive at once.
        times = {"attachSeconds": 1, "mostAttachSeconds": 8, "detachSeconds": 0, "mostDetachSeconds": 4}
        return super().describe_fabric() | times

    def extra_spec(self):
        return {"composites": _as_spec(self.composites)}

    def as_listed(self, inventory):
        lacking = [device for device, count in self.unlisted.items() if count > 0]
        self.unlisted.subtract(lacking)
        devices = tuple(device for device in inventory.devices if device.id not in lacking)
        return dataclasses.replace(inventory, devices=devices)

    async def arrange(self, composites):
        self.composites, self.changed_at = composites, self.loop.time()
        for name, devices in composites.items():
            self.defined[name].add(devices)
        body = {"spec": {"composites": _as_spec(composites)}}
        await self.api.patch(kinds.FABRIC, "f", body, content=client.Patch.MERGE, into=dict)

    async def clear_the_way(self):
        """Remove whatever others or operators hold that keeps the members of `duo` from a claim."""
        self.unlisted.clear()
        self.fabric.console.clear_faults()
        self.fabric.console.resume()
        if self.composites != DUO:
            await self.arrange(DUO)
        for device in DUO["duo"]:
            await self.somebody_else_detaches(device)
            for attachment in await self.attachments():
                spec = attachment["spec"]
                if spec["device"] == device and "claim" not in spec and "idleSince" not in spec:
                    await self.delete_an_attachment(device)

    def vanish_from_listings(self, device, count):
        self.unlisted[device] = count
        self.fabric.console.resync()

    def offered_as(self, device):
        own = "" if device in self.reserved else device
        return next((name for name, devices in self.valid.items() if device in devices), own)

    @property
    def valid(self):
        """The Fabric's composites of devices that there are."""
        return {
            name: devices for name, devices in self.composites.items() if set(devices) <= set(self.devices)
        }

    @property
    def reserved(self):
        """The devices that no claim is to get by themselves."""
        return {device for devices in self.composites.values() for device in devices}

    def devices_of(self, result):
        name = result["device"]
        return self.composites.get(name) or min(self.defined.get(name, {(name,)}))


def _as_spec(composites):
    return [{"name": name, "devices": list(devices)} for name, devices in composites.items()]


class CompositeTruth(machine.Truth):
    """All members or none, and none of them alone."""

    def __init__(self, storm):
        super().__init__(storm)
        self.offered_alone = set()

    async def check(self):
        await super().check()
        await self._check_records()
        await self._check_offers()

    async def _check_records(self):
        """Check that attachments match their claims' allocations, and agree on a composite's members."""
        allocations = {
            claim["metadata"]["uid"]: claim["status"]["allocation"]
            for claim in await self.storm.claims()
            if "allocation" in claim.get("status", {})
        }
        agreed = {}
        for spec in [attachment["spec"] for attachment in await self.storm.attachments()]:
            composite, claim = spec.get("composite"), spec.get("claim")
            allocation = allocations.get(claim["uid"]) if claim else None
            if composite:
                assert spec["device"] in composite["devices"], spec
                first = agreed.setdefault(composite["name"], composite["devices"])
                assert first == composite["devices"], (
                    f"{composite['name']} has {first} and {composite['devices']}"
                )
            if allocation and allocation["allocationTimestamp"] == spec["allocationTimestamp"]:
                name = composite["name"] if composite else spec["device"]
                allocated = [result["device"] for result in allocation["devices"]["results"]]
                assert name in allocated, f"{spec} is for a claim that was given {allocated}"

    async def _check_offers(self):
        """Check that no member comes to be offered alone, except for a while after the composites changed."""
        taken, offered = await self._taken_alone(), set(await self.storm.taints())
        alone = (offered & self.storm.reserved) - taken
        if self.storm.loop.time() > self.storm.changed_at + TAKEN_OVER_SECONDS:
            appeared = alone - self.offered_alone
            assert not appeared, f"{appeared} are offered alone, and are members of {self.storm.composites}"
        self.offered_alone = alone | taken

    async def _taken_alone(self):
        """Return the devices that claims have, or had, by themselves: these become members afterwards."""
        claimed = {
            result["device"]
            for claim in await self.storm.claims()
            for result in claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
        }
        specs = [attachment["spec"] for attachment in await self.storm.attachments()]
        return claimed | {spec["device"] for spec in specs if "composite" not in spec}

    async def _parts(self, claim, reported):
        alternatives = {
            tuple(attachment["spec"]["composite"]["devices"])
            for attachment in await self.storm.attachments()
            if (attachment["spec"].get("claim") or {}).get("uid") == claim["metadata"]["uid"]
            and attachment["spec"].get("composite", {}).get("name") == reported["device"]
        }
        return alternatives or self.storm.defined.get(reported["device"]) or [(reported["device"],)]

    async def _end_trouble(self):
        self.storm.unlisted.clear()
        self.storm.fabric.console.resync()
        await super()._end_trouble()

    async def check_calm(self):
        """Check that of a claimed composite all members have an attachment, unless a pod may be using it."""
        await self.grow_calm()
        claims = {claim["metadata"]["uid"]: claim for claim in await self.storm.claims()}
        held = collections.defaultdict(set)
        for spec in [attachment["spec"] for attachment in await self.storm.attachments()]:
            if spec.get("composite") and spec.get("claim"):
                key = (spec["claim"]["uid"], spec["composite"]["name"], tuple(spec["composite"]["devices"]))
                held[key].add(spec["device"])
        for (uid, name, devices), present in held.items():
            assert uid in claims, f"{present} of {name} are attached for a claim that is gone"
            assert present == set(devices) or _was_ready(claims[uid], name), (
                f"of {name} {sorted(present)} are attached, and not all of {devices}: {claims[uid]['status']}"
            )
        alone = set(await self.storm.taints()) & self.storm.reserved - await self._taken_alone()
        assert not alone, (
            f"{alone} are offered alone, and are members of {self.storm.composites}: {await self._what_is_left()}"
        )

    async def _is_at_rest(self):
        whole = set(self.storm.devices) - self.storm.reserved | self.storm.valid.keys()
        return set(await self.storm.taints()) == whole and await super()._is_at_rest()


def _was_ready(claim, name):
    """Return whether a pod may be using what the claim was given."""
    reported = [entry for entry in claim["status"].get("devices", ()) if entry["device"] == name]
    true = {
        condition["type"]
        for entry in reported
        for condition in entry["conditions"]
        if condition["status"] == "True"
    }
    return {f"{machine.DRIVER}/attached", f"{machine.DRIVER}/visible"} <= true


class CompositeMachine(machine.StormMachine):
    """What may happen to composites besides."""

    cluster, judge = CompositeStorm, CompositeTruth

    @rule(
        device=st.sampled_from((*NAMES, "duo", "duo", *machine.DEVICES)),
        node=machine.nodes,
        loop_rounds=st.integers(0, 60),
    )
    def allocate(self, device, node, loop_rounds):
        self.does(self.storm.allocate(device, node), loop_rounds=loop_rounds)

    @rule(composites=st.sampled_from(LISTS), loop_rounds=st.integers(0, 60))
    def the_list_changes(self, composites, loop_rounds):
        self.does(self.storm.arrange(composites), loop_rounds=loop_rounds)

    @rule(node=machine.nodes, seconds=st.sampled_from([1, 4, 15]), loop_rounds=st.integers(0, 60))
    def a_composite_is_used(self, node, seconds, loop_rounds):
        self.does(self.storm.a_node_comes_back(node), self.storm.clear_the_way(), asyncio.sleep(5))
        self.does(self.storm.nodes_do_their_duty(), asyncio.sleep(5))
        self.does(self.storm.allocate("duo", node), asyncio.sleep(seconds))
        self.does(self.storm.nodes_do_their_duty(), loop_rounds=loop_rounds)

    @rule(device=st.sampled_from(DUO["duo"]), fault=member_troubles, node=machine.nodes)
    def a_composite_has_trouble(self, device, fault, node):
        self.storm.fabric.console.add_fault(_about(fault, device))
        self.does(self.storm.allocate("duo", node))

    @rule(device=members, fault=member_troubles)
    def a_member_has_trouble(self, device, fault):
        self.storm.fabric.console.add_fault(_about(fault, device))

    @rule(device=members, count=st.sampled_from([1, 2, 4, GONE_FOR_GOOD]))
    def a_member_vanishes_from_the_listings(self, device, count):
        self.storm.vanish_from_listings(device, count)

    @rule()
    def the_members_are_listed_again(self):
        self.storm.unlisted.clear()
        self.storm.fabric.console.resync()


def _about(fault, device):
    return msgspec.structs.replace(fault, device=device)


@pytest.mark.timeout(machine.TIMEOUT_SECONDS)
def test_all_members_of_a_composite_are_attached_or_none_in_a_storm():
    machine.run(CompositeMachine, short=8)
