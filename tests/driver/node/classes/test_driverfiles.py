"""Device files that hang on the driver of a function, whatever class its card is of."""

import pytest
from tests.scenes import cards

from drawbar.driver.node import classes
from drawbar.driver.node.classes import driverfiles
from drawbar.driver.node.inventory import model
from drawbar.fabric.contract import OFFERED_CLASSES, DeviceClass

ADDRESS = "0000:01:00.0"


@pytest.fixture
def host(tmp_path):
    return classes.Host.from_sysfs(tmp_path / "sys")


def put(host, *names):
    for name in names:
        path = host.dev / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def informed(host, text="Model: \t H100\nDevice Minor: \t 3\n"):
    """Have NVIDIA's driver tell of the GPU."""
    folder = host.proc / "driver/nvidia/gpus" / ADDRESS
    folder.mkdir(parents=True)
    (folder / "information").write_text(text)


def card(driver, device_class=DeviceClass.GPU, **fields):
    return model.Card(functions=(cards.function(ADDRESS, device_class, driver=driver, **fields),))


def paths(seen, host, device_class):
    return [node.path for node in classes.by_name(device_class).edits(seen, host).device_nodes]


@pytest.mark.parametrize("device_class", OFFERED_CLASSES)
def test_the_files_of_nvidias_driver_go_with_the_driver_in_every_class(host, device_class):
    informed(host)
    put(host, "nvidia3", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "nvidia0")
    assert paths(card("nvidia"), host, device_class) == [
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
    informed(host)
    put(host, "nvidia0", "nvidiactl")
    assert driverfiles.find_missing(card("nvidia"), host) == (
        "its driver nvidia has it as /dev/nvidia3, which is not there; run nvidia-modprobe -u -c 3"
    )
    put(host, "nvidia3")
    assert driverfiles.find_missing(card("nvidia"), host) is None
    assert driverfiles.find_missing(card("amdgpu"), host) is None
