"""Reads a sysfs tree: all of it, or one function after a hot-plug event.

Needs no privilege and writes nothing. Both functions block on file reads; a large host takes up to a
second, so asyncio code calls `read` in a thread.
"""

import os
from pathlib import Path

from drawbar.driver.node import errors
from drawbar.driver.node.inventory import children, cxl, functions, model, slots

SYSFS = Path("/sys")


def read(sysfs: Path = SYSFS) -> model.Inventory:
    """Everything that the tree shows.

    A host without PCI (a container, a small virtual machine) has an empty inventory.

    Raises:
        SysfsError: there is no readable sysfs tree at `sysfs`.
    """
    root = os.fspath(sysfs)
    addresses = _addresses(root)
    by_address = slots.addresses(root)
    found = (functions.read(root, address, by_address) for address in addresses)
    topology = cxl.read(root)
    return model.Inventory(
        functions=tuple(function for function in found if function is not None),
        slots=slots.read(root),
        memdevs=topology.memdevs,
        ports=topology.ports,
        decoders=topology.decoders,
        regions=topology.regions,
    )


def read_function(sysfs: Path, address: str) -> model.PciFunction | None:
    """One function, or None if it is not there; reads nothing of the other functions."""
    if not children.ADDRESS.fullmatch(address):
        return None
    root = os.fspath(sysfs)
    return functions.read(root, address, slots.addresses(root))


def _addresses(root: str) -> list[str]:
    if not os.path.isdir(root + "/bus"):  # noqa: PTH112 - as everywhere in this package, paths are str
        raise errors.SysfsError(
            f"{root} is not a sysfs tree (it has no bus directory): name one with --sysfs"
        )
    try:
        with os.scandir(root + "/bus/pci/devices") as found:
            names = [entry.name for entry in found if children.ADDRESS.fullmatch(entry.name)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise errors.SysfsError(f"cannot list {root}/bus/pci/devices: {error.strerror}") from error
    return sorted(names, key=lambda name: (len(name), name))
