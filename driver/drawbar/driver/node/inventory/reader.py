"""Reads a sysfs tree: all of it, or one function.

Needs no privilege and writes nothing. Both functions block on file reads; a large host takes up to a
second, so asyncio code calls `read` in a thread.
"""

import os
from pathlib import Path

from drawbar.driver.node import errors
from drawbar.driver.node.inventory import cards, children, cxl, dax, fpga, functions, model, slots

SYSFS = Path("/sys")


def read(sysfs: Path = SYSFS) -> model.Inventory:
    """Everything that the tree shows.

    A host without PCI (a container, a small virtual machine) has an empty inventory.

    Raises:
        SysfsError: there is no readable sysfs tree at `sysfs`.
    """
    root = os.fspath(sysfs)
    found = addresses(root)
    all_slots = slots.read(root)
    around = surroundings(root, all_slots)
    topology = cxl.read(root)
    devices = (dax.read_one(root, name) for name in sorted(dax.names(root), key=dax.order))
    return model.Inventory(
        functions=tuple(
            function for address in found if (function := functions.read(root, address, around)) is not None
        ),
        slots=all_slots,
        memdevs=topology.memdevs,
        ports=topology.ports,
        decoders=topology.decoders,
        regions=topology.regions,
        dax=tuple(device for device in devices if device is not None),
    )


def read_function(sysfs: Path, address: str) -> model.PciFunction | None:
    """One function, or None if it is not there; reads nothing of the other functions."""
    if not children.ADDRESS.fullmatch(address):
        return None
    root = os.fspath(sysfs)
    return functions.read(root, address, surroundings(root, slots.read(root)))


def surroundings(root: str, known: tuple[model.Slot, ...]) -> functions.Surroundings:
    """What every function is related to, with the slots as they are known."""
    return functions.Surroundings(slots=slots.addresses(known), managers=fpga.paths(root))


def addresses(root: str) -> list[str]:
    """The addresses of all functions, in order.

    Raises:
        SysfsError: there is no readable sysfs tree.
    """
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
    return sorted(names, key=cards.order)
