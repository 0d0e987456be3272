"""A node daemon beside other drivers, device plugins and processes: API server double with the deployed files, mocked sysfs."""

import contextlib
import dataclasses

import pytest
from tests.scenes import cards, nodes, waiting

from drawbar.driver.api import leftout
from drawbar.driver.catalogue import reasons
from drawbar.driver.kube import events, kinds
from drawbar.driver.node.classes import users
from drawbar.driver.node.inventory import model
from drawbar.driver.node.local import neighbours, nulls, residents, selections
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks import sysfs

NODE = nodes.NODE
NAME = "gpu-48-b0-2d-00-00-00-00-01"
GPU = sysfs.MockDevice(
    device_class=DeviceClass.GPU, vendor=0x10DE, device=0x2330, serial="48-b0-2d-00-00-00-00-01"
)
MEMORY = model.Card(
    functions=(cards.function("0000:41:00.0", DeviceClass.CXL_MEMORY, vendor=0x1AF4, device=1),)
)
VENDOR = "gpu.nvidia.com"
QUIET_SECONDS = 0.5


class SharedNode(nodes.Node):
    """A node with one GPU of its own, and what others say about it."""

    async def left_out(self):
        """Return what the annotation of the node's pool says is left to others."""
        return [
            each
            for slice_ in await self.list(kinds.SLICE)
            for each in leftout.decode(slice_["metadata"].get("annotations", {}).get(leftout.ANNOTATION, ""))
        ]

    async def publish(self, address, name="gpu-0", driver=VENDOR, node=NODE, **attributes):
        """Let another driver publish a device."""
        attributes = attributes or {"resource.kubernetes.io/pciBusID": {"string": address}}
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        devices = [{"name": name, "attributes": attributes}]
        content = {"driver": driver, "nodeName": node, "pool": pool, "devices": devices}
        await self.create(kinds.SLICE, f"{node}-{driver}-{name}", spec=content)

    async def withdraw(self, name="gpu-0", driver=VENDOR):
        await self.api.delete(kinds.SLICE, f"{NODE}-{driver}-{name}")

    async def register(self, **quantities):
        """Let device plugins register resources."""
        resources = {name.replace("__", "/"): quantity for name, quantity in quantities.items()}
        await self.set_status(kinds.NODE, NODE, {"capacity": resources, "allocatable": resources})

    async def events(self):
        return [(event["reason"], event["note"]) for event in await self.list(kinds.EVENT)]


@contextlib.asynccontextmanager
async def world(tmp_path, **wanted):
    """Yield a node without a daemon yet; `begin` starts it."""
    fields = {"slots": ("*",), "classes": ("gpu",), "quiet_seconds": QUIET_SECONDS} | wanted
    async with nodes.serving(tmp_path, SharedNode, local_pool=selections.Selection(**fields)) as cluster:
        await cluster.stop()
        await cluster.create(kinds.NODE, NODE)
        yield cluster


async def test_a_device_that_another_driver_offers_is_left_to_it_and_shown(tmp_path, until):
    async with world(tmp_path) as cluster:
        address = await cluster.plug(1, GPU)
        await cluster.publish(address)
        cluster.start()
        (left,) = await until(cluster.left_out, bool)
        assert (left.device, left.why) == (NAME, "driver")
        assert left.reason == f"driver {VENDOR} offers it as device gpu-0 of pool {NODE}"
        assert not await cluster.list_devices()
        (event,) = await until(cluster.events, bool)
        assert event[0] == reasons.DEVICES_LEFT_TO_OTHERS
        assert NAME in event[1]
        assert "docs/beside-other-drivers.md" in event[1]

        await cluster.withdraw()
        await until(cluster.list_devices, lambda devices: list(devices) == [NAME])
        await until(cluster.left_out, lambda left: not left)


async def test_a_device_that_is_offered_is_withdrawn_as_soon_as_another_driver_offers_it(tmp_path, until):
    async with world(tmp_path, quiet_seconds=300.0) as cluster:
        address = await cluster.plug(1, GPU)
        cluster.start()
        await until(cluster.list_devices, bool)
        await cluster.publish("0000:ff:00.0", "gpu-9")
        await cluster.publish(address, node="node-2")
        await cluster.publish(address)
        await until(cluster.list_devices, lambda devices: not devices)
        # A driver that is updated takes its slices away for a moment.
        await cluster.withdraw()
        await until(cluster.left_out, lambda left: "until a moment ago" in left[0].reason)
        assert not await cluster.list_devices()


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "sriov.example.com/blue"])
async def test_a_device_plugin_of_the_vendor_keeps_its_cards(tmp_path, until, resource):
    rows = ("sriov.example.com/*=gpu",)
    async with world(tmp_path, plugin_resources=rows) as cluster:
        await cluster.plug(1, GPU)
        await cluster.register(**{resource.replace("/", "__"): "8"})
        cluster.start()
        (left,) = await until(cluster.left_out, bool)
        assert (left.why, resource in left.reason) == ("plugin", True)
        assert not await cluster.list_devices()


async def test_a_device_plugin_that_registers_later_is_noticed_and_the_node_is_read_seldom(tmp_path):
    async with world(tmp_path) as cluster:
        clock, reads = waiting.Clock(), []
        api = cluster.api.count_requests(lambda verb, resource, _result: reads.append((verb, resource)))
        beside = neighbours.Neighbours(
            api,
            driver=nodes.DRIVER,
            node_name=NODE,
            selection=selections.Selection(quiet_seconds=QUIET_SECONDS),
            host=users.Host.from_sysfs(tmp_path / "sys"),
            directory=tmp_path,
            recorder=events.Recorder(api, controller="c", instance="i"),
            changed=lambda: None,
            clock=clock,
        )
        card = model.Card(functions=(cards.function(),))
        gpu = residents.Resident(name="gpu-x", card=card, whole=card)
        await cluster.register(**{"amd.com__gpu": "8"})
        assert await beside.judge([gpu], (), ()) == {}
        await cluster.register(**{"nvidia.com__gpu": "1"})
        assert await beside.judge([gpu], (), ["gpu-x"]) == {}
        assert reads == [("GET", "nodes")]
        assert beside.again_seconds <= neighbours.NODE_SECONDS
        clock.now += neighbours.NODE_SECONDS
        found = await beside.judge([gpu], (), ["gpu-x"])
        assert "nvidia.com/gpu" in found["gpu-x"]
        # The kubelet leaves a quantity of zero behind.
        await cluster.register(**{"nvidia.com__gpu": "0"})
        clock.now += neighbours.NODE_SECONDS
        assert await beside.judge([gpu], (), ()) == {}
        memory = residents.Resident(name="cxl-memory-x", card=MEMORY, whole=MEMORY)
        clock.now += neighbours.NODE_SECONDS
        before = len(reads)
        assert await beside.judge([memory], (), ()) == {}
        assert len(reads) == before, "no device plugin has such a card"
        assert beside.again_seconds is None


async def test_the_administrator_has_it_offered_all_the_same(tmp_path, until):
    async with world(tmp_path, despite_others=("gpu-48-*",)) as cluster:
        address = await cluster.plug(1, GPU)
        await cluster.publish(address)
        await cluster.register(**{"nvidia.com__gpu": "1"})
        cluster.start()
        await until(cluster.list_devices, lambda devices: list(devices) == [NAME])
        assert await cluster.left_out() == []


async def test_a_device_that_a_claim_has_stays_and_the_second_offer_is_reported_once(tmp_path, until):
    async with world(tmp_path) as cluster:
        address = await cluster.plug(1, GPU)
        cluster.start()
        await until(cluster.list_devices, bool)
        await until(cluster.is_listening, bool)
        claim = await cluster.allocate_claim(pool=NODE, device=NAME)
        assert not (await cluster.prepare(claim)).error
        await cluster.publish(address)
        events = await until(cluster.events, lambda events: reasons.DEVICE_OFFERED_TWICE in dict(events))
        (note,) = [note for reason, note in events if reason == reasons.DEVICE_OFFERED_TWICE]
        assert f"has given {NAME} to a claim" in note
        assert VENDOR in note
        assert list(await cluster.list_devices()) == [NAME]
        assert not (await cluster.unprepare(claim)).error
        await until(cluster.list_devices, lambda devices: not devices)


async def test_a_left_out_device_stays_out_over_a_restart(tmp_path, until):
    async with world(tmp_path, quiet_seconds=2.0) as cluster:
        address = await cluster.plug(1, GPU)
        await cluster.publish(address)
        cluster.start()
        await until(cluster.left_out, bool)
        await until(cluster.events, bool)
        await cluster.stop()
        # The kubelet has deleted all slices of the node, and the vendor's driver is not back yet.
        for slice_ in await cluster.list(kinds.SLICE):
            await cluster.api.delete(kinds.SLICE, slice_["metadata"]["name"])
        cluster.start()
        await until(cluster.left_out, bool)
        assert not await cluster.list_devices()
        await until(cluster.list_devices, lambda devices: list(devices) == [NAME])
        assert len(await cluster.events()) == 1, "the Event is emitted once"


async def test_more_slices_than_are_read_hide_no_offer(tmp_path, until):
    async with world(tmp_path) as cluster:
        await cluster.plug(1, GPU)
        for number in range(neighbours.SLICES_MAX + 1):
            await cluster.publish(f"0000:{number:02x}:1f.0", f"gpu-{number}", driver="many.example.com")
        cluster.start()
        (left,) = await until(cluster.left_out, bool)
        assert f"more than {neighbours.SLICES_MAX} ResourceSlices of other drivers" in left.reason
        for number in range(3):
            await cluster.withdraw(f"gpu-{number}", driver="many.example.com")
        await until(cluster.list_devices, lambda devices: list(devices) == [NAME])


async def test_a_device_of_a_class_that_is_not_chosen_is_neither_offered_nor_reported(tmp_path, until):
    async with world(tmp_path, classes=("cxl-memory",)) as cluster:
        cluster.options = dataclasses.replace(cluster.options, null_device=nulls.NullDevice(enabled=True))
        address = await cluster.plug(1, GPU)
        await cluster.publish(address)
        cluster.start()
        await until(cluster.list_devices, lambda devices: list(devices) == ["none"])
        assert await cluster.left_out() == []
        assert await cluster.events() == []


async def test_a_fabric_device_that_another_driver_offers_is_reported_and_stays_with_its_claim(
    tmp_path, until
):
    async with world(tmp_path) as cluster:
        await cluster.plug()
        await cluster.attach()
        await cluster.controller_says()
        cluster.start()
        conditions = await until(cluster.conditions, lambda conditions: "Visible" in conditions)
        address = (await cluster.attachment())["status"]["node"]["pciAddress"]
        await cluster.publish(address, "nvme-7", driver="disks.example.com")
        conditions = await until(cluster.conditions, lambda conditions: "Exclusive" in conditions)
        assert conditions["Exclusive"]["status"] == "False"
        assert conditions["Exclusive"]["reason"] == reasons.OFFERED_BY_ANOTHER_DRIVER
        assert "driver disks.example.com offers this device" in conditions["Exclusive"]["message"]
        assert conditions["Visible"]["status"] == "True", "nothing is taken from the claim"
        recorded = await until(cluster.events, bool)
        assert reasons.OFFERED_BY_ANOTHER_DRIVER in {reason for reason, _ in recorded}
        await cluster.withdraw("nvme-7", driver="disks.example.com")
        await until(cluster.conditions, lambda conditions: conditions["Exclusive"]["status"] == "True")
