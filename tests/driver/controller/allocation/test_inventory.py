"""What fabrics have for claims: free devices, ports and rules."""

import dataclasses
import datetime
import types

import pytest
from tests.scenes import attachments as scenes

from drawbar.driver.api import attachments, fabrics, meta
from drawbar.driver.controller import attachment_index, faults, hosts, maintenance, names, pairs
from drawbar.driver.controller import claims as claim_index
from drawbar.driver.controller.allocation import inventory
from drawbar.driver.kube import kinds
from drawbar.driver.slices import pool_writes
from drawbar.fabric import contract

NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
FABRIC = fabrics.Fabric(
    metadata=meta.ObjectMeta(name="fab"), spec=fabrics.FabricSpec(adapter="a", endpoint="e")
)


def port(device=None):
    state = contract.PortState.USED if device else contract.PortState.FREE
    return contract.Port(id=f"p-{device}", state=state, device_id=device)


class Session:
    """A fabric manager that tells one host with these ports."""

    name, devices = "fab", ()

    def __init__(self, *ports):
        self.manager = types.SimpleNamespace(silent_since=None)
        self.hosts, self.faults = (contract.Host(id="h", name="n", ports=ports),), faults.Ledger()
        self.pairs = pairs.Pairs()
        self.nodes = hosts.NodeMap(host_of={"n": "h"})


def make_pending_index(*devices):
    """Return an index of attachments that are not told of as attached yet."""
    placed = attachment_index.Index()
    for device in devices:
        claim = attachments.ClaimReference(namespace="ns", name="c", uid="c")
        position = {"node_name": "n", "host_id": "h", "pool": "fab/e"}
        placed.change(None, scenes.attachment(device=device, uid=device, claim=claim, **position), NOW)
    return placed


@pytest.mark.parametrize(
    ("ports", "devices", "left"),
    [
        pytest.param([port(), port("other")], [], 1, id="nothing-comes"),
        pytest.param([port(), port()], ["a"], 1, id="one-comes-and-no-port-shows-it"),
        pytest.param([port(), port("a")], ["a"], 1, id="one-comes-and-its-port-shows-it"),
        pytest.param([], ["a"], None, id="no-ports-are-told"),
    ],
)
def test_a_device_that_comes_takes_one_port_of_its_node(ports, devices, left):
    opened = Session(*ports)
    fabric = inventory.fabric_of(Cluster(opened, make_pending_index(*devices)), FABRIC, opened)
    assert (fabric.hosts, fabric.ports) == ({"n": "h"}, {"n": left})


class Cluster:
    """What immediate allocation looks at: the session, what is attached, and nothing published."""

    maintenance, beyond = maintenance.Index(), frozenset()
    driver, nodes, allocated = "drawbar.dev", {}, claim_index.Index("drawbar.dev", lambda: NOW)

    def __init__(self, opened, placed):
        reserved = fabrics.Policy(immediate=fabrics.Reservation(models=("M",)))
        spec = fabrics.FabricSpec(adapter="a", endpoint="e", policy=reserved)
        self.fabrics = {"fab": fabrics.Fabric(metadata=FABRIC.metadata, spec=spec)}
        self.sessions, self.placed, self.pools, self.attachments = [opened], placed, self, {}

    def in_fabric(self, fabric):
        return ()

    def find_not_offered(self, fabric):
        return self.beyond

    def composites(self, fabric):
        return None

    def clock(self):
        return NOW


def opened_with(count):
    opened = Session(port())
    opened.has_listing = True
    opened.devices = tuple(
        contract.Device(id=f"d-{number:02}", enclosure="e", model="M", device_class=contract.DeviceClass.GPU)
        for number in range(count)
    )
    return opened


def test_an_allocated_device_keeps_its_room_in_the_pool():
    opened = opened_with(pool_writes.DEVICES_MAX + 1)
    for placed, later in ((make_pending_index(), "d-64"), (make_pending_index("d-64"), "d-63")):
        reserved = inventory.find_reserved(Cluster(opened, placed), frozenset())
        assert [key.device for key, device in reserved.devices.items() if device.pool == "fab/e/1"] == [later]


def opened_on(*, device_groups=(), host_groups=(), refused=()):
    """Return a fabric with the devices `d-00` and `d-01`, of which the first one is in these groups."""
    opened = opened_with(2)
    first, second = opened.devices
    opened.devices = (dataclasses.replace(first, reach_groups=frozenset(device_groups)), second)
    opened.hosts = (dataclasses.replace(opened.hosts[0], reach_groups=frozenset(host_groups)),)
    source = faults.Source(namespace="x", uid="x")
    for device in refused:
        opened.pairs.note_refusal((device, "h"), source, "no", now=NOW, date=NOW)
    return opened


@pytest.mark.parametrize(
    ("how", "impossible"),
    [
        pytest.param({}, set(), id="nothing-known"),
        pytest.param({"device_groups": "a", "host_groups": "ab"}, set(), id="a-common-group"),
        pytest.param({"device_groups": "a", "host_groups": "b"}, {"d-00"}, id="no-common-group"),
        pytest.param({"device_groups": "a"}, set(), id="the-hosts-groups-are-not-known"),
        pytest.param({"refused": ["d-01"]}, {"d-01"}, id="a-refused-pair"),
        pytest.param(
            {"device_groups": "a", "host_groups": "b", "refused": ["d-01"]}, {"d-00", "d-01"}, id="both"
        ),
    ],
)
def test_a_node_cannot_get_devices_beyond_the_reach_of_its_host(how, impossible):
    opened = opened_on(**how)
    fabric = inventory.fabric_of(Cluster(opened, make_pending_index()), FABRIC, opened)
    assert {key.device for key in fabric.refused.get("n", ())} == impossible


def test_a_silent_fabric_gives_nothing_to_any_node_at_once():
    opened = opened_with(1)
    assert inventory.find_reserved(Cluster(opened, make_pending_index()), frozenset()).fabrics[
        "fab"
    ].hosts == {"n": "h"}
    opened.manager.silent_since = 1.0
    assert (
        inventory.find_reserved(Cluster(opened, make_pending_index()), frozenset()).fabrics["fab"].hosts == {}
    )


def test_a_device_beyond_the_offer_is_not_free_for_immediate_allocation():
    cluster = Cluster(opened_with(2), make_pending_index())
    cluster.beyond = frozenset({"d-00"})
    devices = inventory.find_reserved(cluster, frozenset()).devices
    assert {key.device: device.free for key, device in devices.items()} == {"d-00": False, "d-01": True}


async def test_the_controller_knows_its_withdrawn_devices_at_once(controller_world, until):
    async with controller_world() as cluster:
        controller = await cluster.controller(immediate_allocation=True)
        (immediate,) = controller._allocators.ways
        await cluster.make_fabric()
        await cluster.wait_for_slices()
        policy = {"spec": {"policy": {"immediate": {"devices": ["disk-0"]}}}}
        await cluster.patch(kinds.FABRIC, "fab", policy)

        async def withdrawn():
            return set(immediate.waiting.withdrawn)

        assert await until(withdrawn, bool) == {names.DeviceKey(fabric="fab", device="disk-0")}
