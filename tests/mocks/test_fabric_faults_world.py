"""What faults leave of the simulated fabric's world: cards on their hosts, what a restart keeps, and no port used twice."""

import asyncio
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.mocks.faultyfabric import attach, detach, fabric_with
from tests.scenes import waiting

from drawbar.driver.node.discovery import reader
from drawbar.fabric import contract, errors
from drawbar.mocks.fabric import faults
from drawbar.mocks.sysfs import SysfsTree

# --- the card on the host ---


@pytest.fixture
def tree(tmp_path):
    return SysfsTree.create(tmp_path / "sys", slots=2)


def find_card(tree, serial="SN1"):
    return reader.read(tree.root).by_serial(serial)


@pytest.mark.parametrize(
    ("how", "present", "powered"),
    [
        ({"arrival": "not-seen"}, False, True),
        ({"identifiers": {"nvme-serial": "SN99"}}, True, True),
        ({"driver": ""}, True, True),
        ({"arrival": "late", "lateSeconds": 60}, False, False),
    ],
    ids=str,
)
async def test_a_device_that_is_attached_and_not_seen_on_the_host(tree, how, present, powered):
    fault = {"effect": "appear", "device": "d1", **how}
    async with fabric_with(fault, hosts=[{"id": "h1", "ports": 2, "sysfs": str(tree.root)}]) as fabric:
        assert (await fabric.attach(attach())).succeeded
        assert find_card(tree) is None
        slot = reader.read(tree.root).slots[0]
        assert (slot.present, slot.powered) == (present, powered)
        await fabric.detach(detach())
        assert tree.list_attached_cards() == {}
        await fabric.attach(attach(request_id="again"))
        assert find_card(tree).slot == "1"


async def test_a_late_device_appears_only_if_it_is_still_attached(tree):
    fault = {"effect": "appear", "arrival": "late", "lateSeconds": 0.05, "times": 2}
    async with fabric_with(fault, hosts=[{"id": "h1", "ports": 2, "sysfs": str(tree.root)}]) as fabric:
        await fabric.attach(attach("d1"))
        await fabric.detach(detach("d1"))
        await fabric.attach(attach("d2"))
        await waiting.eventually(lambda: not fabric._works._later)
        assert [card.serial for card in tree.list_attached_cards().values()] == ["SN2"]
        await fabric.detach(detach("d2"))
        await fabric.attach(attach("d3"))
        fabric.console.add_fault(faults.Appear(arrival="late", late_seconds=0.05, device="d1"))
        await fabric.attach(attach("d1", request_id="again"))
        await fabric.detach(detach("d1", request_id="again-x"))
        await waiting.eventually(lambda: not fabric._works._later)
        assert [card.serial for card in tree.list_attached_cards().values()] == ["SN3"]


# --- the invariants under every fault ---

METHODS = st.sampled_from(["attach", "detach"])
EFFECTS = st.one_of(
    st.fixed_dictionaries({"effect": st.just("refuse"), "method": METHODS}),
    st.fixed_dictionaries({"effect": st.just("fail"), "method": METHODS, "happens": st.booleans()}),
    st.fixed_dictionaries({"effect": st.just("stick"), "method": METHODS}),
    st.fixed_dictionaries({"effect": st.just("lose-reply"), "method": METHODS}),
    st.fixed_dictionaries({"effect": st.just("lose-events"), "resyncSeconds": st.just(0.0)}),
)
TOLD = st.lists(
    st.tuples(EFFECTS, st.integers(0, 3), st.integers(1, 3)).map(
        lambda each: {**each[0], "skip": each[1], "times": each[2]}
    ),
    max_size=6,
)
ACTS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "attach",
                "detach",
                "model",
                "cancel",
                "take",
                "foreign",
                "forget",
                "remove",
                "add",
                "port",
            ]
        ),
        st.sampled_from(["d1", "d2", "d3"]),
        st.sampled_from(["h1", "h2"]),
    ),
    max_size=20,
)


@settings(max_examples=100, deadline=None)
@given(faults=TOLD, acts=ACTS)
def test_faults_never_put_a_device_on_two_ports_or_two_on_one(faults, acts):
    asyncio.run(walk(faults, acts))


async def walk(faults, acts):
    async with fabric_with(*faults, mostAttachSeconds=0.003, mostDetachSeconds=0.003) as fabric:
        for number, (act, device_id, host_id) in enumerate(acts):
            with suppress(errors.Refused, errors.Transient, errors.Misconfigured):
                await perform(fabric, act, device_id, host_id, str(number))
            await asyncio.sleep(0.001 if number % 3 == 0 else 0)
            await check_invariants(fabric)
        fabric.console.clear_faults()
        for operation in await fabric.operations():
            await fabric.cancel(operation.id)
        await check_invariants(fabric)


async def perform(fabric, act, device_id, host_id, request_id):
    match act:
        case "attach":
            await fabric.attach(attach(device_id, host_id, request_id=request_id))
        case "model":
            await fabric.attach(contract.AttachRequest(request_id=request_id, model="m", host_id=host_id))
        case "detach":
            await fabric.detach(detach(device_id, host_id, request_id=request_id))
        case "cancel":
            for operation in await fabric.operations():
                await fabric.cancel(operation.id)
        case "take":
            await fabric.take_away(device_id)
        case "foreign":
            await fabric.console.foreign_attach(device_id, host_id)
        case "forget":
            await fabric.console.forget_operations()
        case _:
            await refit(fabric.console, act, device_id, host_id)


async def refit(console, act, device_id, host_id):
    match act:
        case "remove":
            await console.remove_device(device_id)
        case "add":
            console.add_device(
                contract.Device(id=device_id, device_class=contract.DeviceClass.NVME, model="m")
            )
        case "port":
            console.set_port(host_id, "1", faulty=device_id == "d1")


async def check_invariants(fabric):
    ports = [(host.id, port.id, port.device_id) for host in await fabric.hosts() for port in host.ports]
    occupied = [entry for entry in ports if entry[2] is not None]
    assert len({device_id for *_, device_id in occupied}) == len(occupied)
    devices = (await fabric.devices()).devices
    assert len({device.id for device in devices}) == len(devices)
    connected = {
        (device.connection.host_id, device.connection.port_id, device.id)
        for device in devices
        if device.connection
    }
    assert connected <= set(occupied)
    # A port beyond those is reserved by an operation in flight, which the manager may have forgotten.
    assert len(occupied) - len(connected) <= len(fabric._running)
