"""The kernel's own event path, pyudev and libudev included, on a host that umockdev makes up.

Debian's package umockdev, which needs libumockdev0, libglib2.0-0 and libpcap0.8, brings the wrapper and libraries. umockdev preloads a library that
sends everything in /sys to its testbed and feeds netlink sockets, so the scene below runs in a process of its own; it
prints what the node's devices were at each step.
"""

import asyncio
import ctypes
import ctypes.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

PORT = "/devices/pci0000:00/0000:00:03.0"
DISK = f"{PORT}/0000:01:00.0"
PORT_RECORD = f"""P: {PORT}
E: SUBSYSTEM=pci
E: DRIVER=pcieport
E: PCI_CLASS=60400
E: PCI_ID=1B36:000C
E: PCI_SUBSYS_ID=0000:0000
E: PCI_SLOT_NAME=0000:00:03.0
A: secondary_bus_number=1
"""
DISK_RECORD = f"""P: {DISK}
E: SUBSYSTEM=pci
E: DRIVER=nvme
E: PCI_CLASS=10802
E: PCI_ID=144D:A80A
E: PCI_SUBSYS_ID=144D:A801
E: PCI_SLOT_NAME=0000:01:00.0
A: numa_node=1
A: current_link_speed=16.0 GT/s PCIe
A: current_link_width=4
"""
CONTROLLER_RECORD = f"""P: {DISK}/nvme/nvme0
N: nvme0
E: SUBSYSTEM=nvme
E: DEVNAME=/dev/nvme0
E: MAJOR=246
E: MINOR=0
A: dev=246:0
A: serial=S4EVNX0
A: model=Drawbar
A: firmware_rev=1.0
A: state=live
"""


class Testbed:
    """umockdev's testbed, over its C API."""

    __test__ = False

    def __init__(self):
        self._library = ctypes.CDLL("libumockdev.so.0")
        self._library.umockdev_testbed_new.restype = ctypes.c_void_p
        self._bed = ctypes.c_void_p(self._library.umockdev_testbed_new())

    def add(self, record):
        """Make a device from a record in umockdev's format, and send its uevent."""
        error = ctypes.c_void_p()
        added = self._library.umockdev_testbed_add_from_string(
            self._bed, record.encode() + b"\n", ctypes.byref(error)
        )
        assert added, record

    def send(self, devpath, action):
        """Send a uevent."""
        self._library.umockdev_testbed_uevent(self._bed, f"/sys{devpath}".encode(), action.encode())

    def remove(self, devpath):
        """Send the uevent of a device's removal, and remove it."""
        self.send(devpath, "remove")
        self._library.umockdev_testbed_remove_device(self._bed, f"/sys{devpath}".encode())


async def scene():
    """Put a disk in and take it out; return the recorded steps."""
    from drawbar.driver.node import uevents
    from drawbar.driver.node.discovery import devices

    bed = Testbed()
    bed.add(PORT_RECORD)
    tracker = devices.Devices(
        Path("/sys"), settings=devices.Tracking(audit_seconds=0), pauses_seconds=(0.05,)
    )
    changed = asyncio.Event()
    tracker.subscribe(lambda _: changed.set())
    steps = []

    async def until(holds):
        async with asyncio.timeout(120):
            while not holds(tracker.card_at("0000:01:00.0")):
                changed.clear()
                await changed.wait()
        card = tracker.card_at("0000:01:00.0")
        nodes = [] if card is None else [node.path for node in card.device_nodes]
        steps.append({"present": card is not None, "serial": card and card.serial, "nodes": nodes})

    async with uevents.listening(uevents.KERNEL) as source, asyncio.TaskGroup() as tasks:
        await tracker.read()
        steps.append([function.address for function in tracker.inventory.functions])
        following = tasks.create_task(tracker.follow(source))
        bed.add(DISK_RECORD)
        bed.send(DISK, "add")
        await until(lambda card: card is not None)
        bed.add(CONTROLLER_RECORD)
        bed.send(f"{DISK}/nvme/nvme0", "add")
        await until(lambda card: card is not None and card.device_nodes and card.serial)
        bed.remove(f"{DISK}/nvme/nvme0")
        bed.remove(DISK)
        await until(lambda card: card is None)
        following.cancel()
    return steps


@pytest.mark.tool("umockdev")
def test_the_kernels_events_and_tree_as_libudev_sees_them_keep_the_devices_current():
    command = ["umockdev-wrapper", sys.executable, __file__]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == [
        ["0000:00:03.0"],
        {"present": True, "serial": None, "nodes": []},
        {"present": True, "serial": "S4EVNX0", "nodes": ["/dev/nvme0"]},
        {"present": False, "serial": None, "nodes": []},
    ]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(scene())))
