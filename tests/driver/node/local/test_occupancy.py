"""What keeps the host's own disks and network cards out of the local pool."""

import errno
import os

import pytest
from tests.scenes import cards

from drawbar.driver.node.classes import users
from drawbar.driver.node.inventory import model
from drawbar.driver.node.local import pool
from drawbar.fabric.contract import DeviceClass

INITIAL = "pid:[4026531836]"


def function(address="0000:01:00.0", nodes=(), interfaces=()):
    return cards.function(address, DeviceClass.NVME, device_nodes=nodes, net_interfaces=interfaces)


def card(*functions):
    return model.Card(functions=functions)


DISK = model.DeviceNode(path="/dev/nvme0n1", major=259, minor=0, block=True, subsystem="block")
CONTROL = model.DeviceNode(path="/dev/nvme0", major=240, minor=0, block=False, subsystem="nvme")


@pytest.fixture
def host(tmp_path):
    """Return a host whose process namespace is the initial one, with one disk of one partition."""
    for name in ("self/ns", "1/ns"):
        (tmp_path / "proc" / name).mkdir(parents=True)
    (tmp_path / "proc/self/ns/pid").symlink_to(INITIAL)
    (tmp_path / "proc/1/ns/mnt").symlink_to("mnt:[1]")
    (tmp_path / "proc/1/mountinfo").write_text("")
    disk = tmp_path / "sys/class/block/nvme0n1"
    for name in ("holders", "nvme0n1p1/holders"):
        (disk / name).mkdir(parents=True)
    (disk / "nvme0n1p1/dev").write_text("259:1\n")
    (disk / "nvme0n1p1/partition").write_text("1\n")
    return users.Host(sysfs=tmp_path / "sys", proc=tmp_path / "proc", dev=tmp_path / "dev")


def find_host_uses(host, *cards, interfaces=lambda names: {}):
    return pool.find_host_uses(host, cards, interfaces)


def test_a_disk_that_nothing_uses_is_free(host):
    assert find_host_uses(host, card(function(nodes=(CONTROL, DISK)))) == {}


def test_a_mounted_partition_of_a_disk_is_found_through_every_mount_namespace(host):
    (host.proc / "77/ns").mkdir(parents=True)
    (host.proc / "77/ns/mnt").symlink_to("mnt:[2]")
    (host.proc / "77/mountinfo").write_text("1 0 259:1 / /boot rw - vfat /dev/nvme0n1p1 rw\n")
    reasons = find_host_uses(host, card(function(nodes=(DISK,))))
    assert "mounted at /boot" in reasons["0000:01:00.0"]


def test_swap_on_a_partition_is_found(host):
    (host.proc / "swaps").write_text("Filename\tType\n/dev/nvme0n1p1 partition 1 0 -2\n")
    assert "used as swap" in find_host_uses(host, card(function(nodes=(DISK,))))["0000:01:00.0"]


def test_a_holder_of_a_partition_is_found(host):
    (host.sysfs / "class/block/nvme0n1/nvme0n1p1/holders/dm-0").mkdir()
    assert "part of dm-0" in find_host_uses(host, card(function(nodes=(DISK,))))["0000:01:00.0"]


@pytest.mark.parametrize(("number", "is_used"), [(errno.EBUSY, True), (errno.EPERM, False)])
def test_a_disk_that_the_kernel_refuses_to_an_exclusive_open_is_in_use(host, monkeypatch, number, is_used):
    opened = os.open

    def refuse(path, flags, *arguments, **options):
        if path == host.dev / "nvme0n1" and flags & os.O_EXCL:
            raise OSError(number, os.strerror(number))
        return opened(path, flags, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    reasons = find_host_uses(host, card(function(nodes=(CONTROL, DISK))))
    assert ("ZFS" in reasons.get("0000:01:00.0", "")) == is_used


def test_where_the_hosts_mounts_cannot_be_seen_every_disk_counts_as_used(host):
    (host.proc / "self/ns/pid").unlink()
    reasons = find_host_uses(host, card(function(nodes=(DISK,))))
    assert "whether the host uses its disk" in reasons["0000:01:00.0"]
    assert find_host_uses(host, card(function(nodes=(CONTROL,)))) == {}


def test_an_interface_with_an_address_keeps_its_whole_card(host):
    nic = card(function(interfaces=("eth0",)), function("0000:01:00.1", interfaces=("eth1",)))
    other = card(function("0000:02:00.0", interfaces=("eth2",)))
    reasons = find_host_uses(
        host,
        nic,
        other,
        interfaces=lambda names: {name: "has the address 192.0.2.1" for name in names if name == "eth1"},
    )
    assert reasons == {"0000:01:00.0": "network interface eth1 has the address 192.0.2.1"}


def test_where_addresses_are_unknown_every_network_card_counts_as_used(host):
    reasons = find_host_uses(host, card(function(interfaces=("eth0",))), interfaces=lambda names: None)
    assert "whether its network interfaces are in use" in reasons["0000:01:00.0"]


def test_addresses_are_not_read_where_there_is_no_network_card(host):
    def fail_if_called(names):
        raise AssertionError("no card has a network interface")

    assert find_host_uses(host, card(function()), interfaces=fail_if_called) == {}
