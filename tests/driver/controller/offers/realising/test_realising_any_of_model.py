"""A fabric that chooses the device itself, through the whole controller and at its adapter: one device for each claim."""

import asyncio
import contextlib
import dataclasses
import time

import pytest
from tests.scenes import sessions, waiting

from drawbar.driver.controller.offers import holdings
from drawbar.driver.controller.offers.realising import any_of_model
from drawbar.driver.kube import kinds
from drawbar.fabric import contract, errors
from drawbar.mocks.fabric import SimulatedFabric, configuration, faults
from drawbar.mocks.testing import virtualtime

MARK = "drawbar/c/fab"


def disk(number):
    return {"id": f"disk-{number}", "class": "nvme", "model": "M1", "serial": f"SN{number}", "memoryBytes": 8}


def chassis(*numbers):
    return [{"id": "enc-1", "devices": [disk(number) for number in numbers]}]


@pytest.fixture
def chooser(controller_world):
    """Return a function that runs a cluster; its fabric gives the last free disk of three."""

    @contextlib.asynccontextmanager
    async def running(**changes):
        form = {"chooses": "last", "enclosures": chassis(1, 2, 3)}
        async with controller_world(**form | changes) as cluster:
            cluster.start(leader_election=False)
            await cluster.make_fabric()
            await cluster.wait_for_slices()
            yield cluster

    return running


async def names(cluster):
    return sorted(device["name"] for spec in await cluster.slices() for device in spec.get("devices", ()))


def connections(cluster):
    return {
        device.id: device.connection.host_id
        for device in cluster.fabric._world.stock.devices()
        if device.connection is not None
    }


async def offer_names(cluster):
    """Return the published offers, by their numbers."""
    return sorted(int(name.rpartition("-")[2]) for name in await names(cluster))


async def find_offer(cluster, number):
    return next(name for name in await names(cluster) if name.endswith(f"-{number}"))


async def entry(cluster, name="c1"):
    claim = await cluster.api.read(kinds.CLAIM, name, namespace="default", into=dict)
    return claim["status"]["devices"][0]


async def test_a_claim_gets_a_place_and_shows_the_device_that_came(chooser, until):
    async with chooser() as cluster:
        assert await offer_names(cluster) == [1, 2, 3]
        (spec,) = await cluster.slices()
        attributes = spec["devices"][0]["attributes"]
        assert attributes["model"] == {"string": "M1"}
        assert "serial" not in attributes
        first = await find_offer(cluster, 1)
        await cluster.allocate(first)
        await cluster.wait_until_attached(first)
        assert connections(cluster) == {"disk-3": "host-node-1"}, "the fabric gave its last disk"
        assert (await entry(cluster))["data"] == {"deviceID": "disk-3", "serialNumber": "SN3"}
        recorded = await until(
            cluster.attachments, lambda read: "device" in read[f"fab.{first}"].get("status", {})
        )
        attachment = recorded[f"fab.{first}"]
        assert attachment["spec"]["deviceID"] == first
        device = attachment["status"]["device"]
        assert (device["id"], device["serial"], device["identifiers"][0]["value"]) == ("disk-3", "SN3", "sn3")
        assert await offer_names(cluster) == [1, 2, 3]
        assert (await cluster.slices())[0]["devices"][0]["attributes"] == attributes
        await cluster.deallocate()
        await cluster.wait_until_deleting(f"fab.{first}")
        await cluster.release_attachments(f"fab.{first}")
        assert connections(cluster) == {}
        assert await offer_names(cluster) == [1, 2, 3]
        assert cluster.calls("detach") == ["disk-3"]


async def test_a_device_attached_by_hand_takes_one_place_away(chooser, until):
    async with chooser() as cluster:
        second = await find_offer(cluster, 2)
        await cluster.allocate(second)
        await cluster.wait_until_attached(second)
        await cluster.fabric.console.foreign_attach("disk-1", "host-node-2", mark=None)
        await until(lambda: offer_names(cluster), lambda numbers: numbers == [1, 2])
        await cluster.fabric.console.surprise_detach("disk-1")
        await until(lambda: offer_names(cluster), lambda numbers: numbers == [1, 2, 3])
        assert connections(cluster) == {"disk-3": "host-node-1"}


async def test_a_held_place_keeps_its_name_and_free_ones_have_the_lowest_numbers(chooser, until):
    async with chooser() as cluster:
        third = await find_offer(cluster, 3)
        await cluster.allocate(third)
        await cluster.wait_until_attached(third)
        await cluster.fabric.console.foreign_attach("disk-1", "host-node-2", mark=None)
        await until(lambda: offer_names(cluster), lambda numbers: numbers == [1, 3])
        await cluster.deallocate()
        await cluster.wait_until_deleting(f"fab.{third}")
        await cluster.release_attachments(f"fab.{third}")
        await until(lambda: offer_names(cluster), lambda numbers: numbers == [1, 2])


async def test_a_device_that_falls_ill_taints_its_place(chooser, until):
    async with chooser() as cluster:
        second = await find_offer(cluster, 2)
        await cluster.allocate(second)
        await cluster.wait_until_attached(second)
        cluster.fabric.console.set_health("disk-3", contract.Health.CRITICAL)
        marks = await until(lambda: cluster.marks(second), bool)
        assert marks == [("fabric-health", "critical", "NoSchedule")]
        # A free one that is ill is not handed out by the fabric: there is one offer less.
        cluster.fabric.console.set_health("disk-1", contract.Health.CRITICAL)
        await until(lambda: offer_names(cluster), lambda numbers: numbers == [1, 2])


@pytest.mark.parametrize("forgets", [False, True], ids=["that is remembered", "that is forgotten"])
async def test_a_controller_that_ends_during_an_attach_attaches_no_second_device(chooser, until, forgets):
    async with chooser(attachSeconds=0.5) as cluster:
        first = await find_offer(cluster, 1)
        await cluster.allocate(first)
        await cluster.wait_until_called("attach")
        await cluster.stop()
        await until(lambda: asyncio.sleep(0, connections(cluster)), bool)
        if forgets:
            await cluster.fabric.console.forget_operations()
        cluster.start(leader_election=False)
        await cluster.wait_until_attached(first)
        assert connections(cluster) == {"disk-3": "host-node-1"}
        assert cluster.calls("attach") == ["disk-3"]
        assert (await entry(cluster))["data"]["serialNumber"] == "SN3"


async def test_a_lost_answer_attaches_no_second_device(chooser):
    lost = [{"effect": "lose-reply", "method": "attach", "times": 1}]
    async with chooser(faults=lost) as cluster:
        first = await find_offer(cluster, 1)
        await cluster.allocate(first)
        await cluster.wait_until_attached(first)
        assert cluster.calls("attach") == ["disk-3"]


async def test_a_restart_shows_the_same_places_and_detaches_the_device_that_came(chooser, until):
    async with chooser() as cluster:
        second = await find_offer(cluster, 2)
        await cluster.allocate(second)
        await cluster.wait_until_attached(second)
        await until(cluster.attachments, lambda read: "device" in read[f"fab.{second}"].get("status", {}))
        await cluster.stop()
        await cluster.fabric.console.forget_operations()
        await cluster.deallocate()
        cluster.start(leader_election=False)
        await cluster.wait_until_deleting(f"fab.{second}")
        assert await offer_names(cluster) == [1, 2, 3]
        await cluster.release_attachments(f"fab.{second}")
        assert connections(cluster) == {}
        assert cluster.calls("attach") == ["disk-3"]


async def test_two_claims_on_one_node_get_two_devices(chooser):
    async with chooser(attachSeconds=0.1) as cluster:
        first, second = await find_offer(cluster, 1), await find_offer(cluster, 2)
        await cluster.allocate(first)
        await cluster.allocate(second, name="c2")
        await cluster.wait_until_attached(first)
        await cluster.wait_until_attached(second, "c2")
        assert sorted(connections(cluster)) == ["disk-2", "disk-3"]
        serials = {(await entry(cluster, claim))["data"]["serialNumber"] for claim in ("c1", "c2")}
        assert serials == {"SN2", "SN3"}


async def test_a_claim_fails_where_the_fabric_has_no_device_left(chooser):
    none = [{"effect": "refuse", "method": "attach", "code": "RESOURCE_EXHAUSTED", "reason": "NO_DEVICE"}]
    async with chooser(faults=none) as cluster:
        first = await find_offer(cluster, 1)
        await cluster.allocate(first)
        assert (await cluster.wait_until_failed(first))[first]["attach-failed"] == "DeviceGone"


# --- fabrics that show no request ids, at the adapter ---


class Anonymous(SimulatedFabric):
    """Shows no request ids with connections."""

    async def devices(self):
        inventory = await super().devices()
        return dataclasses.replace(
            inventory, devices=tuple(_anonymous(device) for device in inventory.devices)
        )

    async def operation(self, **query):
        operation = await super().operation(**query)
        return dataclasses.replace(operation, device=_anonymous(operation.device))


def _anonymous(device):
    if device is None or device.connection is None:
        return device
    return dataclasses.replace(device, connection=dataclasses.replace(device.connection, request_id=None))


@pytest.fixture
async def rack():
    """Yield a function that makes a fabric with three disks, the list of its holds, and its adapter."""
    async with contextlib.AsyncExitStack() as stack:

        async def make_rack(*, marks=True, lost=0, carved=False):
            described = configuration.Configuration(
                hosts=(configuration.HostSpec(id="h1", ports=4),),
                enclosures=(
                    configuration.EnclosureSpec(
                        id="e",
                        devices=tuple(
                            configuration.DeviceSpec(
                                id=f"d{number}",
                                device_class="nvme",
                                model="m",
                                memory_bytes=16,
                                slice_step_bytes=8 if carved else 0,
                            )
                            for number in (1, 2, 3)
                        ),
                    ),
                ),
                chooses="last",
                keeps_marks=marks,
                faults=(faults.LoseReply(method=contract.OperationKind.ATTACH, times=lost),) if lost else (),
            )
            fabric = await stack.enter_async_context(Anonymous.running(described))
            holds = []
            return fabric, holds, restart_adapter(fabric, holds, marks=marks)

        yield make_rack


def restart_adapter(fabric, holds, *, marks=True):
    """Return the adapter as a process has it that has just begun."""
    return any_of_model.AnyOfModel(
        fabric,
        MARK if marks else None,
        held=holdings.Holdings.from_parts(holds),
        report=lambda event: None,
        withdraw=lambda name: None,
    )


def set_holdings(adapter, holds, *more):
    """Add holdings of DeviceAttachments, and update the adapter."""
    holds += more
    adapter.update_holdings(holdings.Holdings.from_parts(holds), arranges=False)


def make_holding(name, uid):
    return holdings.Holding(name=name, uid=uid, model="m", host_id="h1")


def make_attach_request(holding, attempt=1):
    return contract.AttachRequest(
        request_id=f"{holding.uid}-a{attempt}", device_id=holding.name, host_id="h1", mark=MARK
    )


def list_connected(fabric):
    return sorted(device.id for device in fabric._world.stock.devices() if device.connection is not None)


@pytest.mark.parametrize("marks", [True, False], ids=["with marks", "without marks"])
async def test_a_lost_attach_is_adopted_by_a_new_process_without_request_ids(rack, marks):
    fabric, holds, adapter = await rack(marks=marks, lost=1)
    await adapter.devices()
    set_holdings(adapter, holds, make_holding("m-2", "u1"))
    with pytest.raises(errors.Unavailable):
        await adapter.attach(make_attach_request(holds[0]))
    await fabric.console.forget_operations()
    again = restart_adapter(fabric, holds, marks=marks)
    await again.devices()
    operation = await again.attach(make_attach_request(holds[0]))
    assert operation.succeeded
    assert operation.device.id == "m-2"
    assert again.contents["m-2"].id == "d3"
    assert list_connected(fabric) == ["d3"]
    await again.detach(
        contract.DetachRequest(request_id="u1-d1", device_id="m-2", host_id="h1", host_prepared=True)
    )
    assert list_connected(fabric) == []


async def test_a_retry_adopts_the_connection_of_its_previous_attempt(rack):
    fabric, holds, adapter = await rack(lost=1)
    await adapter.devices()
    set_holdings(adapter, holds, make_holding("m-1", "u1"))
    with pytest.raises(errors.Unavailable):
        await adapter.attach(make_attach_request(holds[0]))
    assert (await adapter.attach(make_attach_request(holds[0], attempt=2))).succeeded
    assert list_connected(fabric) == ["d3"]


async def test_the_connection_of_another_request_is_not_adopted(rack):
    fabric, holds, adapter = await rack(lost=1)
    await adapter.devices()
    set_holdings(adapter, holds, make_holding("m-1", "u1"), make_holding("m-2", "u2"))
    with pytest.raises(errors.Unavailable):
        await adapter.attach(make_attach_request(holds[0]))
    await adapter.attach(make_attach_request(holds[1]))
    assert list_connected(fabric) == ["d2", "d3"]
    assert adapter.contents["m-2"].id == "d2"
    assert (await adapter.operation(request_id="u1-a1")).device.id == "m-1"
    assert adapter.contents["m-1"].id == "d3"


async def test_a_release_detaches_the_device_of_a_lost_attach(rack):
    fabric, holds, adapter = await rack(lost=1)
    await adapter.devices()
    set_holdings(adapter, holds, make_holding("m-1", "u1"))
    with pytest.raises(errors.Unavailable):
        await adapter.attach(make_attach_request(holds[0]))
    await fabric.console.forget_operations()
    again = restart_adapter(fabric, holds)
    await again.devices()
    done = await again.detach(
        contract.DetachRequest(request_id="u1-d1", device_id="m-1", host_id="h1", host_prepared=True)
    )
    assert done.succeeded
    assert list_connected(fabric) == []


async def test_slices_are_refused_and_not_in_the_capabilities(rack):
    fabric, _, adapter = await rack(carved=True)
    assert (await fabric.capabilities()).slices
    can = await adapter.capabilities()
    assert not can.slices
    assert dataclasses.replace(can, slices=True) == await fabric.capabilities()
    assert len((await adapter.devices()).devices) == 3
    await fabric.create_slice(contract.CreateSliceRequest(request_id="s", device_id="d1", memory_bytes=8))
    assert len((await adapter.devices()).devices) == 2, "the fabric attaches neither the slice nor its device"
    with pytest.raises(errors.Unimplemented):
        await adapter.create_slice(
            contract.CreateSliceRequest(request_id="r", device_id="m-1", memory_bytes=8)
        )
    with pytest.raises(errors.Unimplemented):
        await adapter.delete_slice(contract.DeleteSliceRequest(request_id="r", device_id="m-1"))


async def test_an_attach_without_an_attachment_is_refused(rack):
    fabric, _, adapter = await rack()
    await adapter.devices()
    with pytest.raises(errors.NotFound):
        await adapter.attach(make_attach_request(make_holding("m-1", "u1")))
    assert list_connected(fabric) == []


# --- the session with such a fabric, in virtual time ---


class Manager(sessions.Manager):
    """A fabric that chooses among three disks; with or without a watch."""

    def __init__(self, *, watch):
        super().__init__()
        self._watch = watch
        self.devices_now = tuple(self.disk(number) for number in (1, 2, 3))
        self.hosts_now = (contract.Host(id="h1", name="n1"),)

    @staticmethod
    def disk(number, host=None):
        connection = contract.Connection(host_id=host) if host is not None else None
        return contract.Device(
            id=f"d{number}", device_class=contract.DeviceClass.NVME, model="m", connection=connection
        )

    async def capabilities(self):
        return contract.Capabilities(exact_device=False, select_by_model=True, watch=self._watch)


def list_offers(opened):
    return sorted(device.id for device in opened.devices)


@virtualtime.in_virtual_time
async def test_a_deleted_attachment_rearranges_the_offers():
    manager, holding = Manager(watch=True), holdings.Holdings.from_parts([make_holding("m-3", "u1")])
    manager.devices_now = (manager.disk(1, "h9"), manager.disk(2), manager.disk(3))
    async with sessions.running(manager, held=holding) as opened:
        assert list_offers(opened) == ["m-1", "m-3"]
        opened.update_holdings(holding.remove_part("m-3"))
        assert list_offers(opened) == ["m-1", "m-2"]


@virtualtime.in_virtual_time
async def test_devices_of_other_owners_withdraw_offers_and_missing_devices_do_not():
    manager = Manager(watch=False)
    async with sessions.running(manager) as opened:
        assert list_offers(opened) == ["m-1", "m-2", "m-3"]
        manager.devices_now = (manager.disk(1, "h9"), manager.disk(2, "h9"), manager.disk(3))
        await opened.read()
        assert list_offers(opened) == ["m-1"]
        manager.devices_now = (manager.disk(1), manager.disk(2), manager.disk(3))
        await opened.read()
        manager.devices_now = (manager.disk(1),)
        await opened.read()
        assert list_offers(opened) == ["m-1", "m-2", "m-3"]
        assert opened.missing == {"m-2", "m-3"}


class Busy:
    """A fabric of many devices, one of which changes all the time."""

    devices_now = tuple(
        contract.Device(id=f"d{number}", device_class=contract.DeviceClass.GPU, model=f"M{number % 8}")
        for number in range(1000)
    )

    async def devices(self):
        return contract.Inventory(version="1", devices=self.devices_now)

    @contextlib.asynccontextmanager
    async def watch(self, version):
        async def events():
            for number in range(1000):
                changed = dataclasses.replace(self.devices_now[0], model=f"M{number % 2}")
                yield contract.DeviceChanged(version=str(number), device=changed)
            yield contract.Bookmark(version="end")

        yield events()

    async def close(self):
        """Do nothing: there is nothing to release."""


async def test_many_changes_of_a_large_fabric_are_arranged_together():
    reported = []
    adapter = any_of_model.AnyOfModel(
        Busy(),
        None,
        held=holdings.Holdings(),
        report=reported.append,
        withdraw=reported.append,
    )
    version = (await adapter.devices()).version
    began = time.process_time()
    async with adapter.watch(version) as events:
        assert [event async for event in events] == [contract.Bookmark(version="end")]
    assert time.process_time() - began < 3.0
    # The last change is never missing: d0 is one more of M1.
    await waiting.eventually(
        lambda: any(getattr(event, "device", None) and event.device.id.endswith("-126") for event in reported)
    )
    await adapter.close()
