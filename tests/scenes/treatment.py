"""A mocked host with one card, and whoever lets go of it: where the tests of a release begin."""

import asyncio
import contextlib

from drawbar.driver.node import kernel
from drawbar.driver.node import treatment as release
from drawbar.driver.node.discovery import reader
from drawbar.driver.node.inventory import model
from drawbar.driver.node.treatment import executor as releaser
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks.sysfs import MockDevice, SysfsTree

GPU = MockDevice(device_class=DeviceClass.GPU, vendor=0x1002, device=0x740F, serial="00-11-22-33-44-55-66-77")
NVME = MockDevice(device_class=DeviceClass.NVME, vendor=0x144D, device=0xA824, serial="SN0001")
FPGA = MockDevice(
    device_class=DeviceClass.FPGA, vendor=0x8086, device=0x0B2B, total_vfs=4, vf_driver="dfl-pci"
)
NIC = MockDevice(device_class=DeviceClass.NIC, vendor=0x15B3, device=0x1021)
BARE = MockDevice(device_class=DeviceClass.ACCELERATOR, vendor=0x1DA3, device=0x1020, driver="")
CXL = MockDevice(
    device_class=DeviceClass.CXL_MEMORY, vendor=0x8086, device=0x0D93, serial="4660", memory_bytes=1 << 29
)
SLOT = 1


class Place:
    """A host with one card in slot 1, and whoever lets go of it."""

    def __init__(self, tree, **limits):
        self.tree, self.limits = tree, release.Timeouts(**({"blocked_seconds": 0.01} | limits))
        self.releaser, self.cleaning = self.fresh(), releaser.AS_ITS_CLASS

    def fresh(self):
        """A releaser that remembers nothing, as after a restart."""
        return release.Releaser(kernel.Kernel(self.tree.root), limits=self.limits)

    def card(self):
        """As a node finds its device: by what it is, and not at all once the driver that tells its serial is gone."""
        functions = reader.read(self.tree.root).functions
        address = self.tree.address(SLOT)
        own = tuple(
            function for function in functions if address in (function.address, function.physical_function)
        )
        named = [
            function
            for function in own
            if function.serial or function.driver or function.device == BARE.device
        ]
        return model.Card(functions=own) if named else None

    async def step(self):
        return await self.releaser.step(self.card(), str(SLOT), cleaning=self.cleaning)

    async def until(self, wanted, *, each=lambda: None, message=""):
        async with asyncio.timeout(120):
            while True:
                outcome = await self.step()
                if isinstance(outcome, wanted) and message in getattr(outcome, "message", ""):
                    return outcome
                assert not isinstance(outcome, release.Released)
                each()
                await asyncio.sleep(outcome.seconds)

    def functions(self):
        """What of the card is left: the port above it stays."""
        return [
            function.address
            for function in reader.read(self.tree.root).functions
            if function.slot == str(SLOT)
        ]

    def power(self, slot=SLOT):
        return (self.tree.root / f"bus/pci/slots/{slot}/power").read_text().strip()

    def is_off(self):
        return not self.functions() and self.power() == "0" and not regions(self.tree)


def regions(tree):
    return list((tree.root / "bus/cxl/devices").glob("region*"))


def put_in(tree, card):
    tree.attach(SLOT, card)
    if card.total_vfs:
        tree.set_vfs(SLOT, 2)
    if card is CXL:
        tree.create_region([SLOT])


@contextlib.asynccontextmanager
async def place(path, card, **limits):
    path.mkdir(exist_ok=True)
    tree = SysfsTree.create(path / "sys", slots=2)
    async with tree.reacting():
        await asyncio.to_thread(put_in, tree, card)
        yield Place(tree, **limits)
