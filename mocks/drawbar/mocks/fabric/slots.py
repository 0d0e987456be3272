"""Plugs devices into the slots of a mocked /sys tree, as the hardware behind a fabric would.

The tree belongs to another process or test; here it is only opened. Slot numbers are port numbers. The mocked
tree is imported only by fabrics that have one, for its parts cost time that others need not spend.
"""

import asyncio
import dataclasses
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from drawbar.fabric import contract, errors, witnesses

if TYPE_CHECKING:
    from drawbar.mocks import sysfs as sysfs_types
    from drawbar.mocks.fabric import faults

VFS = 8
_VF_DRIVERS = {contract.DeviceClass.FPGA: "dfl-pci", contract.DeviceClass.NIC: "mlx5_core"}
"""How many virtual functions an FPGA can have."""


def problems(device: contract.Device) -> list[str]:
    """Why the device cannot appear in a mocked tree; empty when it can."""
    from drawbar.mocks import sysfs

    try:
        _card(device).check()
    except sysfs.ImpossibleWorld as error:
        return [f"device {device.id}: {error}"]
    return []


class Slots:
    """The slots of all hosts; `roots` are the trees of those hosts that have one. One change of a slot at a time."""

    def __init__(self, roots: Mapping[str, Path]) -> None:
        self._roots = dict(roots)
        self._locks: defaultdict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)

    def has(self, host_id: str) -> bool:
        """Whether devices can be seen on this host."""
        return host_id in self._roots

    async def plug(
        self,
        host_id: str,
        port_id: str | None,
        device: contract.Device,
        *,
        appear: "faults.Appear | None" = None,
        still: Callable[[], bool] = lambda: True,
    ) -> None:
        """Makes the device appear, if it is to `still` when its turn comes.

        Raises:
            Unavailable: the tree cannot be changed; effects unknown.
        """
        if port_id is None or not self.has(host_id):
            return
        async with self._locks[host_id, port_id]:
            if still():
                await asyncio.to_thread(_plug, self._roots[host_id], port_id, device, appear)

    async def unplug(self, host_id: str, port_id: str | None, *, surprise: bool = False) -> None:
        """Makes whatever is in the slot disappear; an empty slot is fine.

        Raises:
            Unavailable: the tree cannot be changed; effects unknown.
        """
        if port_id is None or not self.has(host_id):
            return
        async with self._locks[host_id, port_id]:
            await asyncio.to_thread(_unplug, self._roots[host_id], port_id, surprise=surprise)


def _plug(root: Path, port_id: str, device: contract.Device, appear: "faults.Appear | None") -> None:
    """Whatever an interrupted attempt left in the slot is removed first."""
    from drawbar.mocks import sysfs

    slot, card = int(port_id), _card(device)
    try:
        tree = sysfs.SysfsTree.open(root)
        tree.detach(slot)
        if appear is None:
            tree.attach(slot, card)
            return
        if appear.serial is not None:
            card = dataclasses.replace(card, serial=appear.serial, identifiers=None)
        if appear.identifiers is not None:
            made = (witnesses.identifier(kind, text) for kind, text in appear.identifiers.items())
            card = dataclasses.replace(card, identifiers=tuple(each for each in made if each is not None))
        if appear.driver is not None:
            card = dataclasses.replace(card, driver=appear.driver)
        card = dataclasses.replace(card, unassigned=appear.unassigned)
        arrival = sysfs.Arrival.COMPLETE if appear.arrival == "late" else sysfs.Arrival(appear.arrival)
        tree.attach(slot, card, address=appear.address, arrival=arrival)
    except (OSError, sysfs.ImpossibleWorld) as error:
        raise _failed(root, port_id, error) from error


def _unplug(root: Path, port_id: str, *, surprise: bool) -> None:
    from drawbar.mocks import sysfs

    slot = int(port_id)
    try:
        tree = sysfs.SysfsTree.open(root)
        if surprise and slot in tree.attached():
            tree.surprise_remove(slot)
        else:
            tree.detach(slot)
    except (OSError, sysfs.ImpossibleWorld) as error:
        raise _failed(root, port_id, error) from error


def _card(device: contract.Device) -> "sysfs_types.MockDevice":
    """The card of a device. FPGAs and network cards can have virtual functions; other cards have none."""
    from drawbar.mocks import sysfs

    vf_driver = _VF_DRIVERS.get(device.device_class)
    return sysfs.MockDevice(
        device_class=device.device_class,
        vendor=device.pci_vendor_id or 0,
        device=device.pci_device_id or 0,
        serial=device.serial,
        identifiers=device.identifiers or None,
        memory_bytes=device.memory_bytes,
        total_vfs=VFS if vf_driver is not None else 0,
        vf_driver=vf_driver,
    ).with_usual_link()


def _failed(root: Path, port_id: str, error: Exception) -> errors.Unavailable:
    return errors.Unavailable(
        f"slot {port_id} of the mocked tree {root} cannot be changed: {error}",
        reason="SLOT_FAULT",
        side_effects_unknown=True,
    )
