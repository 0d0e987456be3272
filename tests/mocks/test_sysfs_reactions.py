"""What a mocked host does when its files are written to, as a daemon writes them."""

import asyncio
import contextlib

import pytest
from tests.scenes import waiting

from drawbar.driver.node import uevents
from drawbar.driver.node.discovery import reader
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks.sysfs import Arrival, MockDevice, SysfsTree

NVME = MockDevice(device_class=DeviceClass.NVME, vendor=0x144D, device=0xA824, serial="SN0001")
FPGA = MockDevice(device_class=DeviceClass.FPGA, vendor=0x8086, device=0x0B2B, total_vfs=4, vf_driver="x")
CXL = MockDevice(
    device_class=DeviceClass.CXL_MEMORY, vendor=0x8086, device=0x0D93, serial="4660", memory_bytes=1 << 29
)


class Host:
    """A tree that reacts, and what it told."""

    def __init__(self, tree, source):
        self.tree, self.source = tree, source
        self.told = []

    async def listen(self):
        async for event in self.source.events():
            self.told.append((event.action, event.devpath.rpartition("/")[2]))

    def write(self, path, text):
        """Write to an existing file, as the daemon does, without reading first."""
        with (self.tree.root / path).open("w") as file:
            file.write(text)

    def read(self, path):
        return (self.tree.root / path).read_text().strip()

    def function(self, slot=1):
        return f"bus/pci/devices/{self.tree.address(slot)}"

    async def wait_until_answered(self):
        """Wait until whatever was written has been answered. Answers come in order: an empty slot does not go on."""
        self.write("bus/pci/slots/3/power", "1")
        await waiting.eventually(lambda: self.read("bus/pci/slots/3/power") == "0")

    async def attach(self, slot, card, **how):
        await asyncio.to_thread(self.tree.attach, slot, card, **how)

    async def shows(self, *lines):
        """Wait for these events, in this order, with others between."""

        def holds():
            rest = iter(self.told)
            return all(line in rest for line in lines)

        await waiting.eventually(holds)


@pytest.fixture
async def host(tmp_path):
    tree = SysfsTree.create(tmp_path / "sys", slots=3, uevent_socket=tmp_path / "uevents")
    async with uevents.listening(f"unix:{tmp_path / 'uevents'}") as source, tree.reacting():
        running = Host(tree, source)
        task = asyncio.Task(running.listen())
        yield running
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_a_slot_that_is_switched_off_loses_its_functions_and_keeps_its_card(host):
    await host.attach(1, NVME)
    host.write("bus/pci/slots/1/power", "0")
    await host.shows(("remove", "nvme0"), ("unbind", "0000:01:00.0"), ("remove", "0000:01:00.0"))
    await host.wait_until_answered()
    assert not (host.tree.root / host.function()).exists()
    assert (host.read("bus/pci/slots/1/adapter"), host.read("bus/pci/slots/1/power")) == ("1", "0")
    assert 1 in host.tree.list_attached_cards()
    host.write("bus/pci/slots/1/power", "1")
    await waiting.eventually(lambda: reader.read(host.tree.root).by_serial("SN0001"))
    assert host.read("bus/pci/slots/1/power") == "1"


async def test_text_without_a_number_switches_a_slot_off(host):
    """As Linux 6.1 does it, in the lab."""
    await host.attach(1, NVME)
    host.write("bus/pci/slots/1/power", "3")
    await waiting.eventually(lambda: host.read("bus/pci/slots/1/power") == "1")
    host.write("bus/pci/slots/1/power", "on")
    await waiting.eventually(lambda: host.read("bus/pci/slots/1/power") == "0")
    await host.shows(("remove", "0000:01:00.0"))


async def test_a_card_that_waits_for_power_comes_up_when_its_slot_gets_it(host):
    await host.attach(2, NVME, arrival=Arrival.UNPOWERED)
    host.write("bus/pci/slots/2/power", "1\n")
    await waiting.eventually(lambda: reader.read(host.tree.root).by_serial("SN0001"))


async def test_an_empty_slot_cannot_be_switched_on(host):
    host.write("bus/pci/slots/1/power", "1")
    await waiting.eventually(lambda: host.read("bus/pci/slots/1/power") == "0")


async def test_a_card_in_a_slot_that_was_switched_off_can_be_taken_out_and_another_put_in(host):
    await host.attach(1, NVME)
    host.write("bus/pci/slots/1/power", "0")
    await waiting.eventually(lambda: not (host.tree.root / host.function()).exists())
    await asyncio.to_thread(host.tree.detach, 1)
    assert host.read("bus/pci/slots/1/adapter") == "0"
    await host.attach(1, FPGA)
    assert host.read("bus/pci/slots/1/power") == "1"
    assert (host.tree.root / host.function()).exists()


async def test_a_driver_lets_go_and_takes_again(host):
    await host.attach(1, NVME)
    address = host.tree.address(1)
    host.write(f"{host.function()}/driver/unbind", address)
    await waiting.eventually(lambda: not (host.tree.root / host.function() / "driver").exists())
    await host.shows(("remove", "nvme0n1"), ("remove", "nvme0"), ("unbind", address))
    assert ("remove", address) not in host.told
    host.write("bus/pci/drivers/xe/bind", address) if (
        host.tree.root / "bus/pci/drivers/xe"
    ).exists() else None
    host.write("bus/pci/drivers_probe", address)
    await host.shows(("unbind", address), ("add", "nvme0"), ("bind", address))
    function = reader.read_function(host.tree.root, address)
    assert function.driver == "nvme"
    assert function.device_nodes


async def test_a_driver_that_is_named_takes_the_function_and_another_does_not(host):
    await host.attach(1, NVME)
    await host.attach(2, FPGA)
    address = host.tree.address(1)
    host.write("bus/pci/drivers/nvme/unbind", address)
    await host.shows(("unbind", address))
    host.write("bus/pci/drivers/dfl-pci/bind", address)
    host.write("bus/pci/drivers/nvme/bind", address)
    await waiting.eventually((host.tree.root / host.function() / "driver").exists)
    assert (host.tree.root / host.function() / "driver").resolve().name == "nvme"


async def test_a_card_that_no_driver_takes_stays_without_one(host):
    await host.attach(1, MockDevice(device_class=DeviceClass.NVME, vendor=1, device=2, serial="S", driver=""))
    host.write("bus/pci/drivers_probe", host.tree.address(1))
    await host.wait_until_answered()
    assert not (host.tree.root / host.function() / "driver").exists()


async def test_a_card_is_handed_to_a_guest_and_comes_back(host):
    await host.attach(1, NVME)
    address = host.tree.address(1)
    host.write(f"{host.function()}/driver_override", "vfio-pci")
    host.write(f"{host.function()}/driver/unbind", address)
    await host.shows(("unbind", address))
    host.write("bus/pci/drivers_probe", address)
    await waiting.eventually(lambda: reader.read_function(host.tree.root, address).driver == "vfio-pci")
    assert not reader.read_function(host.tree.root, address).device_nodes
    await asyncio.to_thread(host.tree.detach, 1)
    assert not (host.tree.root / f"bus/pci/drivers/vfio-pci/{address}").is_symlink()


async def test_a_function_that_is_removed_comes_back_with_a_rescan(host):
    await host.attach(1, NVME)
    host.write(f"{host.function()}/remove", "1")
    await waiting.eventually(lambda: not (host.tree.root / host.function()).exists())
    assert host.read("bus/pci/slots/1/power") == "1"
    host.write("bus/pci/rescan", "1")
    await waiting.eventually(lambda: reader.read(host.tree.root).by_serial("SN0001"))


async def test_virtual_functions_come_and_go_by_number(host):
    await host.attach(1, FPGA)
    host.write(f"{host.function()}/sriov_numvfs", "2")
    await host.shows(("bind", "0000:01:00.2"))
    host.write(f"{host.function()}/sriov_numvfs", "3")
    await waiting.eventually(lambda: host.read(f"{host.function()}/sriov_numvfs") == "2")
    host.write("bus/pci/drivers/x/unbind", "0000:01:00.2")
    await host.shows(("unbind", "0000:01:00.2"))
    host.write(f"{host.function()}/sriov_numvfs", "0")
    await waiting.eventually(lambda: len(reader.read(host.tree.root).functions) == 5)
    host.write(f"{host.function()}/sriov_numvfs", "9")
    await waiting.eventually(lambda: host.read(f"{host.function()}/sriov_numvfs") == "0")


async def test_virtual_functions_wait_for_their_drivers_where_they_are_not_to_be_probed(host):
    await host.attach(1, FPGA)
    host.write(f"{host.function()}/sriov_drivers_autoprobe", "0")
    host.write(f"{host.function()}/sriov_numvfs", "2")
    await host.shows(("add", "0000:01:00.2"))
    await waiting.eventually(lambda: host.read(f"{host.function()}/sriov_numvfs") == "2")
    first = host.tree.root / "bus/pci/devices/0000:01:00.1"
    assert not (first / "driver").is_symlink()
    host.write("bus/pci/drivers_probe", "0000:01:00.1")
    await host.shows(("bind", "0000:01:00.1"))
    host.write("bus/pci/drivers/x/unbind", "0000:01:00.1")
    await host.shows(("unbind", "0000:01:00.1"))
    (first / "driver_override").write_text("vfio-pci")
    host.write("bus/pci/drivers_probe", "0000:01:00.1")
    await waiting.eventually(lambda: (first / "driver").resolve().name == "vfio-pci")


async def test_a_reset_is_counted(host):
    await host.attach(1, NVME)
    # What is written while a device is new may be answered twice.
    await host.wait_until_answered()
    host.write(f"{host.function()}/reset", "1")
    await waiting.eventually(lambda: host.tree.resets(1) == 1)


async def test_a_region_is_made_used_and_taken_apart_by_writing(host):
    await host.attach(1, CXL)
    await host.attach(2, NVME)
    root = "bus/cxl/devices/decoder0.0"
    host.write(f"{root}/create_ram_region", host.read(f"{root}/create_ram_region"))
    await waiting.eventually((host.tree.root / "bus/cxl/devices/region0").exists)
    await waiting.eventually(lambda: host.read(f"{root}/create_ram_region") == "region1")
    region = "bus/cxl/devices/region0"
    host.write(f"{region}/interleave_ways", "1")
    await waiting.eventually((host.tree.root / region / "target0").exists)
    host.write(f"{region}/interleave_granularity", "256")
    (endpoint,) = (host.tree.root / "bus/cxl/devices").glob("endpoint*")
    host.write(f"{region}/size", f"{1 << 29:#x}")
    host.write(f"{region}/target0", f"decoder{endpoint.name.removeprefix('endpoint')}.0")
    host.write(f"{region}/commit", "1")
    await waiting.eventually(
        lambda: "region0" in host.read(f"bus/cxl/devices/{host.read(f'{region}/target0')}/region")
    )
    host.write("bus/cxl/drivers_probe", "region0")
    await host.shows(("add", "dax0.0"), ("add", "memory45"), ("bind", "dax0.0"))
    blocks = sorted((host.tree.root / "devices/system/memory").glob("memory*"))
    assert [(block / "valid_zones").read_text() for block in blocks] == ["Normal\n"] * 2
    for state, action in (("offline", "offline"), ("online_movable", "online"), ("offline", "offline")):
        host.told.clear()
        for block in blocks:
            host.write(f"devices/system/memory/{block.name}/state", state)
            await host.shows((action, block.name))
            await waiting.eventually(
                lambda path=block / "state", written=action: path.read_text() == f"{written}\n"
            )
    host.write("bus/dax/drivers/kmem/unbind", "dax0.0")
    await host.shows(("remove", "memory45"), ("unbind", "dax0.0"))
    host.write(f"{region}/commit", "0")
    await waiting.eventually(lambda: not (host.tree.root / "bus/dax/devices/dax0.0").exists())
    host.write(f"{root}/delete_region", "region0")
    await waiting.eventually(lambda: not (host.tree.root / region).exists())
    await waiting.eventually(lambda: host.read(f"{root}/create_ram_region") == "region0")
    decoder = f"bus/cxl/devices/decoder{endpoint.name.removeprefix('endpoint')}.0"
    assert host.read(f"{decoder}/region") == ""


async def test_an_interleaved_region_is_made_in_the_kernels_order(host):
    for slot in (1, 2):
        await host.attach(slot, CXL)
    region = "bus/cxl/devices/region0"
    host.write("bus/cxl/devices/decoder0.0/create_ram_region", "region0")
    await waiting.eventually((host.tree.root / region).exists)

    async def shows(name, text, shown):
        host.write(f"{region}/{name}", text)
        await host.wait_until_answered()
        assert host.read(f"{region}/{name}") == shown

    await shows("size", f"{1 << 30}", "0x0")
    await shows("interleave_ways", "3", "0")
    await shows("interleave_ways", "2", "2")
    await shows("interleave_granularity", "300", "0")
    await shows("interleave_granularity", "4096", "4096")
    await shows("target0", "decoder2.0", "")
    await shows("size", f"{(1 << 30) + 256}", "0x0")
    await shows("size", f"{1 << 30}", "0x40000000")
    await shows("interleave_granularity", "256", "4096")
    await shows("interleave_ways", "1", "2")
    await shows("target1", "decoder2.0", "decoder2.0")
    await shows("target0", "decoder2.0", "")
    await shows("target0", "decoder9.0", "")
    await shows("commit", "1", "0")
    await shows("target0", "decoder3.0", "decoder3.0")
    await shows("commit", "1", "1")
    decoder = "bus/cxl/devices/decoder3.0"
    assert [host.read(f"{decoder}/{name}") for name in ("interleave_ways", "interleave_granularity")] == [
        "2",
        "4096",
    ]
    host.write("bus/cxl/drivers_probe", "region0")
    await host.shows(("add", "dax0.0"), ("bind", "dax0.0"))
    assert host.read("bus/dax/devices/dax0.0/size") == f"{1 << 30}"


async def test_memory_that_the_kernel_uses_does_not_go_offline(host):
    await host.attach(1, CXL)
    await asyncio.to_thread(host.tree.create_region, [1])
    host.tree.keep_online("region0")
    host.write("devices/system/memory/memory45/state", "offline")
    await waiting.eventually(lambda: host.read("devices/system/memory/memory45/state") == "online")


async def test_a_region_without_targets_is_not_committed(host):
    root = "bus/cxl/devices/decoder0.0"
    host.write(f"{root}/create_ram_region", "region7")
    await waiting.eventually(lambda: host.read(f"{root}/create_ram_region") == "region0")
    host.write(f"{root}/create_ram_region", "region0")
    await waiting.eventually((host.tree.root / "bus/cxl/devices/region0").exists)
    host.write("bus/cxl/devices/region0/commit", "1")
    await waiting.eventually(lambda: host.read("bus/cxl/devices/region0/commit") == "0")


async def test_nothing_happens_once_nobody_reacts(tmp_path):
    tree = SysfsTree.create(tmp_path / "sys", slots=1)
    async with tree.reacting():
        await asyncio.to_thread(tree.attach, 1, NVME)
    (tree.root / "bus/pci/slots/1/power").write_text("0")
    assert reader.read(tree.root).by_serial("SN0001")
