"""Plugs devices into the slots of a mocked /sys tree, as the hardware behind a fabric would.

The tree belongs to another process or test; here it is only opened. Slot numbers are port numbers. The mocked
tree is imported only by fabrics that have one, for its parts cost time that others need not spend.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from drawbar.fabric import contract, errors

if TYPE_CHECKING:
    from drawbar.mocks import sysfs as sysfs_types


def problems(device: contract.Device) -> list[str]:
    """Why the device cannot appear in a mocked tree; empty when it can."""
    from drawbar.mocks import sysfs

    try:
        _card(device).check()
    except sysfs.ImpossibleWorld as error:
        return [f"device {device.id}: {error}"]
    return []


def plug(root: Path, port_id: str, device: contract.Device) -> None:
    """Makes the device appear; whatever an interrupted attempt left in the slot is removed first. Blocking.

    Raises:
        Unavailable: the tree cannot be changed; effects unknown.
    """
    from drawbar.mocks import sysfs

    try:
        tree = sysfs.SysfsTree.open(root)
        tree.detach(int(port_id))
        tree.attach(int(port_id), _card(device))
    except (OSError, sysfs.ImpossibleWorld) as error:
        raise _failed(root, port_id, error) from error


def unplug(root: Path, port_id: str) -> None:
    """Makes whatever is in the slot disappear; an empty slot is fine. Blocking.

    Raises:
        Unavailable: the tree cannot be changed; effects unknown.
    """
    from drawbar.mocks import sysfs

    try:
        sysfs.SysfsTree.open(root).detach(int(port_id))
    except (OSError, sysfs.ImpossibleWorld) as error:
        raise _failed(root, port_id, error) from error


def _card(device: contract.Device) -> "sysfs_types.MockDevice":
    from drawbar.mocks import sysfs

    return sysfs.MockDevice(
        device_class=device.device_class,
        vendor=device.pci_vendor_id or 0,
        device=device.pci_device_id or 0,
        serial=device.serial,
        memory_bytes=device.memory_bytes,
    )


def _failed(root: Path, port_id: str, error: Exception) -> errors.Unavailable:
    return errors.Unavailable(
        f"slot {port_id} of the mocked tree {root} cannot be changed: {error}",
        reason="SLOT_FAULT",
        side_effects_unknown=True,
    )
