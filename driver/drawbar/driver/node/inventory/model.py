"""The inventory of a node's PCI and CXL devices, as one value.

An `Inventory` is a snapshot: it never changes. What it is asked for by address or serial is found through an `Index`,
which the live model hands over with the snapshot, and which is built on the first question otherwise.
"""

import dataclasses
import functools

from drawbar.driver.node.inventory import index
from drawbar.driver.node.inventory.cards import Card
from drawbar.driver.node.inventory.values import (
    DaxDevice,
    Decoder,
    DeviceNode,
    FpgaManager,
    Link,
    Memdev,
    NvmeController,
    PciFunction,
    Port,
    Region,
    Slot,
    Sriov,
)

__all__ = [
    "Card",
    "DaxDevice",
    "Decoder",
    "DeviceNode",
    "FpgaManager",
    "Inventory",
    "Link",
    "Memdev",
    "NvmeController",
    "PciFunction",
    "Port",
    "Region",
    "Slot",
    "Sriov",
]


# Without slots, for `cached_property` keeps its answer in the instance's dictionary.
@dataclasses.dataclass(frozen=True, kw_only=True)
class Inventory:
    """Everything that was read, in order of address or name.

    Attributes:
        known: the index of just these functions, if there is one already.
    """

    functions: tuple[PciFunction, ...]
    slots: tuple[Slot, ...] = ()
    memdevs: tuple[Memdev, ...] = ()
    ports: tuple[Port, ...] = ()
    decoders: tuple[Decoder, ...] = ()
    regions: tuple[Region, ...] = ()
    dax: tuple[DaxDevice, ...] = ()
    known: index.Index | None = dataclasses.field(default=None, repr=False, compare=False)

    @property
    def cards(self) -> tuple[Card, ...]:
        """Every card, in order of the address of its first function; those of nothing but bridges, too."""
        return self._index.ordered

    def card_of(self, address: str) -> Card | None:
        """The card that the function at this address belongs to, or None."""
        return self._index.card_of(address)

    def by_address(self, address: str) -> PciFunction | None:
        """The function at an address, or None."""
        return self._index.functions.get(address)

    def by_serial(self, serial: str) -> PciFunction | None:
        """The function with this serial, or None.

        NVMe serials match without regard to case and padding, CXL serials and Device Serial Numbers by
        number, in any notation. Of several functions the one with the lowest address counts, so of a
        card with several functions it is function 0; `all_by_serial` shows whether there are more.
        """
        return next(iter(self.all_by_serial(serial)), None)

    def all_by_serial(self, serial: str) -> tuple[PciFunction, ...]:
        """Every function with this serial: the functions of one card, or two cards that claim the same."""
        return self._index.by_serial(serial)

    @functools.cached_property
    def _index(self) -> index.Index:
        return self.known if self.known is not None else index.build(self.functions, self.slots, self.memdevs)
