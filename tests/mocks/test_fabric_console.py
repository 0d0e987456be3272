"""What an operator does at the simulated fabric manager's own console, and what everybody else then sees."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from drawbar.driver.node.discovery import reader
from drawbar.fabric import contract, errors
from drawbar.mocks.fabric import SimulatedFabric, configuration, faults, journal
from drawbar.mocks.sysfs import SysfsTree
from drawbar.mocks.testing.virtualtime import in_virtual_time

DEVICES = [
    {"id": f"d{number}", "class": "nvme", "serial": f"SN{number}", "pciVendor": 0x144D, "pciDevice": 0xA824}
    for number in (1, 2)
]


@asynccontextmanager
async def fabric_with(tree=None, **changes):
    files = {name: changes.pop(name) for name in ("journal", "state") if name in changes}
    ours = {"id": "ours", "ports": 2} if tree is None else {"id": "ours", "ports": 2, "sysfs": str(tree.root)}
    described = {
        "hosts": [ours, {"id": "theirs", "ports": 1}],
        "enclosures": [{"id": "e", "devices": DEVICES}],
    }
    read = configuration.parse(json.dumps({**described, **changes}).encode())
    async with SimulatedFabric.running(read, **files) as fabric:
        yield fabric


@pytest.fixture
def tree(tmp_path):
    return SysfsTree.create(tmp_path / "sys", slots=2)


def attach(device_id="d1", host_id="ours", request_id=None):
    return contract.AttachRequest(
        request_id=request_id or f"a-{device_id}-{host_id}", device_id=device_id, host_id=host_id
    )


async def events_after(fabric, version, amount):
    async with asyncio.timeout(120), fabric.watch(version) as events:
        await anext(events)
        return [await anext(events) for _ in range(amount)]


async def test_a_forgotten_connection_shows_a_free_device_that_stays_in_its_slot(tree, tmp_path):
    async with fabric_with(tree, journal=tmp_path / "j") as fabric:
        await fabric.attach(attach())
        before = (await fabric.devices()).device("d1").connection
        version = (await fabric.devices()).version
        fabric.console.forget_connection("d1")
        device, host = await events_after(fabric, version, 2)
        assert (device.device.connection, host.host.ports[0].device_id) == (None, None)
        assert list(tree.list_attached_cards()) == [1]
        fabric.console.recall_connection("d1")
        assert (await fabric.devices()).device("d1").connection == before
        assert list(tree.list_attached_cards()) == [1]


@pytest.mark.parametrize(
    ("meanwhile", "error", "reason"),
    [
        (None, errors.NotFound, "NOT_FOUND"),
        (("d1", "theirs"), errors.FailedPrecondition, errors.Reason.IN_USE),
        (("d2", "ours"), errors.FailedPrecondition, "PORT_IN_USE"),
    ],
)
async def test_a_forgotten_connection_is_recalled_only_to_a_free_port(meanwhile, error, reason):
    async with fabric_with() as fabric:
        if meanwhile is None:
            fabric.console.forget_connection("d1")
        else:
            await fabric.attach(attach())
            fabric.console.forget_connection("d1")
            await fabric.console.foreign_attach(*meanwhile)
        shown = (await fabric.devices()).device("d1").connection
        with pytest.raises(error) as caught:
            fabric.console.recall_connection("d1")
        assert caught.value.reason == reason
        assert (await fabric.devices()).device("d1").connection == shown


async def test_a_device_that_another_cluster_took_is_seen_as_attached_by_nobody_here(tmp_path):
    async with fabric_with(journal=tmp_path / "j") as fabric:
        version = (await fabric.devices()).version
        await fabric.console.foreign_attach("d1", "theirs")
        device, host = await events_after(fabric, version, 2)
        assert (device.device.connection.host_id, device.device.connection.request_id) == ("theirs", None)
        assert host.host.ports[0].device_id == "d1"
        with pytest.raises(errors.FailedPrecondition) as caught:
            await fabric.attach(attach())
        assert (caught.value.reason, caught.value.host_id) == (errors.Reason.IN_USE, "theirs")
        assert await fabric.operations() == ()
    assert [(entry.event, entry.operation) for entry in journal.read(tmp_path / "j")] == [
        ("started", None),
        ("finished", None),
    ]


async def test_another_cluster_cannot_take_a_taken_device():
    async with fabric_with() as fabric:
        await fabric.attach(attach())
        with pytest.raises(errors.FailedPrecondition, match="attached to host ours"):
            await fabric.console.foreign_attach("d1", "theirs")
        await fabric.console.foreign_attach("d2", "theirs")
        with pytest.raises(errors.ResourceExhausted):
            await fabric.console.foreign_attach("d1", "theirs")
        assert (await fabric.attach(attach(request_id="again"))).succeeded


async def test_a_foreign_device_is_on_its_hosts_tree_and_a_pulled_one_is_not(tree):
    async with fabric_with(tree) as fabric:
        await fabric.console.foreign_attach("d1", "ours")
        assert reader.read(tree.root).by_serial("SN1").slot == "1"
        await fabric.console.surprise_detach("d1")
        assert tree.list_attached_cards() == {}


async def test_a_slot_that_cannot_be_changed_leaves_a_foreign_device_free(tmp_path):
    host = {"id": "ours", "ports": 2, "sysfs": str(tmp_path / "none")}
    async with fabric_with(hosts=[host]) as fabric:
        with pytest.raises(errors.Unavailable, match="cannot be changed"):
            await fabric.console.foreign_attach("d1", "ours")
        assert (await fabric.hosts())[0].ports[0].state is contract.PortState.FREE
        assert (await fabric.devices()).device("d1").connection is None


async def test_a_device_can_be_put_into_the_enclosure_and_is_there_after_a_restart(tmp_path):
    new = contract.Device(id="d9", device_class=contract.DeviceClass.GPU, enclosure="e")
    async with fabric_with(state=tmp_path / "s") as fabric:
        version = (await fabric.devices()).version
        fabric.console.add_device(new)
        [event] = await events_after(fabric, version, 1)
        assert event.device.id == "d9"
        assert (await fabric.attach(attach("d9"))).succeeded
        with pytest.raises(errors.AlreadyExists):
            fabric.console.add_device(new)
    async with fabric_with(state=tmp_path / "s") as fabric:
        assert (await fabric.devices()).device("d9").connection.host_id == "ours"


async def test_a_device_that_is_taken_out_of_the_enclosure_is_gone_also_after_a_restart(tmp_path, tree):
    async with fabric_with(tree, state=tmp_path / "s") as fabric:
        await fabric.attach(attach())
        version = (await fabric.devices()).version
        await fabric.console.remove_device("d1")
        events = await events_after(fabric, version, 3)
        assert events[-1] == contract.DeviceGone(version=events[-1].version, device_id="d1")
        assert tree.list_attached_cards() == {}
        with pytest.raises(errors.NotFound):
            await fabric.attach(attach(request_id="again"))
        with pytest.raises(errors.NotFound):
            await fabric.console.remove_device("d1")
    async with fabric_with(tree, state=tmp_path / "s") as fabric:
        assert [device.id for device in (await fabric.devices()).devices] == ["d2"]
        fabric.console.add_device(contract.Device(id="d1", device_class=contract.DeviceClass.NVME))
    async with fabric_with(tree, state=tmp_path / "s") as fabric:
        assert (await fabric.devices()).device("d1") is not None


async def test_the_managers_opinion_of_a_device_can_change(tmp_path):
    async with fabric_with(state=tmp_path / "s") as fabric:
        before = await fabric.devices()
        fabric.console.set_health("d1", contract.Health.CRITICAL)
        [event] = await events_after(fabric, before.version, 1)
        assert event.device.health is contract.Health.CRITICAL
        assert event.device.etag != before.device("d1").etag
        with pytest.raises(errors.NotFound):
            fabric.console.set_health("d7", contract.Health.OK)
    async with fabric_with(state=tmp_path / "s") as fabric:
        assert (await fabric.devices()).device("d1").health is contract.Health.CRITICAL


async def test_a_faulty_port_is_not_used_and_keeps_its_device():
    async with fabric_with() as fabric:
        fabric.console.set_port("ours", "1", faulty=True)
        await fabric.attach(attach("d1"))
        assert (await fabric.devices()).device("d1").connection.port_id == "2"
        fabric.console.set_port("ours", "2", faulty=True)
        first, second = (await fabric.hosts())[0].ports
        assert (first.state, second.state, second.device_id) == (*[contract.PortState.FAULT] * 2, "d1")
        with pytest.raises(errors.ResourceExhausted):
            await fabric.attach(attach("d2"))
        fabric.console.set_port("ours", "1", faulty=False)
        assert (await fabric.attach(attach("d2", request_id="again"))).succeeded
        with pytest.raises(errors.NotFound):
            fabric.console.set_port("ours", "3", faulty=True)


async def test_a_manager_that_forgot_its_operations_keeps_its_connections():
    async with fabric_with() as fabric:
        await fabric.attach(attach())
        version = (await fabric.devices()).version
        async with asyncio.timeout(120), fabric.watch(version) as events:
            await anext(events)
            await fabric.console.forget_operations()
            assert [event async for event in events] == [contract.Resync()]
        with pytest.raises(errors.NotFound):
            await fabric.operation(request_id="a-d1-ours")
        assert await fabric.operations() == ()
        assert (await fabric.devices()).device("d1").connection is not None
        assert (await fabric.attach(attach())).succeeded


@in_virtual_time
async def test_an_operation_that_was_forgotten_in_flight_comes_to_nothing():
    async with fabric_with(attachSeconds=0.1) as fabric:
        operation = await fabric.attach(attach())
        await fabric.console.forget_operations()
        with pytest.raises(errors.NotFound):
            await fabric.operation(operation_id=operation.id)
        assert not fabric._running
        assert (await fabric.devices()).device("d1").connection is None
        with pytest.raises(errors.NotFound):
            await fabric.operation(request_id=operation.request_id)
        assert await fabric.operations() == ()
        assert [port.device_id for port in (await fabric.hosts())[0].ports] == [None, None]


async def test_a_silent_manager_answers_when_it_is_back_and_its_operations_went_on():
    async with fabric_with() as fabric, asyncio.TaskGroup() as tasks:
        version = (await fabric.devices()).version
        async with fabric.watch(version) as events:
            await anext(events)
            fabric.console.pause()
            await fabric.console.foreign_attach("d2", "theirs")
            call, event = tasks.create_task(fabric.attach(attach())), tasks.create_task(anext(events))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(fabric.devices(), 0.02)
            assert not call.done()
            assert not event.done()
            fabric.console.resume()
            assert (await call).succeeded
            assert isinstance(await event, contract.DeviceChanged)


async def test_a_fabric_can_end_while_its_manager_is_silent():
    async with asyncio.TaskGroup() as tasks:
        async with fabric_with() as fabric:
            fabric.console.pause()
            call = tasks.create_task(catch_error(fabric.hosts()))
            await asyncio.sleep(0)
        assert isinstance(await call, errors.Unavailable)


async def catch_error(call):
    with pytest.raises(errors.FabricError) as caught:
        await call
    return caught.value


async def test_faults_can_be_added_and_cleared_while_it_runs():
    async with fabric_with() as fabric:
        fabric.console.add_fault(faults.Refuse(method="hosts", times=None))
        assert isinstance(await catch_error(fabric.hosts()), errors.Unavailable)
        fabric.console.clear_faults()
        await fabric.hosts()
        with pytest.raises(errors.InvalidArgument, match="no enclosure has"):
            fabric.console.add_fault(faults.Stick(method=contract.OperationKind.ATTACH, device="d7"))


async def test_nobody_touches_a_device_that_an_operation_is_about():
    async with fabric_with(attachSeconds=60) as fabric:
        await fabric.attach(attach())
        for act in (fabric.console.surprise_detach, fabric.console.remove_device):
            with pytest.raises(errors.Aborted):
                await act("d1")
        with pytest.raises(errors.Aborted):
            await fabric.console.foreign_attach("d1", "theirs")
        assert [port.device_id for port in (await fabric.hosts())[1].ports] == [None]
