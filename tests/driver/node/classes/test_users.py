"""Who uses a device: open files, mounts, swap, holders, vfio, and a bitstream that is being loaded."""

import asyncio
import os
import stat
import sys

import msgspec
import pytest
from tests.scenes import waiting

from drawbar.driver.node import classes
from drawbar.driver.node.classes import users
from drawbar.driver.node.discovery import reader
from drawbar.driver.node.inventory import model
from drawbar.driver.node.treatment import plan
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks.sysfs import MockDevice, SysfsTree

NULL = model.DeviceNode(path="/dev/nvidia0", major=1, minor=3, block=False, subsystem="nvidia")

GROUP = msgspec.structs.replace(NULL, path="/dev/vfio/17", subsystem="vfio")


class Host:
    """A disk on a mocked host, and the processes and tables of its proc."""

    def __init__(self, path, mock):
        self.tree = SysfsTree.create(path / "sys", slots=1)
        self.address = self.tree.attach(1, mock)
        self.proc = path / "proc"
        self.proc.mkdir()
        self.host = classes.Host.from_sysfs(self.tree.root)
        self.device_class = mock.device_class

    def card(self, **changes):
        function = reader.read_function(self.tree.root, self.address)
        return model.Card(functions=(msgspec.structs.replace(function, **changes),))

    def process(self, pid, name="worker", *, opened=(), namespace="mnt:[1]", mounts=""):
        folder = self.proc / str(pid)
        (folder / "fd").mkdir(parents=True)
        (folder / "ns").mkdir()
        (folder / "comm").write_text(name + "\n")
        (folder / "mountinfo").write_text(mounts)
        (folder / "ns/mnt").symlink_to(namespace)
        for number, target in enumerate(opened):
            (folder / f"fd/{number}").symlink_to(target)

    def current_users(self, **changes):
        return plan.message(classes.by_name(self.device_class).current_users(self.host, self.card(**changes)))


@pytest.fixture
def disk(tmp_path):
    host = Host(tmp_path, MockDevice(device_class=DeviceClass.NVME, vendor=1, device=2, serial="SN1"))
    partition = host.tree.root / "class/block/nvme0n1/nvme0n1p1"
    partition.mkdir()
    (partition / "partition").write_text("1\n")
    (partition / "dev").write_text("259:7\n")
    return host


@pytest.fixture
def gpu(tmp_path):
    return Host(tmp_path, MockDevice(device_class=DeviceClass.GPU, vendor=0x1002, device=2))


@pytest.fixture
def fpga(tmp_path):
    return Host(tmp_path, MockDevice(device_class=DeviceClass.FPGA, vendor=0x10EE, device=2))


def mount(number="259:0", point="/data", kind="xfs", source="/dev/nvme0n1"):
    return f"36 35 {number} / {point} rw,noatime shared:1 master:2 - {kind} {source} rw,errors=continue\n"


def test_an_unused_device_has_no_users(disk):
    disk.process(
        1, opened=("/dev/zero", "socket:[1]", "/etc/passwd"), mounts=mount("8:1", source="/dev/sda1")
    )
    assert disk.current_users() == ""


def test_a_process_that_has_a_device_file_open_is_named(gpu):
    gpu.process(4711, "python", opened=("/dev/null", "/dev/null"))
    assert gpu.current_users(device_nodes=(NULL,)) == "held by pid 4711 (python), /dev/nvidia0"


def test_a_device_file_counts_by_its_number_and_not_by_its_name(gpu, tmp_path):
    other = tmp_path / "elsewhere" / "nvidia0"
    other.parent.mkdir()
    other.symlink_to("/dev/null")
    gpu.process(1, opened=(other,))
    gpu.process(2, opened=("/dev/zero",))
    assert gpu.current_users(device_nodes=(NULL,)) == "held by pid 1 (worker), /dev/nvidia0"
    assert gpu.current_users(device_nodes=(msgspec.structs.replace(NULL, block=True),)) == ""


@pytest.mark.tool("root")
def test_a_block_device_is_no_character_device_of_the_same_number(gpu, tmp_path):
    disk = tmp_path / "disk"
    os.mknod(disk, 0o600 | stat.S_IFBLK, os.makedev(1, 3))
    gpu.process(3, opened=(disk,))
    wanted = msgspec.structs.replace(NULL, path=str(disk))
    assert gpu.current_users(device_nodes=(wanted,)) == ""
    assert "pid 3" in gpu.current_users(device_nodes=(msgspec.structs.replace(wanted, block=True),))


def test_we_ourselves_do_not_count(gpu):
    gpu.process(os.getpid(), opened=("/dev/null",))
    assert gpu.current_users(device_nodes=(NULL,)) == ""


def test_a_process_that_goes_while_it_is_looked_at_does_not_count(gpu):
    gpu.process(7, opened=("/dev/gone-by-now",))
    (gpu.proc / "8").mkdir()
    (gpu.proc / "self").symlink_to("7")
    assert gpu.current_users(device_nodes=(NULL,)) == ""


# Its first thread ends, and another one still has a file open, as after a kill during a hanging call.
HALF_DEAD = """
import ctypes, platform, threading
opened = open('/dev/null')
threading.Thread(target=threading.Event().wait).start()
print('ready', flush=True)
ctypes.CDLL(None).syscall({'x86_64': 60, 'aarch64': 93}[platform.machine()], 0)
"""


async def test_a_killed_process_whose_thread_hangs_in_a_call_is_a_user(tmp_path):
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HALF_DEAD, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert await process.stdout.readline() == b"ready\n"
        shown = tmp_path / str(process.pid)
        shown.symlink_to(f"/proc/{process.pid}")
        await waiting.eventually(lambda: not list((shown / "fd").iterdir()))
        (opener,) = users.find_openers(tmp_path, users.index_nodes([NULL]))
        assert opener.startswith(f"held by pid {process.pid} ")
    finally:
        process.kill()
        await process.wait()


def test_a_mount_of_a_killed_process_whose_thread_hangs_counts(disk):
    disk.process(7)
    (disk.proc / "7/ns/mnt").unlink()
    (disk.proc / "7/task").mkdir()
    disk.process("7/task/8", namespace="mnt:[2]", mounts=mount())
    assert disk.current_users() == "mounted at /data, /dev/nvme0n1"


def test_the_search_ends_when_enough_was_found(gpu):
    for pid in range(1, users.FOUND_MAX + 5):
        gpu.process(pid, opened=("/dev/null",))
    openers = users.find_openers(gpu.proc, users.index_nodes((NULL,)))
    assert len(openers) == users.FOUND_MAX
    assert plan.message(openers).endswith("; and 12 more")


@pytest.mark.parametrize(
    ("line", "reported"),
    [
        (mount(), "mounted at /data, /dev/nvme0n1"),
        (mount("259:7", source="/dev/nvme0n1p1"), "mounted at /data, /dev/nvme0n1p1"),
        (mount("0:55", kind="btrfs", source="/dev/nvme0n1p1"), "mounted at /data, /dev/nvme0n1p1"),
        (mount(point="/my\\040data"), "mounted at /my data, /dev/nvme0n1"),
        (mount("259:1", source="/dev/nvme1n1"), ""),
        ("nonsense\n", ""),
    ],
    ids=["disk", "partition", "btrfs", "blank", "another", "nonsense"],
)
def test_a_mount_counts_in_any_namespace(disk, line, reported):
    disk.process(1, namespace="mnt:[1]")
    disk.process(2, namespace="mnt:[2]", mounts=line)
    assert disk.current_users() == reported


def test_a_mount_namespace_is_looked_at_once(disk):
    disk.process(1, mounts="")
    disk.process(2, mounts=mount())
    assert disk.current_users() == ""


def test_swap_counts(disk):
    table = "Filename\t\t\tType\t\tSize\n/dev/nvme0n1p1                  partition\t1\n"
    (disk.proc / "swaps").write_text(table)
    assert disk.current_users() == "used as swap, /dev/nvme0n1p1"


@pytest.mark.parametrize("device_path", ["nvme0n1", "nvme0n1/nvme0n1p1"])
def test_holders_of_a_disk_or_partition_count_as_users(disk, device_path):
    (disk.tree.root / f"class/block/{device_path}/holders/dm-3").mkdir(parents=True)
    assert disk.current_users() == f"part of dm-3, /dev/{device_path.rpartition('/')[2]}"


@pytest.mark.tool("root")
def test_a_process_that_has_a_partition_open_without_a_mount_counts(disk, tmp_path):
    partition = tmp_path / "nvme0n1p1"
    os.mknod(partition, 0o600 | stat.S_IFBLK, os.makedev(259, 7))
    disk.process(4, "ora_dbw0", opened=(partition,))
    assert disk.current_users() == "held by pid 4 (ora_dbw0), /dev/nvme0n1p1"


def test_a_file_system_over_several_disks_counts(disk):
    (disk.tree.root / "fs/btrfs/6f1c/devices/nvme0n1p1").mkdir(parents=True)
    assert disk.current_users() == "part of the mounted btrfs 6f1c, /dev/nvme0n1p1"


def test_a_group_that_vfio_gave_away_counts(gpu):
    gpu.process(9, "qemu-system-x86", opened=("/dev/null",))
    assert (
        gpu.current_users(driver="vfio-pci", device_nodes=(GROUP,))
        == "held by pid 9 (qemu-system-x86), /dev/vfio/17"
    )


def test_a_gpu_of_nvidia_is_used_by_a_process_that_has_its_own_file_open(tmp_path):
    host = Host(tmp_path, MockDevice(device_class=DeviceClass.GPU, vendor=0x10DE, device=2))
    folder = host.proc / "driver/nvidia/gpus" / host.address
    folder.mkdir(parents=True)
    (folder / "information").write_text("Device Minor: \t 3\n")
    nodes = classes.by_name("gpu").edits(host.card(), host.host).device_nodes
    assert "/dev/nvidia3" in [node.path for node in nodes]
    host.process(5, "nvidia-persistenced", opened=("/dev/null",))
    assert host.current_users(device_nodes=()) == ""  # /dev/null is not 195:3


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("nvidia-persiste", ": run nvidia-smi -i {address} -pm 0"),
        ("nvidia-cuda-mps", ": run echo quit | nvidia-cuda-mps-control"),
        ("dcgm-exporter", ": leave {address} out of its GPUs, or restart it when no pod has the GPU"),
        ("python", ""),
    ],
)
def test_a_remedy_for_a_vendors_daemon_is_named(gpu, name, remedy):
    gpu.process(9, name, opened=("/dev/null",))
    assert (
        gpu.current_users(driver="vfio-pci", device_nodes=(GROUP,))
        == f"held by pid 9 ({name}), /dev/vfio/17{remedy.format(address=gpu.address)}"
    )


@pytest.mark.parametrize(
    ("state", "loading"), [("write", True), ("write init error", False), ("operating", False)]
)
def test_a_bitstream_that_is_being_loaded_counts(fpga, state, loading):
    manager = next((fpga.tree.root / "class/fpga_manager").iterdir())
    (manager / "state").write_text(state + "\n")
    reported = f"a bitstream is being loaded ({state}), fpga0"
    assert fpga.current_users() == (reported if loading else "")


@pytest.mark.parametrize(
    ("namespace", "first", "own", "blind"),
    [
        ("pid:[4026531836]", "systemd", "77", None),
        ("pid:[4026532001]", "systemd", "77", None),
        ("pid:[4026532001]", "drawbar", "1", "hostPID: true"),
        ("pid:[4026532001]", "pause", "7", "hostPID: true"),
        (None, None, None, "shows no processes"),
    ],
    ids=["host", "host in a container", "alone", "shared by the pod", "no proc"],
)
def test_it_is_reported_when_the_hosts_processes_cannot_be_seen(tmp_path, namespace, first, own, blind):
    if namespace is not None:
        (tmp_path / own / "ns").mkdir(parents=True)
        (tmp_path / own / "ns/pid").symlink_to(namespace)
        (tmp_path / "self").symlink_to(own)
        (tmp_path / "1").mkdir(exist_ok=True)
        (tmp_path / "1/comm").write_text(first + "\n")
    reported = users.blindness(tmp_path)
    assert reported is None if blind is None else blind in reported


def test_many_users_are_named_up_to_a_number():
    processes = [f"u{number}" for number in range(6)]
    assert plan.message([*processes, processes[0]]) == "u0; u1; u2; u3; and 2 more"
