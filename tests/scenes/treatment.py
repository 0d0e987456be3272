"""A mocked host with one card that is treated."""

import asyncio
import contextlib
import time

from drawbar.driver.node import kernel, treatment
from drawbar.driver.node.discovery import reader
from drawbar.driver.node.inventory import model
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


class TreatedHost:
    """A host with one card in slot 1, which is treated by `order`, a set of fields of an Order."""

    def __init__(self, tree, **limits):
        self.tree, self.limits = tree, treatment.Timeouts(**({"blocked_seconds": 0.01} | limits))
        self.kernel, self.clock, self.order = kernel.Kernel(tree.root), time.monotonic, {}
        self.restart()

    def restart(self):
        """Forget the daemon's memory, as in a restart."""
        self.executor = treatment.Executor(self.kernel, limits=self.limits, clock=self.clock)
        self.progress = treatment.Progress()

    def use(self, kernel, clock=time.monotonic):
        """Have another kernel and another clock from now on."""
        self.kernel, self.clock = kernel, clock
        self.restart()

    def card(self):
        """Return the card as a node finds it; None if neither a driver nor a serial number identifies it."""
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
        return await self.treat(self.card(), str(SLOT))

    async def treat(self, card, slot, **more):
        order = treatment.Order(card=card, slot=slot, **(self.order | more))
        return await self.executor.step(order, self.progress)

    async def until(self, wanted, *, each=lambda: None, message=""):
        async with asyncio.timeout(120):
            while True:
                outcome = await self.step()
                if isinstance(outcome, wanted) and message in getattr(outcome, "message", ""):
                    return outcome
                assert not isinstance(outcome, treatment.Done)
                each()
                await asyncio.sleep(outcome.seconds)

    def functions(self):
        """Return the addresses of the card's remaining functions; the port above the card stays."""
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
async def running_host(path, card, **limits):
    path.mkdir(exist_ok=True)
    tree = SysfsTree.create(path / "sys", slots=2)
    async with tree.reacting():
        await asyncio.to_thread(put_in, tree, card)
        yield TreatedHost(tree, **limits)
