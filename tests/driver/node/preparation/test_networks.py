"""The network interfaces of prepared devices, as their claims report them."""

import asyncio
import contextlib
import json
import re

import msgspec
import pytest
from tests.driver.node.preparation.test_preparer_parameters import configure, put_network_cards

from drawbar.driver.api import claims, meta
from drawbar.driver.kube import kinds
from drawbar.driver.node import errors
from drawbar.driver.node.preparation import networks, records

DRIVER, MANAGER = "drawbar.dev", "drawbar-node-network"
PREFIX = {"network": {"interfacePrefix": "data"}}


def device(name="d1", *, interface="eth1", address="02:00:00:00:00:01", composite="", share_id=None):
    network = records.Network(interface_name=interface, hardware_address=address) if interface else None
    return records.PreparedDevice(
        pool="p", device=name, cdi_id=name, composite=composite, share_id=share_id, network=network
    )


def record(*devices, uid="u1"):
    return records.PreparedClaim(
        namespace="default", name="c1", uid=uid, state=records.COMPLETED, devices=devices
    )


def claim(*results):
    listed = tuple(
        claims.AllocationResult(request="r", driver=driver, pool="p", device=name, share_id=share_id)
        for driver, name, share_id in results
    )
    allocation = claims.Allocation(devices=claims.DeviceAllocation(results=listed))
    return claims.ResourceClaim(
        metadata=meta.ObjectMeta(name="c1", namespace="default", uid="u1", resource_version="7"),
        status=claims.ClaimStatus(allocation=allocation),
    )


def map_network_data(body):
    return {
        (entry["device"], entry.get("shareID")): entry["networkData"] for entry in body["status"]["devices"]
    }


def test_each_device_with_an_interface_has_it_under_its_name_in_the_pod():
    body = networks.build_apply(
        claim((DRIVER, "d1", None), (DRIVER, "d2", "s"), (DRIVER, "d3", None), ("b", "d4", None)),
        DRIVER,
        record(
            device(), device("d2", interface="data0", address="", share_id="s"), device("d3", interface="")
        ),
    )
    assert body["metadata"] == {
        "name": "c1",
        "namespace": "default",
        "uid": "u1",
        "resourceVersion": "7",
    }
    assert map_network_data(body) == {
        ("d1", None): {"interfaceName": "eth1", "hardwareAddress": "02:00:00:00:00:01"},
        ("d2", "s"): {"interfaceName": "data0"},
    }


def test_a_composite_has_the_first_interface_of_its_members():
    members = (
        device("m1", interface=""),
        device("m2", composite="pair"),
        device("m3", interface="eth9", composite="pair"),
    )
    body = networks.build_apply(claim((DRIVER, "pair", None)), DRIVER, record(*members))
    assert map_network_data(body) == {
        ("pair", None): {"interfaceName": "eth1", "hardwareAddress": "02:00:00:00:00:01"}
    }


@pytest.mark.parametrize(
    ("current", "prepared"),
    [
        (claim((DRIVER, "d1", None)), record(device(), uid="before")),
        (claim((DRIVER, "d2", None)), record(device())),
        (claim((DRIVER, "d1", None)), record(device(interface=""))),
        (claim(), record(device())),
    ],
    ids=["another claim", "another device", "no interface", "not allocated"],
)
def test_nothing_is_reported_about(current, prepared):
    assert networks.build_apply(current, DRIVER, prepared) is None


@contextlib.asynccontextmanager
async def reporting(world, *, tells_claims=True):
    """Report about the world's claims; yields a function that returns the `networkData` of one, by device."""
    about = networks.Networks(
        world.api, driver=DRIVER, files=world.preparer.store, tells_claims=lambda: tells_claims
    )
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(about.run())
        yield about
        task.cancel()


async def network_data(world, name="c1"):
    return _network_data(await world.api.read(kinds.CLAIM, name, namespace="default", into=dict))


def _network_data(document):
    return {
        entry["device"]: entry["networkData"]
        for entry in document["status"].get("devices", [])
        if "networkData" in entry
    }


async def until_reported(world, wanted):
    await world.until(kinds.CLAIM, lambda listed: _network_data(listed[0]) == wanted)


async def network_claim(world, *config):
    """Create and prepare a claim of two network cards."""
    identities = {device: identity async for device, identity in put_network_cards(world)}
    results = [world.result("d1"), world.result("d2", request="other")]
    name = await world.claim(results=())
    allocation = {"devices": {"results": results, "config": list(config)}}
    await world.set_status(kinds.CLAIM, name.name, {"allocation": allocation})
    listed = [world.attachment(entry["device"], name.uid) for entry in results]
    world.attached = [
        msgspec.structs.replace(
            attached, spec=msgspec.structs.replace(attached.spec, identity=identities[attached.spec.device])
        )
        for attached in listed
    ]
    await world.preparer.prepare(name)
    return name


async def test_the_interfaces_of_a_pod_are_reported_again_by_the_next_daemon(world):
    name = await network_claim(world, configure("FromClaim", **PREFIX))
    addresses = [
        (world.folder / "sys" / world.card(attached).first.path / "net" / interface / "address")
        .read_text()
        .strip()
        for attached in world.attached
        for interface in world.card(attached).first.net_interfaces
    ]
    wanted = {
        device: {"interfaceName": f"data{number}", "hardwareAddress": address}
        for number, (device, address) in enumerate(zip(("d1", "d2"), addresses, strict=True))
    }
    async with reporting(world) as about:
        about.report(name.uid)
        await until_reported(world, wanted)
    fields = (await world.api.read(kinds.CLAIM, "c1", namespace="default", into=dict))["metadata"][
        "managedFields"
    ]
    (own,) = [entry for entry in fields if entry["manager"] == MANAGER]
    assert "networkData" in json.dumps(own)
    assert "conditions" not in json.dumps(own)

    await world.set_status(kinds.CLAIM, "c1", {"devices": []})
    await world.restart_preparer()
    async with reporting(world) as about:
        about.report(name.uid)
        await until_reported(world, wanted)


async def test_the_interface_is_recorded_with_the_preparation(world):
    name = await network_claim(world)
    networks_of = [entry["network"] for entry in world.claims()[name.uid]["devices"]]
    # `eth0` is the pod's own.
    assert [network["interfaceName"] for network in networks_of] == ["nic0", "eth1"]


async def test_of_a_claim_that_is_gone_or_has_no_interface_nothing_is_written(world):
    await world.prepare_claim()
    before = (await world.api.read(kinds.CLAIM, "c1", namespace="default", into=dict))["metadata"]
    async with reporting(world) as about:
        about.report("nowhere")
        for claim_ in world.claims():
            about.report(claim_)
    after = (await world.api.read(kinds.CLAIM, "c1", namespace="default", into=dict))["metadata"]
    assert after["resourceVersion"] == before["resourceVersion"]


@pytest.mark.parametrize(
    ("occupied", "words"),
    [
        ({"eth0": "has the address 192.0.2.7/24"}, "network interface eth0 has the address 192.0.2.7/24"),
        ({"eth0": "belongs to bond0"}, "network interface eth0 belongs to bond0"),
        (None, "whether the host uses its network interfaces is unknown"),
    ],
)
async def test_a_card_of_the_node_that_the_host_has_begun_to_use_is_not_handed_over(world, occupied, words):
    async for _ in put_network_cards(world):
        pass
    serial = "00-11-22-33-44-55-66-01"
    card = world.arrivals.card_at(world.arrivals.inventory.by_serial(serial).address)
    world.local.cards["n", "nic"], world.local.of_class = card, "nic"
    name = await world.claim(results=(world.result("nic", pool="n"),))
    world.occupied = occupied
    with pytest.raises(errors.PrepareError, match=re.escape(words)):
        await world.preparer.prepare(name)
    assert world.claims() == {}
    assert world.recorder.reasons == ["HostUsesDevice"]
    # What holds it is taken away, and the kubelet asks again.
    world.occupied = {}
    (prepared,) = await world.preparer.prepare(name)
    assert prepared.device == "nic"
