"""The virtual functions that a class asks for: the steps towards them, and what is missing."""

import msgspec
import pytest

from drawbar.driver.api import parameters
from drawbar.driver.node.attachments import functions
from drawbar.driver.node.discovery import reader
from drawbar.driver.node.inventory import model
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks.sysfs import MockDevice, SysfsTree

NIC = MockDevice(
    device_class=DeviceClass.NIC, vendor=0x15B3, device=0x1021, total_vfs=4, vf_driver="mlx5_core"
)
Group = parameters.FunctionGroup
KEY = "rack/nic-0"


def make_virtual_functions(*groups):
    return parameters.VirtualFunctions(groups=groups)


@pytest.fixture
def tree(tmp_path):
    tree = SysfsTree.create(tmp_path / "sys", slots=1)
    tree.attach(1, NIC)
    return tree


def card_of(tree):
    address = tree.address(1)
    mine = (
        function
        for function in reader.read(tree.root).functions
        if address in (function.address, function.physical_function)
    )
    return model.Card(functions=tuple(mine))


def steps(card, asked, *, begun):
    return list(functions.steps(card, asked, key=KEY, begun=begun))


def test_they_are_made_and_set_up_in_order_of_their_numbers(tree):
    asked = make_virtual_functions(
        Group(count=1, vlan=7), Group(count=1), Group(count=1, trust=True, spoof_check=False)
    )
    card = card_of(tree)
    make, links = steps(card, asked, begun=False)
    assert make == functions.Make(address=card.address, count=3)
    assert links.interface == "eth0"
    assert {number: link.settings for number, link in links.links.items()} == {
        0: {"vlan": 7},
        2: {"trust": True, "spoofchk": False},
    }


def test_functions_without_link_settings_need_no_interface(tree):
    bare = msgspec.structs.replace(card_of(tree).first, net_interfaces=())
    card = model.Card(functions=(bare,))
    assert steps(card, make_virtual_functions(Group(count=2)), begun=False) == [
        functions.Make(address=bare.address, count=2)
    ]
    linked = make_virtual_functions(Group(count=2, vlan=7))
    assert steps(card, linked, begun=False) == []
    assert "has no network interface" in functions.find_missing(card, linked, needs_driver=True)


def test_foreign_functions_are_made_again_and_own_ones_get_drivers(tree):
    tree.set_vfs(1, 2)
    card, asked = card_of(tree), make_virtual_functions(Group(count=1, driver="vfio-pci"), Group(count=1))
    make, links = steps(card, asked, begun=False)
    assert make == functions.Make(address=card.address, count=2)
    assert links == functions.SetLinks(interface="eth0", links={}), "their drivers ask through it"
    first, second = card.first.sriov.virtual_functions
    assert steps(card, asked, begun=True) == [
        functions.GiveDriver(owner=card.address, address=first, driver="vfio-pci", instead="mlx5_core")
    ]
    assert functions.find_missing(card, asked, needs_driver=True) == (
        f"virtual function {first} has not got its driver vfio-pci; load that on this node"
    )
    without = tuple(
        msgspec.structs.replace(function, driver=None) if function.address == second else function
        for function in card.functions
    )
    (_, give) = steps(model.Card(functions=without), asked, begun=True)
    assert give == functions.GiveDriver(owner=card.address, address=second, driver=None)


@pytest.mark.parametrize(
    ("count", "missing"),
    [
        pytest.param(2, "", id="all there"),
        pytest.param(3, "0000:01:00.0 has 2 of its 3 virtual functions", id="too few"),
    ],
)
def test_nothing_is_missing_once_all_are_there(tree, count, missing):
    tree.set_vfs(1, 2)
    assert (
        functions.find_missing(card_of(tree), make_virtual_functions(Group(count=count)), needs_driver=True)
        == missing
    )


def test_without_a_driver_one_is_ready_only_in_a_class_that_needs_none(tree):
    tree.set_vfs(1, 1)
    card = card_of(tree)
    bare = tuple(msgspec.structs.replace(function, driver=None) for function in card.functions)
    asked = make_virtual_functions(Group(count=1))
    assert "has no driver; load one" in functions.find_missing(
        model.Card(functions=bare), asked, needs_driver=True
    )
    assert functions.find_missing(model.Card(functions=bare), asked, needs_driver=False) == ""
    assert "has not appeared yet" in functions.find_missing(
        model.Card(functions=card.functions[:1]), asked, needs_driver=True
    )


def test_more_than_the_card_can_have_is_a_problem_of_the_class(tree):
    card = card_of(tree)
    assert functions.problem(card, make_virtual_functions(Group(count=4))) is None
    assert "and 0000:01:00.0 can have 4: lower" in (
        functions.problem(card, make_virtual_functions(Group(count=3), Group(count=2))) or ""
    )
    plain = model.Card(functions=(msgspec.structs.replace(card.first, sriov=None),))
    assert "the device can have none" in (
        functions.problem(plain, make_virtual_functions(Group(count=1))) or ""
    )


def test_a_stable_address_is_one_for_a_key_and_local_and_for_one_receiver():
    address = functions.stable_address("rack/nic-0/0/0")
    assert address == functions.stable_address("rack/nic-0/0/0")
    assert address != functions.stable_address("rack/nic-0/0/1")
    assert int(address[:2], 16) & 0b11 == 0b10
    assert len(address) == len("02:00:00:00:00:00")


def test_links_of_a_card_with_other_functions_are_set_up_through_its_network_functions(tree):
    network = card_of(tree).first
    fpga = msgspec.structs.replace(
        network, address="0000:01:00.7", device_class=DeviceClass.FPGA, net_interfaces=(), driver="dfl-pci"
    )
    card, asked = model.Card(functions=(fpga, network)), make_virtual_functions(Group(count=1, vlan=7))
    assert [type(step).__name__ for step in steps(card, asked, begun=False)] == ["Make", "Make", "SetLinks"]
    late = msgspec.structs.replace(network, net_interfaces=())
    card = model.Card(functions=(fpga, late))
    assert steps(card, asked, begun=False) == []
    assert functions.find_missing(card, asked, needs_driver=False).startswith(
        f"{fpga.address} has 0 of its 1"
    )
