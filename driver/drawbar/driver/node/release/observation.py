"""Looks at the kernel for a release: what is left of the device, who uses it, and what its slot does.

Reads everything anew; the card that was asked about only says which functions are meant. Blocks: call it in a thread.

A device whose serial number comes from its driver (NVMe) is nameless once that is unbound, so after a crash between
unbinding and removal the inventory does not know it. What is found in its slot without a driver and without a serial
number is it: the fabric has put nothing else there before it was told that the device is free.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from drawbar.driver.node import classes
from drawbar.driver.node.classes import users
from drawbar.driver.node.discovery import reader
from drawbar.driver.node.inventory import cxl, files, model, pci
from drawbar.driver.node.inventory.model import FunctionClass
from drawbar.driver.node.release import plan

_FUNCTIONS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What was seen.

    Attributes:
        card: the functions that are left, fresh; None when none is.
    """

    observed: plan.Observed
    card: model.Card | None


def look(host: classes.Host, card: model.Card | None, slot: str, device_class: str | None) -> Sight:
    """Everything about one device.

    Args:
        host: where to look.
        card: as it was last seen; None when the inventory has no such device any more.
        slot: the name of its slot; empty where it sits in none.
        device_class: what it is treated as; None for what its first function is.
    """
    in_slot = tuple(_in_slot(host, slot))
    own = _own(host, card, in_slot)
    found = _card(host, own)
    used: tuple[users.User, ...] = ()
    unrest = None
    if found is not None:
        operations = classes.of(device_class or found.first.device_class)
        used, unrest = operations.users(host, found), operations.unrest(host, found)
    return Sight(
        observed=plan.Observed(
            functions=tuple(_function(function) for function in own),
            slot=_slot(host, slot, taken=bool(in_slot) and not own),
            used_by=used,
            unrest=unrest,
        ),
        card=found,
    )


def _own(
    host: classes.Host, card: model.Card | None, in_slot: tuple[model.PciFunction, ...]
) -> tuple[model.PciFunction, ...]:
    """What is left of the device, and everything that loses its power with it."""
    known = card.functions if card is not None else ()
    seen = {function.address: function for function in in_slot}
    found = {fresh.address: fresh for one in known if (fresh := _again(host, one, seen)) is not None}
    if found or all(_is_nameless(function) for function in in_slot):
        found |= {function.address: function for function in in_slot}
    for function in tuple(found.values()):
        for address in function.sriov.virtual_functions if function.sriov is not None else ():
            virtual = reader.read_function(host.sysfs, address)
            if virtual is not None:
                found.setdefault(address, virtual)
    return tuple(found.values())


def _again(
    host: classes.Host, known: model.PciFunction, seen: Mapping[str, model.PciFunction]
) -> model.PciFunction | None:
    """The function as it is now; None if it is gone, or its address is another device's by now.

    What was `seen` in the slot is not read again: gone by then, it would be what has taken the slot from itself.
    """
    fresh = seen.get(known.address) or reader.read_function(host.sysfs, known.address)
    return fresh if fresh is not None and _is_same(fresh, known) else None


def _is_same(fresh: model.PciFunction, known: model.PciFunction) -> bool:
    """Whether two looks saw one device. Without a driver another number may stand for its serial, or none."""
    if (fresh.vendor, fresh.device) != (known.vendor, known.device):
        return False
    if fresh.dsn and known.dsn:
        return fresh.dsn == known.dsn
    if fresh.driver is None or known.driver is None or not fresh.serial or not known.serial:
        return True
    return model.canonical_serial(fresh.serial) == model.canonical_serial(known.serial)


def _is_nameless(function: model.PciFunction) -> bool:
    """Without a driver, and so without the serial number that the inventory knows it by."""
    named = function.serial is not None and function.device_class is not FunctionClass.NVME
    return function.driver is None and not named


def _in_slot(host: classes.Host, slot: str) -> Iterator[model.PciFunction]:
    """Every function in or below a slot."""
    place = files.text(f"{host.sysfs}/bus/pci/slots/{slot}/address") if slot else None
    for number in range(_FUNCTIONS if place else 0):
        link = files.link_target(f"{host.sysfs}/bus/pci/devices/{place}.{number}")
        if link is not None:
            port = files.below_root(link).rpartition("/")[0]
            for address in _below(host, port):
                function = reader.read_function(host.sysfs, address)
                if function is not None:
                    yield function
            return


def _below(host: classes.Host, path: str) -> Iterator[str]:
    for name in files.names(f"{host.sysfs}/{path}"):
        if pci.ADDRESS.fullmatch(name):
            yield name
            yield from _below(host, f"{path}/{name}")


def _card(host: classes.Host, own: Iterable[model.PciFunction]) -> model.Card | None:
    functions = tuple(sorted(own, key=_rank))
    if not functions:
        return None
    addresses = {function.address for function in functions}
    memdevs = cxl.read(os.fspath(host.sysfs)).memdevs
    return model.Card(
        functions=functions, memdevs=tuple(one for one in memdevs if one.pci_address in addresses)
    )


def _rank(function: model.PciFunction) -> tuple[bool, bool, str]:
    """As in the inventory: what the card is known by comes first."""
    bridge = function.device_class is FunctionClass.BRIDGE
    return bridge, function.physical_function is not None, function.address


def _function(function: model.PciFunction) -> plan.Function:
    return plan.Function(
        address=function.address,
        path=function.path,
        bound=function.driver is not None and function.device_class is not FunctionClass.BRIDGE,
        vfs=function.sriov.num_vfs if function.sriov is not None else 0,
        virtual=function.physical_function is not None,
    )


def _slot(host: classes.Host, name: str, *, taken: bool) -> plan.Slot | None:
    folder = f"{host.sysfs}/bus/pci/slots/{name}"
    if not name or not files.names(folder):
        return None
    return plan.Slot(
        name=name,
        powered=_flag(files.number(folder + "/power")),
        present=_flag(files.number(folder + "/adapter")),
        taken=taken,
    )


def _flag(value: int | None) -> bool | None:
    return None if value is None else value != 0
