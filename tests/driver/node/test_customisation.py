"""What parameters change in what a container gets, and the numbers of network interfaces."""

import msgspec
import pytest

from drawbar.cdi import spec
from drawbar.driver.api import parameters
from drawbar.driver.node import classes, customisation
from drawbar.driver.node.discovery import reader
from drawbar.driver.node.inventory import model
from drawbar.driver.node.preparation import claimdevices, records
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks.sysfs import MockDevice, SysfsTree

EDITS = spec.ContainerEdits(
    env=("DRAWBAR_X=1",),
    device_nodes=(spec.DeviceNode(path="/dev/x", type="c", major=1, minor=2, gid=5, permissions="rw"),),
    net_devices=(
        spec.NetDevice(host_name="enp1", name="enp1"),
        spec.NetDevice(host_name="enp2", name="nic0"),
    ),
)


def customise(first=0, **reported):
    head = {"apiVersion": parameters.API_VERSION, "kind": parameters.KIND}
    decoded = parameters.decode(head | reported, parameters.Source.CLASS)
    return customisation.customise(EDITS, decoded, first_interface=first)


def test_empty_parameters_change_nothing():
    assert customise() == EDITS
    assert customise(attachTimeoutSeconds=9) == EDITS


def test_variables_follow_those_that_name_the_device():
    assert customise(environment={"B": "x=y", "A": ""}).env == ("DRAWBAR_X=1", "A=", "B=x=y")


def test_only_the_named_fields_of_device_files_change():
    (node,) = customise(deviceFiles={"readOnly": True, "user": 0}).device_nodes
    assert (node.permissions, node.uid, node.gid, node.file_mode) == ("r", 0, 5, None)
    (node,) = customise(deviceFiles={"readOnly": False, "group": 7, "mode": "0640"}).device_nodes
    assert (node.permissions, node.uid, node.gid, node.file_mode) == ("rw", None, 7, 0o640)
    assert (node.path, node.major, node.minor) == ("/dev/x", 1, 2)


@pytest.mark.parametrize(
    ("reported", "paths"),
    [
        ({"fpga": {"bitstream": "b.gbs", "sha256": "ab" * 32}}, ["/dev/dfl-port.0"]),
        (
            {"fpga": {"bitstream": "b.gbs", "sha256": "ab" * 32}, "initialise": {"hook": "load"}},
            ["/dev/dfl-fme.0", "/dev/dfl-port.0"],
        ),
        ({"environment": {"A": "b"}}, ["/dev/dfl-fme.0", "/dev/dfl-port.0"]),
    ],
    ids=["loaded by the daemon", "by a hook", "not loaded"],
)
def test_a_container_cannot_replace_a_bitstream_loaded_by_the_daemon(tmp_path, reported, paths):
    tree = SysfsTree.create(tmp_path / "sys", slots=1)
    tree.attach(1, MockDevice(device_class=DeviceClass.FPGA, vendor=0x8086, device=0x0B30))
    (function,) = (each for each in reader.read(tree.root).functions if each.driver == "dfl-pci")
    card = model.Card(functions=(function,))
    content = classes.by_name("fpga").edits(card, classes.Host.from_sysfs(tree.root))
    head = {"apiVersion": parameters.API_VERSION, "kind": parameters.KIND}
    decoded = parameters.decode(head | reported, parameters.Source.CLASS)
    edits = customisation.customise(content, decoded, first_interface=0)
    assert [node.path for node in edits.device_nodes] == paths


def test_interfaces_get_numbers_behind_their_prefix():
    interfaces = customise(first=3, network={"interfacePrefix": "data"}).net_devices
    assert [(interface.host_name, interface.name) for interface in interfaces] == [
        ("enp1", "data3"),
        ("enp2", "data4"),
    ]


@pytest.fixture
def network_card(tmp_path):
    """Return `network_card(device, prefix, share)`: a network card, as Prepare has it."""
    tree = SysfsTree.create(tmp_path / "sys", slots=1)
    mocked = MockDevice(
        device_class=DeviceClass.NIC, vendor=0x15B3, device=0x1021, serial="00-11-22-33-44-55-66-77"
    )
    function = reader.read_function(tree.root, tree.attach(1, mocked))
    card = model.Card(functions=(function,))
    (interface,) = function.net_interfaces

    def make_present_device(device, prefix=None, share=None, *, has_interface=True):
        reported = {"network": {"interfacePrefix": prefix}} if prefix else {}
        record = records.PreparedDevice(
            pool="p", device=device, cdi_id=f"x/y={device}", parameters=reported, share_id=share
        )
        host = classes.Host.from_sysfs(tree.root)
        shown = (
            card
            if has_interface
            else model.Card(functions=(msgspec.structs.replace(function, net_interfaces=()),))
        )
        return claimdevices.PresentDevice(
            record=record, card=shown, device_class=DeviceClass.NIC, claim_uid="u", host=host
        )

    assert interface
    return make_present_device


def test_no_two_interfaces_of_a_claim_get_the_same_name(network_card):
    devices = [
        network_card("c", "data"),
        network_card("b", "data"),
        network_card("a", "ctl"),
        network_card("d"),
        network_card("e", "data"),
    ]
    names = [
        [interface.name for interface in again.content().edits.net_devices]
        for again in claimdevices.number_interfaces(devices)
    ]
    plain = network_card("d").content().edits.net_devices[0].name
    assert names == [["data1"], ["data0"], ["ctl0"], [plain], ["data2"]]


def test_shares_of_one_device_are_one_device(network_card):
    devices = [network_card("a", "data", "s1"), network_card("a", "data", "s2"), network_card("b", "data")]
    assert [card.record.first_interface for card in claimdevices.number_interfaces(devices)] == [0, 0, 1]


def test_a_device_without_interfaces_takes_no_number(network_card):
    devices = [network_card("a", "data", has_interface=False), network_card("b", "data")]
    assert [card.record.first_interface for card in claimdevices.number_interfaces(devices)] == [0, 0]


def test_the_number_is_recorded(network_card):
    _, second = claimdevices.number_interfaces([network_card("a", "data"), network_card("b", "data")])
    claim = records.PreparedClaim(namespace="n", name="c", uid="u", state="started", devices=(second.record,))
    written = {"pool": "p", "device": "b", "cdiID": "x/y=b", "firstInterface": 1}
    expected = written | {"parameters": {"network": {"interfacePrefix": "data"}}}
    assert claim.document()["devices"] == [expected]
