"""The mocked sysfs against the kernel: the same card put in and taken out, the same events, the same files.

These tests leave out what the mock leaves out by its documentation (`drawbar.mocks.sysfs.cards`). If they find a difference,
correct the mock, or add the difference to this list. The kernel is Debian's Linux 6.1 in QEMU 7.2.

- End of a power-off: `write` returns after 1 s with `power` 0, and QEMU takes the card out a moment later. In the layout
  `lab` of the mock the card goes after 50 ms. Other layouts leave it in, as hardware does.
- Attention button: functions go after 5 s with `remove` events, then the power. The mock has no button.
- Reading `remove` or `delete_region` is EACCES, in the mock not for root.
- Persistent memory makes `nvdimm-bridge0`, `pmem0`, `ndbus0`, `nmem0` and `/dev/nmem0`; the mock makes no namespaces and labels.
- The dax device of persistent memory is below the nd bus, and only its address range tells its owner. The mock has none.
- An endpoint has four decoders in QEMU 10.0 with Linux 6.12, and one in the mock.
"""

import asyncio
import contextlib
import itertools
import json
import socket

import pytest
from lab import kernel_probe, waiting

from drawbar.fabric.contract import DeviceClass
from drawbar.mocks import sysfs

pytestmark = pytest.mark.asyncio(loop_scope="session")

SILENT = {"hwmon", "bdi", "nvme-subsystem", "nd", "nvdimm", "msi_irqs", "wakeup"}
DISK = sysfs.MockDevice(
    device_class=DeviceClass.NVME,
    vendor=0x1B36,
    device=0x0010,
    serial="SN-disk-k",
    memory_bytes=32 << 20,
    link_speed_gts=2.5,
    link_width=1,
    aer=False,
)


def summary(events):
    """Return what counts of the events: action, subsystem, name, and which variables there are."""
    return [
        (
            event["ACTION"],
            event["SUBSYSTEM"],
            event["DEVPATH"].rpartition("/")[2],
            frozenset(event) - {"ACTION", "DEVPATH", "SUBSYSTEM", "SEQNUM"},
        )
        for event in events
        if event["SUBSYSTEM"] not in SILENT
    ]


@contextlib.asynccontextmanager
async def uevents(guest):
    async with guest.process(*guest.module("lab.kernel_probe", "events")) as process:
        await process.says("{}")
        yield lambda: [json.loads(line) for line in process.output.splitlines()[1:]]


async def wait_for_event(events, action, name):
    """Return once there was such an event."""

    async def there():
        return any(event["ACTION"] == action and event["DEVPATH"].endswith(f"/{name}") for event in events())

    await waiting.until(there)


async def of_the_kernel(node):
    disk = await node.chassis.disk("disk-k")
    async with uevents(node.guest) as events:
        await node.chassis.plug(disk, "port-1")
        await wait_for_event(events, "add", "ng0n1")
        shown = json.loads(
            await node.guest.output(
                *node.guest.module("lab.kernel_probe", "tree", "/sys/bus/pci/devices/0000:01:00.0/")
            )
        )
        came = len(events())
        await node.guest.write("/sys/bus/pci/devices/0000:01:00.0/driver/unbind", "0000:01:00.0\n")
        await node.guest.write("/sys/bus/pci/devices/0000:01:00.0/remove", "1\n")
        await node.guest.write("/sys/bus/pci/slots/1/power", "0\n")
        await node.chassis.out(disk)
        await wait_for_event(events, "remove", "0000:01:00.0")
        everything = events()
    return everything[:came], everything[came:], shown


@contextlib.contextmanager
def listening(path):
    """Yield the list of a mocked tree's events, which grows as they come."""
    events = []
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(path))
        listener.setblocking(False)
        loop.add_reader(listener, lambda: events.append(decode_event(listener.recv(16384))))
        try:
            yield events
        finally:
            loop.remove_reader(listener)


async def of_the_mock(folder):
    with listening(folder / "u") as events:
        tree = sysfs.SysfsTree.create(folder / "sys", uevent_socket=folder / "u")
        device = tree.root / "bus/pci/devices/0000:01:00.0"
        async with tree.reacting():
            await asyncio.to_thread(tree.attach, 1, DISK)
            await wait_for_event(lambda: events, "add", "ng0n1")
            came, shown = len(events), kernel_probe.tree(device.resolve())
            (device / "driver/unbind").write_text("0000:01:00.0\n")
            await wait_for_event(lambda: events, "unbind", "0000:01:00.0")
            (device / "remove").write_text("1\n")
            await wait_for_event(lambda: events, "remove", "0000:01:00.0")
    return events[:came], events[came:], shown


def decode_event(datagram):
    fields = datagram[datagram.index(b"ACTION=") :].decode().split("\0")
    return dict(field.split("=", 1) for field in fields if "=" in field)


def unlike(mock, kernel):
    """Return the first event that differs, of both; empty where none differs."""
    return next(
        ([*pair] for pair in itertools.zip_longest(summary(mock), summary(kernel)) if pair[0] != pair[1]), []
    )


async def test_a_disk_comes_and_goes_as_on_the_kernel(node, tmp_path):
    came, went, shown = await of_the_kernel(node)
    mock_came, mock_went, mock_shown = await of_the_mock(tmp_path)
    modes = {path: (entry.get("mode"), shown.get(path, {}).get("mode")) for path, entry in mock_shown.items()}
    assert {
        "as it comes": unlike(mock_came, came),
        "as it goes": unlike(mock_went, went),
        "shown by the mock alone": set(mock_shown) - set(shown),
        "of another mode": {path: pair for path, pair in modes.items() if pair[0] != pair[1]},
    } == {"as it comes": [], "as it goes": [], "shown by the mock alone": set(), "of another mode": {}}
