"""The mocked host that is like a guest of the QEMU lab, against what its kernel (Linux 6.1.192) was seen to do."""

import asyncio
import contextlib
import dataclasses
import uuid

import pytest
from tests.scenes import waiting

from drawbar.driver.node import uevents
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks.sysfs import ImpossibleWorld, MockDevice, SysfsTree, states

SIZE = 512 << 20
DISK = MockDevice(device_class=DeviceClass.NVME, vendor=0x1B36, device=0x0010, serial="SN-1")
MEMORY = MockDevice(
    device_class=DeviceClass.CXL_MEMORY,
    vendor=0x8086,
    device=0x0D93,
    serial="4660",
    memory_bytes=SIZE,
    persistent=True,
)
CXL, ND, SLOTS = "bus/cxl/devices", "bus/nd/devices", "bus/pci/slots"
CXL_SLOT = 101
UUID = str(uuid.UUID(int=7))
# What the kernel told in the lab, without the functions of PCI and the nd bus's places for namespaces.
CARD_TOLD = """add mem0, add endpoint2, add decoder2.0, bind endpoint2, bind mem0, add pmem0, add nmem0, bind nmem0, bind pmem0,
bind 0000:41:00.0"""
REGION_TOLD = """add region0, add pmem_region0, add region0, bind pmem_region0, bind region0, add namespace0.0, add btt0.0,
add pfn0.0, bind region0, add dax0.0"""
REGION_GONE_TOLD = """unbind region0, remove region0, unbind pmem_region0, remove pmem_region0, unbind region0,
remove region0"""
CARD_GONE_TOLD = """unbind nmem0, remove nmem0, unbind pmem0, remove pmem0, remove decoder2.0, unbind endpoint2,
remove endpoint2, unbind mem0, remove mem0"""


class Host:
    """The tree, what it told, and a hand that writes to it."""

    def __init__(self, tree):
        self.tree, self.told = tree, []

    async def listen(self, source):
        async for event in source.events():
            self.told.append(f"{event.action} {event.devpath.rpartition('/')[2]}")

    async def shows(self, lines):
        """Wait for these events, in this order, with others between; forget the events until then."""
        wanted = lines.replace("\n", " ").split(", ")

        def holds():
            rest = iter(self.told)
            return all(line in rest for line in wanted)

        try:
            await waiting.eventually(holds)
        except TimeoutError:
            raise AssertionError(f"told was {self.told}, not {wanted}") from None
        self.told.clear()

    def read(self, path):
        return (self.tree.root / path).read_text().strip()

    def write(self, path, text):
        with (self.tree.root / path).open("w") as file:
            file.write(text)

    async def set(self, path, text):
        """Write to a file, and wait until the write was answered.

        Whoever answers sets the file's time to 1970 first, and holds the lock meanwhile."""
        await waiting.eventually((self.tree.root / path).exists)
        self.write(path, text)
        await waiting.eventually(lambda: (self.tree.root / path).stat().st_mtime_ns == 0)
        await asyncio.to_thread(self.nobody_changes)

    def nobody_changes(self):
        with states.locking(self.tree.root):
            pass

    async def says(self, path, text):
        await waiting.eventually(lambda: self.read(path) == text)

    async def refuses(self, path, text, shown):
        """Write a text that a kernel refuses; assert that the file then shows `shown`."""
        await self.set(path, text)
        assert self.read(path) == shown, path

    def slot(self, number):
        return self.read(f"{SLOTS}/{number}/power"), self.read(f"{SLOTS}/{number}/adapter")

    async def memory(self):
        await asyncio.to_thread(self.tree.attach, CXL_SLOT, MEMORY)
        await asyncio.to_thread(self.tree.power_on, CXL_SLOT)

    async def make_region(self):
        """Create a region, as `cxl create-region -t pmem` does."""
        for path, text in (
            ("decoder0.0/create_pmem_region", "region0"),
            ("region0/interleave_ways", "1"),
            ("region0/interleave_granularity", "256"),
            ("region0/uuid", UUID),
            ("region0/size", str(SIZE)),
            ("region0/target0", "decoder2.0"),
            ("region0/commit", "1"),
        ):
            await self.set(f"{CXL}/{path}", f"{text}\n")
        await self.set("bus/cxl/drivers_probe", "region0\n")


@pytest.fixture
async def host(tmp_path):
    tree = SysfsTree.create(tmp_path / "sys", uevent_socket=tmp_path / "uevents", layout="lab")
    async with uevents.listening(f"unix:{tmp_path / 'uevents'}") as source, tree.reacting():
        running = Host(tree)
        task = asyncio.Task(running.listen(source))
        yield running
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_a_card_in_a_cxl_port_waits_for_power_and_one_in_a_pcie_port_does_not(host):
    await asyncio.to_thread(host.tree.attach, 1, DISK)
    await asyncio.to_thread(host.tree.attach, CXL_SLOT, MEMORY)
    assert (host.slot(1), host.slot(CXL_SLOT)) == (("1", "1"), ("0", "1"))
    assert not (host.tree.root / CXL / "mem0").exists()
    host.write(f"{SLOTS}/{CXL_SLOT}/power", "1\n")
    await host.shows(CARD_TOLD)
    assert host.slot(CXL_SLOT) == ("1", "1")
    assert (host.read(f"{CXL}/mem0/pmem/size"), host.read(f"{CXL}/mem0/ram/size")) == (f"{SIZE:#x}", "0x0")


async def test_a_card_is_taken_out_a_moment_after_its_slot_lost_power(host):
    await asyncio.to_thread(host.tree.attach, 1, DISK)
    host.write(f"{SLOTS}/1/power", "0\n")
    await waiting.eventually(lambda: host.tree.list_attached_cards() == {})
    assert host.slot(1) == ("0", "0")
    host.write(f"{SLOTS}/1/power", "1\n")
    await waiting.eventually(lambda: host.slot(1) == ("0", "0"))


async def test_persistent_memory_comes_and_goes_with_the_kernels_events(host):
    await host.memory()
    await host.shows(CARD_TOLD)
    await host.make_region()
    await host.shows(REGION_TOLD)
    await host.set(f"{CXL}/region0/commit", "0\n")
    host.write(f"{CXL}/decoder0.0/delete_region", "region0\n")
    await host.shows(REGION_GONE_TOLD)
    host.write("bus/pci/drivers/cxl_pci/unbind", "0000:41:00.0\n")
    await host.shows(CARD_GONE_TOLD)


async def test_a_persistent_region_of_an_old_kernel_has_no_mode(host):
    await host.memory()
    await host.make_region()
    region = host.tree.root / CXL / "region0"
    assert sorted(path.name for path in region.iterdir() if not path.name.startswith(".")) == [
        *(
            "commit",
            "devtype",
            "driver",
            "interleave_granularity",
            "interleave_ways",
            "modalias",
            "pmem_region0",
        ),
        *("resource", "size", "subsystem", "target0", "uevent", "uuid"),
    ]
    assert host.read(f"{CXL}/decoder2.0/mode") == "pmem"
    assert not (host.tree.root / CXL / "decoder0.0/create_ram_region").exists()


async def test_the_nd_bus_has_a_region_and_a_dax_device_of_the_same_names(host):
    await host.memory()
    await host.make_region()
    names = sorted(path.name for path in (host.tree.root / ND).iterdir())
    assert names == ["btt0.0", "dax0.0", "namespace0.0", "ndbus0", "nmem0", "pfn0.0", "region0"]
    assert host.read(f"{ND}/dax0.0/devtype") == "nd_dax"
    assert host.read(f"{ND}/region0/size") == str(SIZE)
    assert not (host.tree.root / "bus/dax/devices").exists()


async def test_an_empty_persistent_region_takes_nothing_before_its_uuid(host):
    await host.memory()
    await host.set(f"{CXL}/decoder0.0/create_pmem_region", "region0\n")
    assert host.read(f"{CXL}/region0/resource") == "0xffffffffffffffff"
    nothing = str(uuid.UUID(int=0))
    assert host.read(f"{CXL}/region0/uuid") == nothing
    await host.set(f"{CXL}/region0/interleave_ways", "1\n")
    await host.set(f"{CXL}/region0/interleave_granularity", "256\n")
    await host.refuses(f"{CXL}/region0/size", f"{SIZE}\n", "0x0")
    await host.refuses(f"{CXL}/region0/target0", "decoder2.0\n", "")
    await host.refuses(f"{CXL}/region0/commit", "1\n", "0")
    await host.refuses(f"{CXL}/region0/uuid", UUID, nothing)
    await host.refuses(f"{CXL}/region0/uuid", "nonsense\n", nothing)
    await host.set(f"{CXL}/region0/uuid", f"{UUID}\n")
    await host.set(f"{CXL}/region0/size", f"{SIZE}\n")
    assert host.read(f"{CXL}/region0/size") == f"{SIZE:#x}"
    assert host.read(f"{CXL}/region0/uuid") == UUID


async def test_volatile_memory_has_no_uuid_and_goes_from_the_system_as_a_whole(tmp_path):
    tree = SysfsTree.create(tmp_path / "sys")
    tree.attach(1, dataclasses.replace(MEMORY, persistent=False))
    tree.create_region([1])
    async with tree.reacting():
        host = Host(tree)
        assert host.read(f"{CXL}/region0/uuid") == ""
        blocks = sorted(path.name for path in (tree.root / "bus/memory/devices").iterdir())
        host.write(f"devices/system/memory/{blocks[0]}/state", "offline")
        await host.says(f"devices/system/memory/{blocks[0]}/state", "offline")
        host.write("bus/dax/drivers/kmem/unbind", "dax0.0")
        await waiting.eventually(lambda: not (tree.root / "bus/dax/drivers/kmem/dax0.0").exists())
        assert sorted(path.name for path in (tree.root / "bus/memory/devices").iterdir()) == blocks


def test_only_cxl_memory_can_be_persistent(tmp_path):
    tree = SysfsTree.create(tmp_path / "sys", layout="lab")
    with pytest.raises(ImpossibleWorld, match="only CXL memory"):
        tree.attach(1, dataclasses.replace(DISK, persistent=True))
