"""Device files that hang on the driver of a function, whatever class its card is of."""

import os

import pytest
from tests.scenes import cards

from drawbar.driver.node import classes
from drawbar.driver.node.classes import driverfiles
from drawbar.driver.node.inventory import model, nvidia
from drawbar.fabric.contract import OFFERED_CLASSES, DeviceClass
from drawbar.fabric.witnesses import Kind

ADDRESS = "0000:01:00.0"
NVIDIA_3 = nvidia.device_nodes("Model: \t H100\nDevice Minor: \t 3\n")


@pytest.fixture
def host(tmp_path):
    return classes.Host.from_sysfs(tmp_path / "sys")


def put(host, *names):
    for name in names:
        path = host.dev / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def card(driver, device_class=DeviceClass.GPU, **fields):
    return model.Card(functions=(cards.function(ADDRESS, device_class, driver=driver, **fields),))


def paths(seen, host, device_class):
    return [node.path for node in classes.by_name(device_class).edits(seen, host).device_nodes]


@pytest.mark.parametrize("device_class", OFFERED_CLASSES)
def test_the_files_of_nvidias_driver_go_with_the_driver_in_every_class(host, device_class):
    put(host, "nvidia3", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "nvidia0")
    assert paths(card("nvidia", device_nodes=NVIDIA_3), host, device_class) == [
        *("/dev/nvidia3", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
    ]


@pytest.mark.parametrize("device_class", OFFERED_CLASSES)
def test_the_file_of_kfd_goes_with_amds_driver_in_every_class(host, device_class):
    put(host, "kfd")
    assert paths(card("amdgpu"), host, device_class) == ["/dev/kfd"]
    assert paths(card("xe"), host, device_class) == []


def test_a_card_with_rdma_gets_the_connection_manager(host):
    verbs = model.DeviceNode(
        path="/dev/infiniband/uverbs0", major=231, minor=192, block=False, subsystem="infiniband_verbs"
    )
    put(host, "infiniband/rdma_cm")
    seen = card("mlx5_core", DeviceClass.NIC, device_nodes=(verbs,))
    assert paths(seen, host, "nic") == ["/dev/infiniband/uverbs0", "/dev/infiniband/rdma_cm"]


def test_shared_files_are_left_to_the_runtime_to_look_up(host):
    put(host, "kfd")
    [node] = driverfiles.find_shared(card("amdgpu"), host)
    assert (node.path, node.major, node.minor) == ("/dev/kfd", None, None)


def test_a_file_of_nvidias_driver_that_is_not_there_is_missed_with_the_remedy(host):
    put(host, "nvidia0", "nvidiactl")
    seen = card("nvidia", device_nodes=NVIDIA_3)
    assert driverfiles.find_missing(seen, host) == (
        "its driver nvidia has it as /dev/nvidia3, which is not there; run nvidia-modprobe -u -c 3"
    )
    put(host, "nvidia3")
    assert driverfiles.find_missing(seen, host) is None
    assert driverfiles.find_missing(card("amdgpu"), host) is None


@pytest.mark.parametrize(
    ("has_file", "nodes", "is_missing"),
    [
        pytest.param(True, (), True, id="the-driver-does-not-answer"),
        pytest.param(True, NVIDIA_3, False, id="the-driver-shows-a-number"),
        pytest.param(False, (), False, id="no-file-of-the-driver"),
    ],
)
def test_a_gpu_whose_device_file_nvidias_driver_does_not_show_is_not_ready(host, has_file, nodes, is_missing):
    information = host.proc / "driver/nvidia/gpus" / ADDRESS / "information"
    information.parent.mkdir(parents=True)
    if has_file:
        os.mkfifo(information)  # a read would never end
    put(host, "nvidia3")
    unread = ((Kind.GPU_UUID, model.Silence.NOT_INITIALISED),)
    missing = driverfiles.find_missing(card("nvidia", device_nodes=nodes, unread=unread), host)
    assert (missing is not None and "NVRM" in missing) == is_missing
