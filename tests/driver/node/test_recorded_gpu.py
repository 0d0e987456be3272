"""A real NVIDIA H200 in a virtual machine, as `drawbar discover --record` saw it: recognition, health, device files and CDI."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from drawbar.cdi import files, spec
from drawbar.driver.api import attachments, parameters
from drawbar.driver.node import classes, edits
from drawbar.driver.node.attachments import matching
from drawbar.driver.node.discovery import reader, slowreads
from drawbar.driver.node.health import readings
from drawbar.driver.node.plugin import servicers
from drawbar.mocks.kubelet import runtime
from drawbar.mocks.sysfs import load_recording

RECORDING = Path(__file__).parents[2] / "cases" / "kernels" / "kernel-6.18-h200"
GPU = "0000:00:06.0"
DSN, UUID = "fa-ce-00-00-00-00-00-01", "00000000-0000-4000-8000-000000000001"
MODEL = "10de:2335"
VENDOR_KIND = "nvidia.com/gpu"
SHARED = frozenset({"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"})


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


def describe(sysfs, inventory, device_parameters=parameters.NOTHING):
    return edits.device(
        name="gpu-1",
        serial=DSN,
        device_class="gpu",
        card=inventory.card_of(GPU),
        claim_uid="u1",
        host=classes.Host.from_sysfs(sysfs),
        device_parameters=device_parameters,
        first_interface=0,
    )


def test_a_container_gets_the_file_of_this_gpu_and_no_other(sysfs, inventory):
    device = describe(sysfs, inventory)
    (own,) = [node for node in device.edits.device_nodes if node.major is not None]
    assert own == spec.DeviceNode(
        path="/dev/nvidia0", type="c", major=195, minor=0, permissions=spec.READ_WRITE
    )


def test_it_is_well(sysfs, inventory):
    reading = readings.read(sysfs, inventory.card_of(GPU))
    assert (reading.asleep, reading.silent) == (False, ())


def test_nvidias_container_runtime_adds_no_other_gpu(sysfs, inventory):
    # As in an image with CUDA.
    container = {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
    own = describe(sysfs, inventory)
    content = spec.Spec(kind="drawbar.dev/device", devices=(own,))
    files.write(sysfs.parent / "cdi" / "drawbar.dev-u1.json", content)
    made = runtime.create(
        container, [content.qualify(own)], directories=[sysfs.parent / "cdi"], check_device_nodes=False
    )
    shown = [entry for entry in made["process"]["env"] if entry.startswith("NVIDIA_")]
    assert shown == ["NVIDIA_VISIBLE_DEVICES=void"]


def find_vendor_id(sysfs, inventory, folder):
    names = classes.by_name("gpu").names(inventory.card_of(GPU), classes.Host.from_sysfs(sysfs))
    return files.find([folder], VENDOR_KIND, names=names, own=frozenset({"/dev/nvidia0"}), common=SHARED)


@pytest.mark.parametrize(
    ("listed", "found"),
    [
        (("0", f"GPU-{UUID}", "all"), f"GPU-{UUID}"),
        (("0", "all"), "0"),
        (("all",), None),
    ],
    ids=["all names", "by number", "only all"],
)
def test_the_file_of_nvidia_ctk_lists_the_gpu(sysfs, inventory, tmp_path, listed, found):
    content = yaml.safe_load((RECORDING / "nvidia.yaml").read_text())
    content["devices"] = [device for device in content["devices"] if device["name"] in listed]
    (tmp_path / "cdi").mkdir()
    (tmp_path / "cdi" / "nvidia.json").write_text(json.dumps(content))
    wanted = None if found is None else f"{VENDOR_KIND}={found}"
    assert find_vendor_id(sysfs, inventory, tmp_path / "cdi") == wanted


def test_a_container_gets_nvidias_libraries_and_its_own_claims_device_files(sysfs, inventory, tmp_path):
    own = describe(
        sysfs,
        inventory,
        parameters.DeviceParameters(device_files=parameters.DeviceFiles(group=44, mode="0660")),
    )
    content = spec.Spec(kind="drawbar.dev/device", devices=(own,))
    files.write(tmp_path / "cdi" / "drawbar.dev-u1.json", content)
    shutil.copy(RECORDING / "nvidia.yaml", tmp_path / "cdi")
    prepared = servicers.Prepared(
        requests=("gpu",),
        pool="node-1",
        device="gpu-1",
        cdi_id=content.qualify(own),
        vendor_id=find_vendor_id(sysfs, inventory, tmp_path / "cdi"),
    )
    container = runtime.create({}, prepared.cdi_ids, directories=[tmp_path / "cdi"], check_device_nodes=False)
    assert len(container["mounts"]) == 35
    assert len(container["hooks"]["createContainer"]) == 6
    assert {"NVIDIA_VISIBLE_DEVICES=void", f"DRAWBAR_GPU_1_PCI_ADDRESS={GPU}"} < set(
        container["process"]["env"]
    )
    by_path = {node["path"]: node for node in container["linux"]["devices"]}
    assert by_path.keys() == {"/dev/nvidia0", *SHARED}
    assert (by_path["/dev/nvidia0"]["gid"], by_path["/dev/nvidia0"]["fileMode"]) == (44, 0o660)
