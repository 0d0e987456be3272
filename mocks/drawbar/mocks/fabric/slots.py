"""The slots of a mocked /sys tree; devices are plugged and unplugged as by the hardware behind a fabric.

The tree belongs to another process or test; this module only opens it. Slot numbers are port numbers. Only fabrics
with a mocked tree import `sysfs`, because the import is slow.
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
"""The drivers of virtual functions; cards of these classes have `VFS` virtual functions."""


def problems(device: contract.Device) -> list[str]:
    """Return the reasons against the device in a mocked tree; empty if there are none."""
    from drawbar.mocks import sysfs

    try:
        _card(device).check()
    except sysfs.ImpossibleWorld as error:
        return [f"device {device.id}: {error}"]
    return []


class Slots:
    """The slots of all hosts; `roots` are the existing trees by host. Each slot is changed once at a time."""

    def __init__(self, roots: Mapping[str, Path]) -> None:
        self._roots = dict(roots)
        self._locks: defaultdict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)

    def has(self, host_id: str) -> bool:
        """Return true if the host has a mocked tree."""
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
        """Plug the device into the slot if `still` is true when the slot's lock is free.

        Raises:
            Unavailable: the tree cannot be changed; effects unknown.
        """
        if port_id is None or not self.has(host_id):
            return
        async with self._locks[host_id, port_id]:
            if still():
                await asyncio.to_thread(_plug, self._roots[host_id], port_id, device, appear)

    async def unplug(self, host_id: str, port_id: str | None, *, surprise: bool = False) -> None:
        """Remove the card from the slot, if there is one.

        Raises:
            Unavailable: the tree cannot be changed; effects unknown.
        """
        if port_id is None or not self.has(host_id):
            return
        async with self._locks[host_id, port_id]:
            await asyncio.to_thread(_unplug, self._roots[host_id], port_id, surprise=surprise)


def _plug(root: Path, port_id: str, device: contract.Device, appear: "faults.Appear | None") -> None:
    """Plug a card into a slot, after removing the remains of an interrupted attempt."""
    from drawbar.mocks import sysfs

    slot, card = int(port_id), _card(device)
    try:
        tree = sysfs.SysfsTree.open(root)
        tree.detach(slot)
        if appear is None:
            tree.attach(slot, card)
            return
        if appear.identifiers is not None:
            made = (witnesses.identifier(kind, text) for kind, text in appear.identifiers.items())
            card = dataclasses.replace(card, identifiers=tuple(each for each in made if each is not None))
        if appear.driver is not None:
            card = dataclasses.replace(card, driver=appear.driver)
        card = dataclasses.replace(card, unassigned=appear.unassigned)
        arrival = sysfs.Arrival.COMPLETE if appear.arrival == "late" else sysfs.Arrival(appear.arrival)
        tree.attach(slot, card, arrival=arrival)
    except (OSError, sysfs.ImpossibleWorld) as error:
        raise _make_slot_fault(root, port_id, error) from error


def _unplug(root: Path, port_id: str, *, surprise: bool) -> None:
    from drawbar.mocks import sysfs

    slot = int(port_id)
    try:
        tree = sysfs.SysfsTree.open(root)
        if surprise and slot in tree.list_attached_cards():
            tree.surprise_remove(slot)
        else:
            tree.detach(slot)
    except (OSError, sysfs.ImpossibleWorld) as error:
        raise _make_slot_fault(root, port_id, error) from error


def _card(device: contract.Device) -> "sysfs_types.MockDevice":
    """Return the card of a device. FPGAs and network cards can have virtual functions; other cards have none."""
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


def _make_slot_fault(root: Path, port_id: str, error: Exception) -> errors.Unavailable:
    return errors.Unavailable(
        f"slot {port_id} of the mocked tree {root} cannot be changed: {error}",
        reason="SLOT_FAULT",
        side_effects_unknown=True,
    )
