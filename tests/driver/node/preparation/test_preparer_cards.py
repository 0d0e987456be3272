"""Prepare of cards whose functions are of several classes, and of devices whose files are not there."""

import asyncio
import dataclasses

import pytest
from tests.driver.node.preparation.test_preparer_parameters import (
    OWNED,
    configure,
    create_claim,
    read_container_edits,
)

from drawbar.driver.node import errors
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks import sysfs

SERIAL = "00-11-22-33-44-55-66-01"
PORT = sysfs.MockDevice(device_class=DeviceClass.NIC, vendor=0x8086, device=0x0D58, driver="i40e")
N3000 = sysfs.MockDevice(
    device_class=DeviceClass.FPGA, vendor=0x8086, device=0x0B30, serial=SERIAL, further=(PORT, PORT)
)
H100 = sysfs.MockDevice(device_class=DeviceClass.GPU, vendor=0x10DE, device=0x2330, serial=SERIAL, minor=3)


async def offer_card(world, card):
    """Put the card in, and have the node's own pool offer it as `n/card`."""
    await world.unplug("d1")
    await asyncio.to_thread(world.tree.attach, 1, card)
    await world.arrivals.read()
    address = world.arrivals.inventory.by_serial(SERIAL).address
    world.local.cards["n", "card"] = world.arrivals.card_at(address)
    world.local.of_class = card.device_class.value
    world.occupied = {}
    return [world.result("card", pool="n")]


async def test_an_fpga_card_with_network_ports_gives_a_container_both(world):
    results = await offer_card(world, N3000)
    parameters = configure("FromClaim", network={"interfacePrefix": "data"}, **OWNED)
    name = await create_claim(world, parameters, results=results)
    await world.preparer.prepare(name)
    edits = read_container_edits(world, name.uid, "card")
    assert [node["path"] for node in edits["deviceNodes"]] == ["/dev/dfl-fme.0", "/dev/dfl-port.0"]
    assert {(node["uid"], node["permissions"]) for node in edits["deviceNodes"]} == {(1000, "r")}
    assert [interface["name"] for interface in edits["netDevices"]] == ["data0", "data1"]
    (recorded,) = world.claims()[name.uid]["devices"]
    assert recorded["network"]["interfaceName"] == "data0"


async def test_such_a_card_is_not_handed_over_while_the_host_uses_one_of_its_ports(world):
    results = await offer_card(world, N3000)
    name = await create_claim(world, results=results)
    interface = world.local.cards["n", "card"].functions[1].net_interfaces[0]
    world.occupied = {interface: "belongs to bond0"}
    with pytest.raises(errors.PrepareError, match=f"network interface {interface} belongs to bond0"):
        await world.preparer.prepare(name)


async def test_a_gpu_whose_file_is_not_there_is_waited_for_with_the_reason(world):
    results = await offer_card(world, H100)
    file = world.tree.root.parent / "dev/nvidia3"
    file.unlink()
    name = await create_claim(world, results=results)
    with pytest.raises(errors.DeviceLate, match="/dev/nvidia3, which is not there; run nvidia-modprobe"):
        await world.preparer.prepare(name)
    assert world.claims() == {}
    file.touch()
    await world.preparer.prepare(name)
    assert "/dev/nvidia3" in [
        node["path"] for node in read_container_edits(world, name.uid, "card")["deviceNodes"]
    ]


async def test_a_function_that_vfio_has_without_a_file_is_waited_for_with_the_reason(world):
    results = await offer_card(world, dataclasses.replace(H100, driver="vfio-pci"))
    name = await create_claim(world, results=results)
    with pytest.raises(errors.DeviceLate, match="vfio-pci is bound without an IOMMU group"):
        await world.preparer.prepare(name)
