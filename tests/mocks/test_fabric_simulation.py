"""What the simulated fabric adds to the contract: time, failures, slots, journal, memory over restarts."""

import asyncio
import functools
import json
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.mocks.faultyfabric import attach, detach

from drawbar.fabric import contract, errors
from drawbar.mocks.fabric import SimulatedFabric, configuration, history, journal, records, world
from drawbar.mocks.sysfs import SysfsTree

ATTACH, DETACH = contract.OperationKind.ATTACH, contract.OperationKind.DETACH


def describe(**changes):
    described = {
        "hosts": [{"id": "h1", "ports": 2}, {"id": "h2", "ports": 1}],
        "enclosures": [
            {
                "id": "e1",
                "devices": [
                    {"id": f"d{number}", "class": "nvme", "model": "m", "pciVendor": 1, "pciDevice": 2}
                    for number in range(1, 5)
                ],
            }
        ],
        **changes,
    }
    return configuration.parse(json.dumps(described).encode())


@asynccontextmanager
async def fabric_with(**changes):
    files = {name: changes.pop(name) for name in ("journal", "state") if name in changes}
    async with SimulatedFabric.running(describe(**changes), **files) as fabric:
        yield fabric


async def wait_until_done(fabric, operation):
    """Wait until the watch reports the operation as done; return the operation."""
    async with asyncio.timeout(120), fabric.watch((await fabric.devices()).version) as events:
        async for _ in events:
            current = await fabric.operation(operation_id=operation.id)
            if current.done:
                return current
    raise AssertionError("the watch ended")


# --- time ---


async def test_an_operation_that_takes_time_is_under_way_with_progress_and_reserves_its_port():
    async with fabric_with(attachSeconds=60) as fabric:
        operation = await fabric.attach(attach())
        assert not operation.done
        assert 0 <= operation.percent < 100
        assert 0 < operation.retry_after_seconds <= 60
        assert (await fabric.devices()).device("d1").connection is None
        port = (await fabric.hosts())[0].ports[0]
        assert (port.state, port.device_id) == (contract.PortState.USED, "d1")
        with pytest.raises(errors.Aborted) as caught:
            await fabric.attach(attach(host_id="h2"))
        assert caught.value.reason == errors.Reason.OPERATION_PENDING


async def test_a_running_operation_can_be_cancelled_and_leaves_nothing_behind():
    async with fabric_with(attachSeconds=60) as fabric:
        operation = await fabric.attach(attach())
        cancelled = await fabric.cancel(operation.id)
        assert cancelled.done
        assert (cancelled.error.code, cancelled.error.reason) == (errors.Code.ABORTED, "CANCELLED")
        assert not cancelled.side_effects_unknown
        assert all(port.state is contract.PortState.FREE for port in (await fabric.hosts())[0].ports)
        again = await fabric.attach(attach(host_id="h2"))
        assert not again.done


async def test_an_abandoned_call_still_attaches():
    async with fabric_with() as fabric, asyncio.TaskGroup() as tasks:
        task = tasks.create_task(fabric.attach(attach()))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        operation = await fabric.operation(request_id="a-d1-h1")
        if not operation.done:
            operation = await wait_until_done(fabric, operation)
        assert operation.succeeded


# --- rules that the conformance suite cannot reach ---


async def test_a_host_without_a_free_port_is_exhausted():
    async with fabric_with() as fabric:
        await fabric.attach(attach("d1", "h2"))
        with pytest.raises(errors.ResourceExhausted) as caught:
            await fabric.attach(attach("d2", "h2"))
        assert (caught.value.reason, caught.value.host_id) == (errors.Reason.NO_FREE_PORT, "h2")


async def test_an_attach_by_model_takes_the_free_devices_one_by_one():
    async with fabric_with() as fabric:
        chosen = []
        for number, host_id in enumerate(["h1", "h1", "h2"]):
            request = contract.AttachRequest(request_id=f"r{number}", model="m", host_id=host_id)
            chosen.append((await fabric.attach(request)).device.id)
        assert chosen == ["d1", "d2", "d3"]
        with pytest.raises(errors.NotFound):
            await fabric.attach(contract.AttachRequest(request_id="r9", model="q", host_id="h1"))


async def test_an_attach_by_model_without_a_free_device_is_exhausted():
    async with fabric_with(hosts=[{"id": "h1", "ports": 9}]) as fabric:
        for number in range(4):
            await fabric.attach(contract.AttachRequest(request_id=f"r{number}", model="m", host_id="h1"))
        with pytest.raises(errors.ResourceExhausted) as caught:
            await fabric.attach(contract.AttachRequest(request_id="r9", model="m", host_id="h1"))
        assert caught.value.reason == errors.Reason.NO_DEVICE


async def test_old_operations_are_forgotten_and_those_in_flight_never():
    async with fabric_with(attachSeconds=60) as fabric:
        running = await fabric.attach(attach("d1"))
        for number in range(world.REMEMBERED_OPERATIONS + 5):
            await fabric.detach(detach("d2", request_id=f"r{number}"))
        assert len(await fabric.operations()) == world.REMEMBERED_OPERATIONS + 1
        assert not (await fabric.operation(operation_id=running.id)).done
        with pytest.raises(errors.NotFound):
            await fabric.operation(request_id="r0")


# --- failures ---


async def test_a_configured_failure_happens_as_often_as_configured_and_after_the_time():
    failure = {"device": "d1", "reason": "PORT_DOWN", "message": "port down", "times": 2}
    async with fabric_with(attachFails=[failure]) as fabric:
        for number in range(2):
            operation = await fabric.attach(attach(request_id=f"r{number}"))
            assert operation.done
            assert (operation.error.reason, operation.error.message) == ("PORT_DOWN", "port down")
            assert (await fabric.hosts())[0].ports[0].state is contract.PortState.FREE
        assert (await fabric.attach(attach(request_id="r0"))).error is not None
        assert (await fabric.attach(attach(request_id="r2"))).succeeded
        assert (await fabric.attach(attach("d2"))).succeeded


async def test_an_operator_can_take_a_device_away_and_the_watch_tells(tmp_path):
    async with fabric_with(journal=tmp_path / "j") as fabric:
        await fabric.attach(attach())
        version = (await fabric.devices()).version
        await fabric.take_away("d1")
        await fabric.take_away("d1")
        async with fabric.watch(version) as events:
            seen = [await anext(events) for _ in range(3)]
        assert isinstance(seen[1], contract.DeviceChanged)
        assert seen[1].device.connection is None
        assert isinstance(seen[2], contract.HostChanged)
        assert (await fabric.attach(attach(host_id="h2"))).succeeded
        with pytest.raises(errors.NotFound):
            await fabric.take_away("d9")
    taken = [entry for entry in journal.read(tmp_path / "j") if entry.operation is None]
    assert [(entry.event, entry.kind, entry.device) for entry in taken] == [
        ("started", DETACH, "d1"),
        ("finished", DETACH, "d1"),
    ]


# --- slots ---


@pytest.fixture
def tree(tmp_path):
    return SysfsTree.create(tmp_path / "sys", slots=2)


async def test_an_attached_device_is_in_the_hosts_tree_when_the_operation_is_done(tree):
    async with fabric_with(hosts=[{"id": "h1", "ports": 2, "sysfs": str(tree.root)}]) as fabric:
        await fabric.attach(attach("d1"))
        card = tree.list_attached_cards()[1]
        assert (card.device_class, card.vendor, card.device) == (contract.DeviceClass.NVME, 1, 2)
        assert (tree.root / "bus/pci/devices" / tree.address(1) / "vendor").read_text() == "0x0001\n"
        await fabric.detach(detach("d1"))
        assert tree.list_attached_cards() == {}


async def test_a_device_that_is_taken_away_leaves_the_hosts_tree(tree):
    async with fabric_with(hosts=[{"id": "h1", "ports": 2, "sysfs": str(tree.root)}]) as fabric:
        await fabric.attach(attach("d1"))
        await fabric.take_away("d1")
        assert tree.list_attached_cards() == {}
        assert (await fabric.attach(attach("d2"))).succeeded


@pytest.mark.parametrize("root", ["no-such-tree", "sys"])
async def test_a_slot_that_cannot_be_changed_fails_the_operation_with_unknown_effects(tmp_path, tree, root):
    sysfs = str(tmp_path / root)
    async with fabric_with(hosts=[{"id": "h1", "ports": 9, "sysfs": sysfs}]) as fabric:
        for port_id in ("1", "2"):
            fabric.console.set_port("h1", port_id, faulty=True)
        operation = await fabric.attach(attach())
        assert (operation.error.code, operation.error.reason) == (errors.Code.UNAVAILABLE, "SLOT_FAULT")
        assert operation.side_effects_unknown
        assert (await fabric.devices()).device("d1").connection is None


# --- journal and state ---


async def test_the_journal_has_a_line_per_start_and_finish_and_none_for_nothing(tmp_path):
    path = tmp_path / "journal"
    failure = {"device": "d2", "reason": "PORT_DOWN"}
    async with fabric_with(journal=path, attachFails=[failure]) as fabric:
        await fabric.attach(attach("d1"))
        await fabric.attach(attach("d1", request_id="again"))
        await fabric.attach(attach("d2"))
        await fabric.detach(detach("d1"))
        await fabric.detach(detach("d1", request_id="again-x"))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["event"], line["kind"], line["device"], line["error"]) for line in lines] == [
        ("started", "attach", "d1", None),
        ("finished", "attach", "d1", None),
        ("started", "attach", "d2", None),
        ("finished", "attach", "d2", "PORT_DOWN"),
        ("started", "detach", "d1", None),
        ("finished", "detach", "d1", None),
    ]
    first = lines[0]
    assert list(first) == ["time", "event", "kind", "operation", "requestID", "device", "host", "error"]
    assert (first["requestID"], first["host"], first["operation"]) == ("a-d1-h1", "h1", "operation-1")
    assert lines == sorted(lines, key=lambda line: line["time"])


async def test_a_restarted_fabric_has_not_forgotten(tmp_path):
    failure = {"device": "d2", "times": 1}
    async with fabric_with(state=tmp_path / "s", attachFails=[failure]) as fabric:
        first = await fabric.attach(attach("d1"))
        await fabric.attach(attach("d2"))
        before = await fabric.devices()
    async with fabric_with(state=tmp_path / "s", attachFails=[failure]) as fabric:
        after = await fabric.devices()
        assert after.devices == before.devices
        assert after.version != before.version
        assert await fabric.attach(attach("d1")) == first
        assert (await fabric.attach(attach("d2", request_id="r2"))).succeeded
        assert [port.device_id for port in (await fabric.hosts())[0].ports] == ["d1", "d2"]
        async with fabric.watch(before.version) as events:
            assert [event async for event in events] == [contract.Resync()]


async def test_an_operation_in_flight_is_resumed_after_a_restart(tmp_path, tree):
    hosts = [{"id": "h1", "ports": 2, "sysfs": str(tree.root)}]
    async with fabric_with(state=tmp_path / "s", hosts=hosts, attachSeconds=60) as fabric:
        operation = await fabric.attach(attach("d1"))
    assert tree.list_attached_cards() == {}
    async with fabric_with(state=tmp_path / "s", hosts=hosts) as fabric:
        resumed = await wait_until_done(fabric, operation)
        assert resumed.succeeded
        assert resumed.id == operation.id
    assert list(tree.list_attached_cards()) == [1]


async def test_without_a_state_file_nothing_is_kept():
    async with fabric_with() as fabric:
        await fabric.attach(attach("d1"))
    async with fabric_with() as fabric:
        assert (await fabric.devices()).device("d1").connection is None


async def test_a_state_for_hosts_and_devices_that_are_gone_does_no_harm(tmp_path):
    async with fabric_with(state=tmp_path / "s") as fabric:
        await fabric.attach(attach("d1", "h2"))
        await fabric.attach(attach("d4", "h1"))
    smaller = {
        "hosts": [{"id": "h1"}],
        "enclosures": [{"id": "e", "devices": [{"id": "d1", "class": "gpu"}]}],
    }
    async with fabric_with(state=tmp_path / "s", **smaller) as fabric:
        assert (await fabric.devices()).device("d1").connection is None
        assert (await fabric.operations()) == ()
        assert (await fabric.attach(attach("d1"))).succeeded


async def test_an_unreadable_state_is_reported_with_a_remedy(tmp_path):
    (tmp_path / "s").write_text("{")
    with pytest.RaisesGroup(pytest.RaisesExc(errors.InvalidConfiguration, match="remove it to start afresh")):
        async with fabric_with(state=tmp_path / "s"):
            pass


def test_the_state_is_replaced_and_never_half_written(tmp_path):
    file = records.StateFile(tmp_path / "s")
    for counter in (1, 2):
        file.save(functools.partial(records.State, counter=counter))
    assert file.load().counter == 2
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


# --- life ---


async def test_a_fabric_is_made_from_a_file_and_closed_like_any_adapter(tmp_path):
    path = tmp_path / "fabric.json"
    path.write_text('{"hosts": [{"id": "h1"}]}')
    config = contract.AdapterConfig(
        name="f", endpoint=f"file:{path}", parameters={"journal": str(tmp_path / "j")}
    )
    async with await SimulatedFabric.connect(config) as fabric:
        assert [host.id for host in await fabric.hosts()] == ["h1"]
        assert (tmp_path / "j").exists()
    with pytest.raises(errors.Unavailable):
        await fabric.hosts()
    await fabric.close()


def test_a_wrong_adapter_configuration_lists_all_problems():
    with pytest.raises(errors.InvalidConfiguration) as caught:
        SimulatedFabric.validate(contract.AdapterConfig(name="f", endpoint="x", parameters={"zoom": "1"}))
    assert len(caught.value.problems) == 2


async def test_closing_ends_the_watches():
    async with fabric_with() as fabric, fabric.watch((await fabric.devices()).version) as events:
        await anext(events)
        await fabric.close()
        with pytest.raises(errors.Unavailable):
            await anext(events)


# --- history ---


def device(number):
    return contract.Device(id=f"d{number}", device_class=contract.DeviceClass.OTHER)


async def test_a_watcher_that_is_too_slow_is_told_to_list_again():
    events = history.History(remembered=3)
    version = events.version
    for number in range(4):
        events.device_changed(device(number))
    assert [event async for event in events.follow(version)] == [contract.Resync()]


async def test_a_watcher_that_falls_behind_while_watching_is_told_to_list_again():
    events = history.History(remembered=3)
    follower = events.follow(events.version)
    await anext(follower)
    for number in range(4):
        events.device_changed(device(number))
    assert [event async for event in follower] == [contract.Resync()]


async def test_a_quiet_watch_says_so_now_and_then():
    events = history.History()
    follower = events.follow(events.version, bookmark_seconds=0.01)
    assert [await anext(follower) for _ in range(3)] == [contract.Bookmark(version=events.version)] * 3
    await follower.aclose()


@given(st.lists(st.integers(0, 9), max_size=12), st.integers(0, 12))
def test_a_watcher_sees_every_later_event_once_and_in_order(numbers, start):
    async def follow():
        events = history.History()
        versions = [events.version]
        for number in numbers:
            events.device_changed(device(number))
            versions.append(events.version)
        start_at = min(start, len(numbers))
        follower = events.follow(versions[start_at])
        await anext(follower)
        seen = [await anext(follower) for _ in numbers[start_at:]]
        await follower.aclose()
        assert [event.device for event in seen] == [device(number) for number in numbers[start_at:]]
        assert [event.version for event in seen] == versions[start_at + 1 :]

    asyncio.run(follow())


@pytest.mark.parametrize("version", ["", "x", "1", "-1", "{life}-99", "{life}-x", "{life}--1"])
async def test_a_version_that_cannot_be_continued_asks_for_a_new_listing(version):
    events = history.History()
    life = events.version.partition("-")[0]
    follower = events.follow(version.replace("{life}", life))
    assert [event async for event in follower] == [contract.Resync()]


# --- the invariants, over any sequence of requests ---

steps = st.lists(
    st.tuples(
        st.sampled_from(["attach", "detach", "finish", "fail", "take away"]),
        st.sampled_from(["d1", "d2", "d3", "d4"]),
        st.sampled_from(["h1", "h2"]),
    ),
    max_size=30,
)


@given(steps)
def test_no_device_is_ever_on_two_ports_and_no_port_has_two_devices(sequence):
    asyncio.run(_walk(sequence))


async def _walk(sequence):
    state = world.World(describe(), records.State(), history.History())
    for number, (step, device_id, host_id) in enumerate(sequence):
        running = {record.device_id: record.operation.id for record in state.list_unfinished_records()}
        try:
            match step:
                case "attach":
                    state.begin(attach(device_id, host_id, request_id=str(number)))
                case "detach":
                    state.begin(detach(device_id, host_id, request_id=str(number)))
                case "take away":
                    state.reserve(device_id)
                    state.take_away(device_id)
                case _ if device_id in running:
                    state.finish(running[device_id], None if step == "finish" else errors.Unavailable("x"))
        except (errors.Refused, errors.Transient):
            pass
        _check_invariants(state)


def _check_invariants(state):
    on_ports = [
        (host.id, port.id, port.device_id) for host in state.hosts() for port in host.ports if port.device_id
    ]
    devices_on_ports = [device_id for _, _, device_id in on_ports]
    assert len(devices_on_ports) == len(set(devices_on_ports))
    connected = {
        (device.connection.host_id, device.connection.port_id, device.id)
        for device in state.inventory().devices
        if device.connection
    }
    reserved = {
        (record.host_id, record.port_id, record.device_id)
        for record in state.list_unfinished_records()
        if record.operation.kind is ATTACH
    }
    assert set(on_ports) == connected | reserved
