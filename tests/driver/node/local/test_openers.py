"""Which cards a process of the host has open, in a mocked /proc with real device files' numbers."""

import os
from pathlib import Path

import msgspec
import pytest
from tests.scenes import cards

from drawbar.driver.node.classes import users
from drawbar.driver.node.inventory import model
from drawbar.driver.node.local import openers
from drawbar.fabric.classes import DeviceClass

INITIAL = "pid:[4026531836]"


def node(path):
    """Return a character device that exists on every machine, under another path."""
    number = Path("/dev/null" if path == "/dev/dri/renderD128" else "/dev/zero").stat().st_rdev
    return model.DeviceNode(
        path=path, major=os.major(number), minor=os.minor(number), block=False, subsystem="drm"
    )


RENDER, OTHER = node("/dev/dri/renderD128"), node("/dev/dri/renderD129")


def card(address, *nodes, device_class=DeviceClass.GPU):
    return model.Card(functions=(cards.function(address, device_class, device_nodes=nodes),))


KFD = msgspec.structs.replace(RENDER, path="/dev/kfd")
FIRST, SECOND = card("0000:3b:00.0", RENDER), card("0000:3c:00.0", OTHER)


@pytest.fixture
def host(tmp_path):
    """Return a host that shows its processes; no process has a device open."""
    proc = tmp_path / "proc"
    (proc / "self/ns").mkdir(parents=True)
    (proc / "self/ns/pid").symlink_to(INITIAL)
    (proc / "1").mkdir()
    (proc / "1/comm").write_text("systemd\n")
    return users.Host(sysfs=tmp_path / "sys", proc=proc, dev=tmp_path / "dev")


def run(host, pid, name, path):
    """Let a process have the device file of that number open."""
    folder = host.proc / str(pid) / "fd"
    folder.mkdir(parents=True)
    (folder.parent / "comm").write_text(f"{name}\n")
    (folder / "7").symlink_to(path)


def test_the_card_of_an_open_file_is_named_with_the_process(host):
    assert openers.find_openers(host, [FIRST, SECOND]) == {}
    run(host, 812, "Xorg", "/dev/null")
    opened = openers.find_openers(host, [FIRST, SECOND])
    assert opened == {"0000:3b:00.0": "pid 812 (Xorg) has /dev/dri/renderD128 open"}


@pytest.mark.parametrize("device_class", list(DeviceClass))
def test_the_class_of_the_card_does_not_matter(host, device_class):
    run(host, 812, "user", "/dev/null")
    assert openers.find_openers(host, [card("0000:3b:00.0", RENDER, device_class=device_class)])


@pytest.mark.parametrize("name", ["nvidia-persiste", "nv-hostengine", "drawbar"])
def test_a_monitor_of_the_vendor_is_no_user(host, name):
    run(host, 812, name, "/dev/null")
    assert openers.find_openers(host, [FIRST]) == {}


def nvidia(address, *nodes):
    """Return a card bound to NVIDIA's driver, which shows these device files."""
    function = cards.function(address, DeviceClass.GPU, driver="nvidia", device_nodes=nodes)
    return model.Card(functions=(function,))


def test_a_program_that_computes_on_a_gpu_of_nvidia_has_it(host):
    # The number of a file that exists wherever the tests run: /dev/null is 1:3, and the GPU would be 195:3.
    shown = msgspec.structs.replace(RENDER, path="/dev/nvidia3", subsystem="nvidia")
    used = nvidia("0000:3b:00.0", shown)
    free = nvidia("0000:3c:00.0", msgspec.structs.replace(shown, path="/dev/nvidia4", minor=4))
    assert openers.find_openers(host, [used, free]) == {}
    run(host, 812, "python3", "/dev/null")
    opened = openers.find_openers(host, [used, free])
    assert opened == {"0000:3b:00.0": "pid 812 (python3) has /dev/nvidia3 open"}


def test_a_gpu_whose_file_nvidias_driver_does_not_show_may_be_in_use(host):
    opened = openers.find_openers(host, [nvidia("0000:3b:00.0", RENDER), SECOND])
    assert list(opened) == ["0000:3b:00.0"]
    assert "/proc/driver/nvidia" in opened["0000:3b:00.0"]


@pytest.mark.parametrize(
    "listed",
    [
        pytest.param([FIRST, card("0000:3d:00.0", RENDER)], id="several-cards-have-it"),
        pytest.param([card("0000:3b:00.0", KFD)], id="kfd"),
    ],
)
def test_a_file_of_a_whole_driver_shows_nothing_about_one_card(host, listed):
    run(host, 812, "rocm", "/dev/null")
    assert openers.find_openers(host, listed) == {}


def test_a_daemon_that_sees_its_own_pod_alone_cannot_tell(host):
    (host.proc / "self/ns/pid").unlink()
    (host.proc / "self/ns/pid").symlink_to("pid:[4026532000]")
    (host.proc / "1/comm").write_text("pause\n")
    opened = openers.find_openers(host, [FIRST, card("0000:3e:00.0")])
    assert list(opened) == ["0000:3b:00.0"]
    assert "hostPID: true" in opened["0000:3b:00.0"]


def test_a_host_without_processes_is_a_mocked_one(tmp_path):
    nothing = users.Host(sysfs=tmp_path, proc=tmp_path / "none", dev=tmp_path)
    assert openers.find_openers(nothing, [FIRST]) == {}
