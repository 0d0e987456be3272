"""Which network interfaces are a function's own: not representors, and not what stands on another interface."""

import os

import msgspec
import pytest
from tests.scenes import kerneltrees

from drawbar.driver.node.discovery import reader

NIC = {"class_code": 0x020000, "vendor": 0x15B3, "device": 0x1021, "driver": "mlx5_core"}
ADDRESS = "0000:03:00.0"


@pytest.fixture
def tree(tmp_path):
    return kerneltrees.Tree(tmp_path / "sys")


@pytest.fixture
def nic(tree):
    """Return the directory of a network card in switchdev mode with its uplink."""
    base = tree.function(f"pci0000:00/0000:00:01.0/{ADDRESS}", **NIC)
    tree.interface(base, "ens1", phys_port_name="p0", phys_switch_id="946dae0300510000")
    return base


def interfaces(tree):
    return reader.read_function(tree.root, ADDRESS).net_interfaces


@pytest.mark.parametrize("name", ["pf0vf0", "pf1vf12", "c1pf0vf3", "pf0sf88", "c1pf0", "pf0hpf", "p0pf0vf1"])
def test_a_representor_is_not_the_cards_own(tree, nic, name):
    tree.interface(nic, "eth0", index=8, phys_port_name=name, phys_switch_id="946dae0300510000")
    assert interfaces(tree) == ("ens1",)


def test_representors_whose_uplink_is_in_a_pod_are_still_none_of_the_cards_own(tree):
    base = tree.function(f"pci0000:00/0000:00:01.0/{ADDRESS}", **NIC)
    tree.interface(base, "eth0", phys_port_name="pf0vf0", phys_switch_id="946dae0300510000")
    assert interfaces(tree) == ()


@pytest.mark.parametrize("name", ["", "p0", "p1", "p0s2", "n1p2", "0"])
def test_each_port_of_a_card_is_its_own(tree, nic, name):
    tree.interface(nic, "ens1np1", index=8, phys_port_name=name)
    assert interfaces(tree) == ("ens1", "ens1np1")


def test_a_partition_of_infiniband_stands_on_another_interface(tree, nic):
    tree.interface(nic, "ib0.8001", index=8, iflink=7)
    tree.write(f"{nic}/net/macvlan0/lower_ens1/ifindex", 7)
    assert interfaces(tree) == ("ens1",)


def test_an_interface_of_another_device_and_a_bond_are_not_the_functions_own(tree, nic):
    other = tree.interface(nic, "eth5", index=8)
    tree.link(f"{other}/device", "devices/pci0000:00/0000:00:02.0")
    tree.write(f"{tree.interface(nic, 'bond7', index=9)}/bonding/mode", "802.3ad 4")
    tree.link(f"{nic}/net/ens1/device", nic)
    assert interfaces(tree) == ("ens1",)


def test_bonds_vlans_and_macvlans_of_the_host_are_no_cards(tree, nic):
    for index, name in enumerate(("bond0", "ens1.100", "macvlan0"), start=20):
        path = tree.interface("devices/virtual", name, index=index, iflink=7)
        tree.link(f"{path}/lower_ens1", f"{nic}/net/ens1")
        tree.link(f"{nic}/net/ens1/upper_{name}", path)
    tree.link(f"{nic}/net/ens1/master", "devices/virtual/net/bond0")
    assert interfaces(tree) == ("ens1",)


def test_a_subfunction_is_a_device_of_its_own(tree, nic):
    tree.interface(f"{nic}/mlx5_core.sf.4", "en3f0s88", index=9)
    tree.node(
        f"{nic}/mlx5_core.sf.4/infiniband_verbs/uverbs1", "infiniband/uverbs1", 231, 193, "infiniband_verbs"
    )
    tree.node(f"{nic}/infiniband_verbs/uverbs0", "infiniband/uverbs0", 231, 192, "infiniband_verbs")
    assert interfaces(tree) == ("ens1",)
    nodes = reader.read_function(tree.root, ADDRESS).device_nodes
    assert [node.path for node in nodes] == ["/dev/infiniband/uverbs0"]


def test_the_interface_of_a_driver_on_a_bus_of_its_own_belongs_to_the_function(tree):
    base = tree.function(
        f"pci0000:00/0000:00:01.0/{ADDRESS}", **NIC | {"vendor": 0x1AF4, "driver": "virtio-pci"}
    )
    tree.interface(f"{base}/virtio0", "eth0")
    assert interfaces(tree) == ("eth0",)


def test_a_name_that_is_not_utf_8_can_be_written_everywhere(tree, nic):
    name, rdma = os.fsdecode(b"\xff\x1b[2J"), os.fsdecode(b"mlx5_\xfe")
    tree.interface(nic, name, index=8, address="0c:42:a1:00:00:02", addr_assign_type="0")
    tree.write(f"{nic}/infiniband/{rdma}/node_guid", "0c42:a103:0000:0002")
    function = reader.read_function(tree.root, ADDRESS)
    assert function.net_interfaces == ("ens1", "\ufffd\x1b[2J")
    assert {each.source for each in function.identifiers} >= {
        "net/\ufffd\x1b[2J/address",
        "infiniband/mlx5_\ufffd/node_guid",
    }
    assert msgspec.json.encode(function)
