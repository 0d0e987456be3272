"""The mocked CXL memory against the kernel's: a persistent card, a region on it, and all of it away again.

Of the nd bus, whose devices come and go in threads of their own, the events are compared, not their order.
"""

import asyncio
import json
import re

import pytest
from lab import kernel_probe, mocked, persistent, waiting

from drawbar.fabric.contract import DeviceClass
from drawbar.mocks import sysfs

pytestmark = pytest.mark.asyncio(loop_scope="session")

SIZE = 256 << 20
CARD = "0000:41:00.0"
SLOT = 101
REGIONS = ("/sys/bus/cxl/devices/region0/", "/sys/bus/nd/devices/region0/")
# Where the memory is in the host's address space, what a kernel cannot say of what is not there yet, and names.
OWN = {"resource", "size", "uuid", "target0", "dax_seed", "namespace_seed"}
BUSES = ("cxl", "pci", "nd")
HEAD = {"ACTION", "DEVPATH", "SUBSYSTEM", "SEQNUM"}
MEMORY = sysfs.MockDevice(
    device_class=DeviceClass.CXL_MEMORY,
    vendor=0x8086,
    device=0x0D93,
    serial="4660",
    memory_bytes=SIZE,
    persistent=True,
)
REGION = (
    ("decoder0.0/create_pmem_region", "region0"),
    ("region0/interleave_ways", 1),
    ("region0/interleave_granularity", 256),
    ("region0/uuid", "00000000-0000-0000-0000-000000000007"),
    ("region0/size", SIZE),
    ("region0/target0", "decoder2.0"),
    ("region0/commit", 1),
)


def summary(events):
    """Return action, bus, name and variables of each event; events of the nd bus are apart and sorted.

    Names are without numbers, since that of a device that was here before need not be free again.
    """
    lines = [
        (
            event["ACTION"],
            event["SUBSYSTEM"],
            re.sub(r"\d+", "N", event["DEVPATH"].rpartition("/")[2]),
            sorted(set(event) - HEAD),
        )
        for event in events
        if event["SUBSYSTEM"] in BUSES
    ]
    return [line for line in lines if line[1] != "nd"], sorted(line for line in lines if line[1] == "nd")


async def of_the_kernel(node):
    memory = await node.chassis.memory("memory-k", size_bytes=SIZE)
    slot = f"/sys/bus/pci/slots/{SLOT}/power"
    async with node.guest.process(*node.guest.module("lab.kernel_probe", "events")) as process:

        async def count(action, name):
            events = [json.loads(line) for line in process.output.splitlines()[1:] if line.endswith("}")]
            return [
                event
                for event in events
                if event["ACTION"] == action and event["DEVPATH"].endswith(f"/{name}")
            ]

        await process.says("{}")
        await node.chassis.plug(memory, "cxl-1")
        await waiting.until(lambda: node.slot(str(SLOT)), lambda seen: seen == ("0", "1"))
        await node.guest.write(slot, "1\n")
        await waiting.until(lambda: count("bind", CARD))
        await persistent.make_region(node.guest, SIZE)
        await waiting.until(lambda: count("add", "dax0.0"))
        shown = {}
        for folder in REGIONS:
            output = await node.guest.output(*node.guest.module("lab.kernel_probe", "tree", folder))
            shown[folder] = json.loads(output)
        await persistent.delete_region(node.guest)
        await node.guest.write(f"/sys/bus/pci/devices/{CARD}/driver/unbind", f"{CARD}\n")
        await node.guest.write(f"/sys/bus/pci/devices/{CARD}/remove", "1\n")
        await node.guest.write(slot, "0\n")
        await node.chassis.out(memory)
        await waiting.until(lambda: count("remove", CARD))
        return summary([json.loads(line) for line in process.output.splitlines()[1:]]), shown


async def of_the_mock(folder):
    async with mocked.host(folder, "lab") as host:
        await asyncio.to_thread(host.tree.attach, SLOT, MEMORY)
        await host.write(f"bus/pci/slots/{SLOT}/power", 1)
        for path, value in REGION:
            await host.write(f"bus/cxl/devices/{path}", value)
        await host.write("bus/cxl/drivers_probe", "region0")
        shown = {folder: kernel_probe.tree((host.tree.root / folder[5:]).resolve()) for folder in REGIONS}
        await host.write("bus/cxl/devices/region0/commit", 0)
        await host.write("bus/cxl/devices/decoder0.0/delete_region", "region0")
        await host.write("bus/pci/drivers/cxl_pci/unbind", CARD)
        await host.write(f"bus/pci/devices/{CARD}/remove", 1)
        await host.wait_until_removed(CARD)
    return summary(host.events), shown


async def test_persistent_memory_comes_and_goes_as_on_the_kernel(node, tmp_path):
    (events, of_nd), shown = await of_the_kernel(node)
    (mock_events, mock_of_nd), mock_shown = await of_the_mock(tmp_path)
    assert mock_events == events
    assert mock_of_nd == of_nd
    for folder in REGIONS:
        modes = {path: entry.get("mode") for path, entry in mock_shown[folder].items()}
        assert modes == {path: shown[folder].get(path, {}).get("mode") for path in modes}
        contents = {path for path, entry in mock_shown[folder].items() if "content" in entry}
        differ = {path for path in contents if mock_shown[folder][path] != shown[folder][path]}
        assert {path.rpartition("/")[2] for path in differ} <= OWN
