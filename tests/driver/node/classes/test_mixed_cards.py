"""A card whose functions are of several classes is one device, and brings what each of them has."""

import msgspec
import pytest
from tests.scenes import cards

from drawbar.driver.node import classes, kernel
from drawbar.driver.node.inventory import model
from drawbar.fabric.contract import DeviceClass


def node(name, subsystem):
    return model.DeviceNode(path=f"/dev/{name}", major=1, minor=2, block=False, subsystem=subsystem)


FPGA = cards.function(
    "0000:03:00.0",
    DeviceClass.FPGA,
    slot="7",
    driver="dfl-pci",
    device_nodes=(node("dfl-fme.0", "dfl-fme"), node("dfl-port.0", "dfl-port")),
)
PORTS = tuple(
    cards.function(
        f"0000:0{bus}:00.{function}",
        DeviceClass.NIC,
        slot="7",
        driver="i40e",
        net_interfaces=(f"ens{bus}f{function}",),
    )
    for bus in (4, 5)
    for function in (0, 1)
)
SWITCH = cards.function("0000:01:00.0", DeviceClass.BRIDGE, slot="7", driver="pcieport")
N3000 = model.Card(functions=(FPGA, *PORTS, SWITCH))


@pytest.fixture
def host(tmp_path):
    return classes.Host.from_sysfs(tmp_path / "sys")


def list_container_devices(card, host, device_class=None):
    edits = classes.by_name(device_class or card.device_class).edits(card, host)
    return [each.path for each in edits.device_nodes], [each.host_name for each in edits.net_devices]


@pytest.mark.parametrize("device_class", ["fpga", "accelerator", "nic", "other"])
def test_an_fpga_card_with_network_ports_brings_both(host, device_class):
    interfaces = ["ens4f0", "ens4f1", "ens5f0", "ens5f1"]
    assert list_container_devices(N3000, host, device_class) == (
        ["/dev/dfl-fme.0", "/dev/dfl-port.0"],
        interfaces,
    )
    assert classes.by_name(device_class).interfaces(N3000) == tuple(interfaces)


def test_a_card_without_an_interface_has_none_in_any_class_but_that_of_network_cards():
    card = model.Card(functions=(FPGA,))
    assert classes.by_name("fpga").interfaces(card) is None
    assert classes.by_name("nic").interfaces(card) == ()


def test_of_each_function_a_container_gets_the_files_of_its_own_class(host):
    gpu = cards.function(
        "0000:01:00.0",
        DeviceClass.GPU,
        driver="xe",
        device_nodes=(node("dri/card0", "drm"), node("i2c-5", "i2c-dev")),
    )
    sound = cards.function(
        "0000:01:00.1", DeviceClass.OTHER, driver="snd_hda_intel", device_nodes=(node("snd/hw", "sound"),)
    )
    nic = cards.function(
        "0000:01:00.2",
        DeviceClass.NIC,
        driver="mlx5_core",
        device_nodes=(node("infiniband/uverbs0", "infiniband_verbs"),),
    )
    card = model.Card(functions=(gpu, sound, nic))
    assert list_container_devices(card, host)[0] == ["/dev/dri/card0", "/dev/infiniband/uverbs0"]


def test_a_card_is_ready_when_each_function_is_by_the_rules_of_its_class():
    fpga = classes.by_name("fpga")
    assert fpga.missing_requirements(N3000) is None
    bare = msgspec.structs.replace(PORTS[2], driver=None, net_interfaces=())
    card = msgspec.structs.replace(N3000, functions=(FPGA, *PORTS[:2], bare, PORTS[3], SWITCH))
    assert fpga.missing_requirements(card) == (
        "of its function 0000:05:00.0 (nic), no kernel driver is bound; load the driver on this node"
    )
    sound = cards.function("0000:03:00.1", DeviceClass.OTHER, driver=None)
    assert fpga.missing_requirements(model.Card(functions=(FPGA, sound))) is None


async def test_drivers_are_asked_for_every_function_that_has_none(tmp_path):
    asked = []

    class Kernel(kernel.Kernel):
        async def probe(self, address):
            asked.append(address)

    bare = msgspec.structs.replace(PORTS[0], driver=None)
    card = model.Card(functions=(FPGA, bare))
    assert await classes.by_name("fpga").initialise(Kernel(tmp_path), card) is not None
    assert asked == [bare.address]


def test_a_disk_on_another_kind_of_card_is_erased(host):
    disk = cards.function("0000:05:00.0", DeviceClass.NVME, nvme="SN1", driver="nvme", slot="7")
    card = model.Card(functions=(FPGA, disk))
    eraser = classes.by_name("fpga").eraser(msgspec.structs.replace(host, dev=classes.Host().dev), card)
    assert eraser is not None
    assert (
        classes.by_name("fpga").eraser(msgspec.structs.replace(host, dev=classes.Host().dev), N3000) is None
    )
