"""A real NVIDIA H200 in a virtual machine, as `drawbar discover --record` saw it: recognition, health and device files."""

from pathlib import Path

import pytest

from drawbar.cdi import spec
from drawbar.driver.api import attachments, parameters
from drawbar.driver.node import classes, edits
from drawbar.driver.node.attachments import matching
from drawbar.driver.node.discovery import reader, slowreads
from drawbar.driver.node.health import readings
from drawbar.mocks.sysfs import load_recording

RECORDING = Path(__file__).parents[2] / "cases" / "kernels" / "kernel-6.18-h200"
GPU = "0000:00:06.0"
DSN, UUID = "fa-ce-00-00-00-00-00-01", "00000000-0000-4000-8000-000000000001"
MODEL = "10de:2335"


@pytest.fixture
def sysfs(tmp_path):
    load_recording(RECORDING, tmp_path / "sys")
    return tmp_path / "sys"


@pytest.fixture
def inventory(sysfs):
    slow = slowreads.SlowReads()
    reader.read(sysfs, slow)
    slow.wait(120)
    return reader.read(sysfs, slow)


def test_the_only_gpu_among_virtual_devices_is_found_with_its_identifiers(inventory):
    (gpu,) = [each for each in inventory.functions if each.device_class == "gpu"]
    assert (gpu.address, gpu.driver) == (GPU, "nvidia")
    assert {(each.kind, each.value) for each in gpu.identifiers} == {("pcie-dsn", DSN), ("gpu-uuid", UUID)}


@pytest.mark.parametrize(
    ("kind", "value"),
    [("gpu-uuid", f"GPU-{UUID}"), ("gpu-uuid", UUID.upper()), ("pcie-dsn", DSN.replace("-", "").upper())],
)
def test_a_manager_that_has_one_of_its_numbers_is_believed(inventory, kind, value):
    identity = attachments.Identity(
        device_class="gpu", identifiers=(attachments.DeviceIdentifier(kind=kind, value=value),), pci_id=MODEL
    )
    outcome = matching.match(inventory, identity)
    assert (outcome.by, outcome.card.address) == ("identifier", GPU)


def test_a_manager_with_only_the_serial_number_of_the_board_proves_and_denies_nothing(inventory):
    # The Device Serial Number that the card shows is another number, no contradiction.
    number = attachments.DeviceIdentifier(kind="board-serial", value="1650000000000")
    identity = attachments.Identity(device_class="gpu", identifiers=(number,), pci_id=MODEL)
    assert isinstance(matching.match(inventory, identity), matching.Absent)


def test_another_gpu_of_the_model_is_never_taken_for_it(inventory):
    number = attachments.DeviceIdentifier(kind="gpu-uuid", value="GPU-11111111-1111-4111-8111-111111111111")
    identity = attachments.Identity(device_class="gpu", identifiers=(number,), pci_id=MODEL)
    assert not isinstance(matching.match(inventory, identity), matching.Found)


def test_a_container_gets_the_file_of_this_gpu_and_no_other(sysfs, inventory):
    device = edits.device(
        name="gpu-1",
        serial=DSN,
        device_class="gpu",
        card=inventory.card_of(GPU),
        claim_uid="u1",
        host=classes.Host.from_sysfs(sysfs),
        device_parameters=parameters.NOTHING,
        first_interface=0,
    )
    (own,) = [node for node in device.edits.device_nodes if node.major is not None]
    assert own == spec.DeviceNode(
        path="/dev/nvidia0", type="c", major=195, minor=0, permissions=spec.READ_WRITE
    )


def test_it_is_well(sysfs, inventory):
    reading = readings.read(sysfs, inventory.card_of(GPU))
    assert (reading.asleep, reading.silent) == (False, ())
