"""What the connections of the emulated service are to the kernels of its hosts, and its journal."""

import msgspec
import pytest
from tests.fabric.redfish.conftest import connection_body
from tests.scenes import waiting

from drawbar.fabric.contract import OperationKind
from drawbar.mocks import redfish, sysfs
from drawbar.mocks.fabric import journal
from drawbar.mocks.redfish import paths
from drawbar.mocks.redfish.configuration import Device, Enclosure, Host

CONFIGURATION = redfish.Configuration(
    enclosures=(
        Enclosure(
            id="e1", devices=(Device(id="disk-1", serial="S1"), Device(id="disk-2"), Device(id="disk-3"))
        ),
    )
)


@pytest.fixture
def trees(tmp_path):
    return {name: sysfs.SysfsTree.create(tmp_path / name, slots=4) for name in ("h1", "h2")}


@pytest.fixture
async def service(trees, tmp_path):
    hosts = tuple(Host(id=name, sysfs=str(tree.root)) for name, tree in trees.items())
    configuration = msgspec.structs.replace(CONFIGURATION, hosts=hosts)
    async with redfish.serving(configuration, journal=tmp_path / "journal.jsonl") as serving:
        yield serving


def connect(service, device_id, host_id):
    endpoints = [{"@odata.id": paths.endpoint(name)} for name in (host_id, device_id)]
    answer = service._apply_change("POST", paths.ZONES, {"Links": {"Endpoints": endpoints}}, began=1.0)
    assert answer.status == 201
    return answer.headers["Location"]


async def slots(tree, count):
    """Wait until the tree has so many devices; return their serial numbers by slot."""
    await waiting.eventually(lambda: len(tree.list_attached_cards()) == count)
    return {slot: device.serial for slot, device in tree.list_attached_cards().items()}


async def test_connected_devices_are_in_the_lowest_free_slots_of_their_host(service, trees):
    first = connect(service, "disk-1", "h1")
    connect(service, "disk-2", "h1")
    assert await slots(trees["h1"], 2) == {1: "S1", 2: "DISK-2"}
    service._apply_change("DELETE", first, {}, began=2.0)
    await slots(trees["h1"], 1)
    connect(service, "disk-3", "h1")
    assert await slots(trees["h1"], 2) == {1: "DISK-3", 2: "DISK-2"}
    assert trees["h2"].list_attached_cards() == {}


async def test_the_journal_has_each_connection_from_its_request_to_its_end(service, trees, tmp_path):
    zone = connect(service, "disk-1", "h2")
    service._apply_change("DELETE", zone, {}, began=2.0)
    entries = journal.read(tmp_path / "journal.jsonl")
    assert [(entry.kind, entry.event, entry.device, entry.host) for entry in entries] == [
        (kind, event, "PCIe.disk-1", "h2")
        for kind in (OperationKind.ATTACH, OperationKind.DETACH)
        for event in ("started", "finished")
    ]
    assert [entry.time for entry in entries if entry.event == "started"] == [1.0, 2.0]


@pytest.mark.parametrize(
    ("initiators", "name"), [(True, "PCIe.memory-1"), (False, "e1.1.memory-1")], ids=["hosts", "an appliance"]
)
async def test_connected_memory_is_in_the_slots_of_its_host_and_in_the_journal(
    trees, tmp_path, initiators, name
):
    memory = Device(id="memory-1", kind="cxl-memory", serial="0x51", memory_mib=256)
    configuration = msgspec.structs.replace(
        CONFIGURATION,
        hosts=tuple(Host(id=each, sysfs=str(tree.root)) for each, tree in trees.items()),
        enclosures=(Enclosure(id="e1", devices=(memory,)),),
        method="connections",
        initiators=initiators,
    )
    async with redfish.serving(configuration, journal=tmp_path / "journal.jsonl") as service:
        body = connection_body(service, "memory-1", "h2")
        made = service._apply_change("POST", paths.CONNECTIONS, body, began=1.0)
        assert service.connections() == {"memory-1": ["h2"]}
        assert await slots(trees["h2"], 1) == {1: "0x51"}
        assert trees["h1"].list_attached_cards() == {}
        service._apply_change("DELETE", made.headers["Location"], {}, began=2.0)
        await slots(trees["h2"], 0)
    entries = journal.read(tmp_path / "journal.jsonl")
    assert [(entry.kind, entry.device, entry.host) for entry in entries] == [
        (kind, name, "h2")
        for kind in (OperationKind.ATTACH, OperationKind.DETACH)
        for _ in ("started", "finished")
    ]


async def test_a_refused_request_changes_nothing(service, trees, tmp_path):
    connect(service, "disk-1", "h1")
    endpoints = [{"@odata.id": paths.endpoint(name)} for name in ("h2", "disk-1")]
    answer = service._apply_change("POST", paths.ZONES, {"Links": {"Endpoints": endpoints}}, began=3.0)
    assert answer.status == 409
    assert await slots(trees["h1"], 1) == {1: "S1"}
    assert trees["h2"].list_attached_cards() == {}
    assert len(journal.read(tmp_path / "journal.jsonl")) == 2
