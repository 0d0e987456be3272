"""The devices of this node, kept current by uevents.

Built once from sysfs, then one function at a time: an event of a function, or of anything below it (a memory device,
a namespace, a driver's class device), makes that function be read again. Lost events make everything be read again.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from drawbar.driver.api import attachments
from drawbar.driver.node import inventory, uevents
from drawbar.driver.node.inventory import children, model
from drawbar.fabric.contract import DeviceClass

log = logging.getLogger(__name__)

# What a device of these classes is good for comes from its kernel driver.
NEEDS_DRIVER = frozenset(
    {DeviceClass.GPU, DeviceClass.FPGA, DeviceClass.NVME, DeviceClass.CXL_MEMORY, DeviceClass.NIC}
)
# Without these files a container could not use it.
NEEDS_FILES = frozenset({DeviceClass.NVME, DeviceClass.CXL_MEMORY})


class Devices:
    """The functions of this node. `follow` keeps them current; `changed` is called after each change."""

    def __init__(self, sysfs: Path, changed: Callable[[], None]) -> None:
        self._sysfs = sysfs
        self._changed = changed
        self._inventory = model.Inventory(functions=())

    async def read(self) -> None:
        """Reads everything anew.

        Raises:
            errors.SysfsError: there is no sysfs tree.
        """
        self._inventory = await asyncio.to_thread(inventory.read, self._sysfs)
        self._changed()

    def find(self, identity: attachments.Identity) -> model.PciFunction | None:
        """The device of that serial, wherever it sits; never one that only has the right address."""
        return self._inventory.by_serial(identity.serial) if identity.serial else None

    async def follow(self, source: uevents.UeventSource) -> None:
        """Applies events until cancelled."""
        async for event in source.events():
            if isinstance(event, uevents.Overflow):
                log.warning("uevents were lost, reading everything again")
                await self.read()
                continue
            address = _function_of(event.devpath)
            if address is not None:
                await self._refresh(address)

    async def _refresh(self, address: str) -> None:
        fresh = await asyncio.to_thread(inventory.read_function, self._sysfs, address)
        known = self._inventory.by_address(address)
        if fresh == known:
            return
        others = tuple(function for function in self._inventory.functions if function.address != address)
        self._inventory = model.Inventory(functions=others if fresh is None else (*others, fresh))
        self._changed()


def is_initialised(function: model.PciFunction, device_class: str) -> bool:
    """Whether the kernel has done all that a container needs of a device of this class."""
    if device_class in NEEDS_DRIVER and function.driver is None:
        return False
    return device_class not in NEEDS_FILES or bool(function.device_nodes)


def _function_of(devpath: str) -> str | None:
    """The function an event belongs to: the last PCI address in its path."""
    found = [part for part in devpath.split("/") if children.ADDRESS.fullmatch(part)]
    return found[-1] if found else None
