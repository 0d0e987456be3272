"""The CDI device of one claim: its name, its variables, and what its class gives."""

import pytest

from drawbar.cdi import spec
from drawbar.driver.api import parameters
from drawbar.driver.node import classes, edits
from drawbar.driver.node.discovery import reader
from drawbar.driver.node.inventory import model
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks.sysfs import MockDevice, SysfsTree


@pytest.fixture
def card(tmp_path):
    tree = SysfsTree.create(tmp_path / "sys", slots=1)
    address = tree.attach(
        1, MockDevice(device_class=DeviceClass.NVME, vendor=0x144D, device=0xA824, serial="SN1")
    )
    return model.Card(functions=(reader.read_function(tree.root, address),))


def make_device(card, **changes):
    values = {
        "name": "nvme-0",
        "serial": "SN1",
        "device_class": "nvme",
        "card": card,
        "claim_uid": "u1",
        "host": classes.Host(),
        "device_parameters": parameters.NOTHING,
        "first_interface": 0,
    }
    return edits.device(**(values | changes))


def test_a_device_is_named_by_claim_and_device_and_named_to_the_container(card):
    device = make_device(card)
    assert device.name == "u1-nvme-0"
    assert device.edits.env == ("DRAWBAR_NVME_0_PCI_ADDRESS=0000:01:00.0", "DRAWBAR_NVME_0_SERIAL=SN1")
    assert "/dev/nvme0n1" in [node.path for node in device.edits.device_nodes]


def test_a_device_without_a_serial_number_has_no_variable_for_it(card):
    assert make_device(card, serial="").edits.env == ("DRAWBAR_NVME_0_PCI_ADDRESS=0000:01:00.0",)


def test_the_class_decides_the_device_nodes(card):
    assert make_device(card, device_class="gpu").edits.device_nodes == ()


def test_a_name_becomes_a_variable_that_every_shell_takes(card):
    assert make_device(card, name="gpu.0-b").edits.env[0].startswith("DRAWBAR_GPU_0_B_PCI_ADDRESS=")


def test_a_device_makes_a_valid_file(card):
    kind = edits.kind("drawbar.dev")
    assert (
        spec.Spec(kind=kind, devices=(make_device(card),)).qualify(make_device(card))
        == "drawbar.dev/device=u1-nvme-0"
    )
