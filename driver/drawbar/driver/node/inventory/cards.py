"""Which functions make one card: what comes and goes together, so what a fabric calls a device.

Together belong, in this order: a virtual function and its physical one; everything in or below one hot-plug slot, so
also a card with a switch of its own; and the functions of one multi-function device. Functions below a slot that is
itself below another slot belong to the nearer one: an enclosure in a slot has slots of its own.
"""

import dataclasses
from collections.abc import Iterable, Mapping

from drawbar.driver.node.inventory import serials, values
from drawbar.driver.node.inventory.classification import FunctionClass


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """The functions that come and go together, so what a fabric calls a device.

    Attributes:
        functions: the first is what the card is known by. Bridges come last and virtual functions after physical
            ones; otherwise they are in order of address.
        slot: the hot-plug slot that it sits in, as it is now; None where its port has none.
        memdevs: the CXL memory devices of its functions.
    """

    functions: tuple[values.PciFunction, ...]
    slot: values.Slot | None = None
    memdevs: tuple[values.Memdev, ...] = ()

    @property
    def first(self) -> values.PciFunction:
        """The function that the card is known by: physical, and no bridge where it has others."""
        return self.functions[0]

    @property
    def address(self) -> str:
        """PCI address of the first function."""
        return self.first.address

    @property
    def device_class(self) -> FunctionClass:
        """What the first function is; `BRIDGE` for a card of nothing but bridges."""
        return self.first.device_class

    @property
    def serial(self) -> str | None:
        """The serial number that tells this card from others, if it has one.

        Whether its driver is bound or not, a CXL device has one number; it is written as a Device Serial Number is.
        """
        for function in self.functions:
            text = function.serial
            if text and function.device_class is FunctionClass.CXL_MEMORY:
                numbers = serials.numbers(text)
                return serials.dashed(min(numbers)) if len(numbers) == 1 else text
            if text:
                return text
        return next((serials.dashed(each.serial) for each in self.memdevs if each.serial), None)

    @property
    def device_nodes(self) -> tuple[values.DeviceNode, ...]:
        """The device files of all functions."""
        return tuple(node for function in self.functions for node in function.device_nodes)


def group(function: values.PciFunction) -> str:
    """What the functions of one card have in common: `slot <name>`, or `<domain>:<bus>:<device>`."""
    if function.slot is not None:
        return of_slot(function.slot)
    return (function.physical_function or function.address).rpartition(".")[0]


def of_slot(name: str) -> str:
    """The group of what sits in the slot of this name."""
    return f"slot {name}"


def make(
    functions: Iterable[values.PciFunction],
    slots: Mapping[str, values.Slot],
    memdevs: Mapping[str, tuple[values.Memdev, ...]],
) -> Card:
    """The card of functions that belong to one `group`.

    Args:
        functions: one or more.
        slots: by name.
        memdevs: by the address of their function.
    """
    ordered = tuple(sorted(functions, key=_rank))
    name = ordered[0].slot
    return Card(
        functions=ordered,
        slot=slots.get(name) if name is not None else None,
        memdevs=tuple(memdev for function in ordered for memdev in memdevs.get(function.address, ())),
    )


def order(address: str) -> tuple[int, str]:
    """Sorts addresses: domains of five digits come after those of four."""
    return len(address), address


def _rank(function: values.PciFunction) -> tuple[bool, bool, tuple[int, str]]:
    bridge = function.device_class is FunctionClass.BRIDGE
    return bridge, function.physical_function is not None, order(function.address)
