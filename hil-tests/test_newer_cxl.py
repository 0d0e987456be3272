"""Volatile CXL memory on QEMU 10.0 and Linux 6.12, which Debian 12's own QEMU and kernel do not have."""

import pytest
from lab import chassis, waiting

pytestmark = pytest.mark.asyncio(loop_scope="session")

SIZE = 256 << 20
BUS = "/sys/bus/cxl/devices"


async def memdevs(guest):
    return [name for name in await guest.names(BUS) if name.startswith("mem")]


async def test_volatile_memory_is_plugged_in_and_comes_out_again(lab, newer_guest):
    assert (await newer_guest.output("uname", "-r")).startswith("6.12.")
    electrician = chassis.Chassis(newer_guest, lab.folder)
    memory = await electrician.memory("memory-v", size_bytes=SIZE, volatile=True)
    await electrician.plug(memory, "cxl-1")
    (name,) = await waiting.until(lambda: memdevs(newer_guest))
    assert int(await newer_guest.read(f"{BUS}/{name}/ram/size"), 16) == SIZE
    assert int(await newer_guest.read(f"{BUS}/{name}/pmem/size"), 16) == 0
    await newer_guest.write("/sys/bus/pci/slots/101/power", "0\n")
    await electrician.out(memory)
    assert await memdevs(newer_guest) == []
