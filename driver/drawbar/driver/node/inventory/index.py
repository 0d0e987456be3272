"""The inventory of a node's PCI and CXL devices as one value, and how functions are found in it; pure.

An `Inventory` is a snapshot: it never changes. Its `Index` finds functions by address, serial or card without looking at
all of them. `Entries` is what an index is made from, and changes one function at a time, so that a hot-plug event costs
little on a host with thousands of functions.
"""

import bisect
import dataclasses
import functools
from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

from drawbar.driver.node.inventory import model
from drawbar.driver.node.inventory.model import (
    Card,
    DaxDevice,
    Decoder,
    Memdev,
    PciFunction,
    Port,
    Region,
    Slot,
)
from drawbar.fabric import recognition, witnesses
from drawbar.fabric.classes import DeviceClass

_Item = TypeVar("_Item")
Key = str | int | tuple[witnesses.Kind, str]
"""What a function is looked up by."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """Where the functions of one snapshot are.

    Attributes:
        functions: by address.
        addresses: by serial, as canonical text and as the numbers that the text can mean; and by identifier, as its kind and
            value, including those that follow from others (`recognition.expanded`).
        groups: cards by `cards.group`.
        ordered: every card, in order of address.
    """

    functions: Mapping[str, model.PciFunction]
    addresses: Mapping[Key, tuple[str, ...]]
    groups: Mapping[str, model.Card]
    ordered: tuple[model.Card, ...]

    def card_of(self, address: str) -> model.Card | None:
        """The card of the function at this address, or None."""
        function = self.functions.get(address)
        return None if function is None else self.groups.get(model.card_group(function))

    def cards_with(self, kind: witnesses.Kind, value: str) -> tuple[model.Card, ...]:
        """Return the cards with a function that shows this identifier, or one that it follows from."""
        shown = (self.card_of(address) for address in self.addresses.get((kind, value), ()))
        return tuple({card.address: card for card in shown if card is not None}.values())

    def by_serial(self, serial: str) -> tuple[model.PciFunction, ...]:
        """Functions whose serial is written just so, then those that have it in another notation."""
        wanted = model.canonical_serial(serial)
        if not wanted:
            return ()
        exact = set(self.addresses.get(wanted, ()))
        alike = {
            address for number in model.serial_numbers(wanted) for address in self.addresses.get(number, ())
        }
        addresses = [*sorted(exact, key=model.address_order), *sorted(alike - exact, key=model.address_order)]
        return tuple(self.functions[address] for address in addresses)


class Entries:
    """The functions by everything that one may ask for; `slots` and `memdevs` are what cards show of others.

    Attributes:
        slots: by name, and in order of it.
        memdevs: by the address of their function. Whoever changes one of these two calls `touch`.
    """

    def __init__(self) -> None:
        self.slots: dict[str, model.Slot] = {}
        self.memdevs: dict[str, tuple[model.Memdev, ...]] = {}
        self._functions: dict[str, model.PciFunction] = {}
        self._ordered = _Ordered[model.PciFunction]()
        self._serials: dict[Key, tuple[str, ...]] = {}
        self._members: dict[str, frozenset[str]] = {}
        self._groups: dict[str, model.Card] = {}
        self._ordered_groups = _Ordered[model.Card]()
        self._stale: set[str] = set()

    @property
    def functions(self) -> Mapping[str, model.PciFunction]:
        """By address, in no order."""
        return self._functions

    def ordered(self) -> tuple[model.PciFunction, ...]:
        """Every function, in order of address."""
        return tuple(self._ordered.items)

    def card_of(self, address: str) -> model.Card | None:
        """The card of the function at this address, or None."""
        self._regroup()
        function = self._functions.get(address)
        return None if function is None else self._groups.get(model.card_group(function))

    def members(self, group: str) -> frozenset[str]:
        """The addresses of the functions of one card."""
        return self._members.get(group, frozenset())

    def put(self, address: str, function: model.PciFunction | None) -> None:
        """The function at this address is now this one, or gone."""
        before = self._functions.get(address)
        if before is not None:
            self._forget(before)
            del self._functions[address]
            self._ordered.remove(model.address_order(address))
        if function is not None:
            self._functions[address] = function
            self._ordered.insert(model.address_order(address), function)
            self._learn(function)

    def touch(self, group: str) -> None:
        """Something about a card has changed that is not in its functions."""
        self._stale.add(group)

    def index(self) -> Index:
        """The index as it is now."""
        self._regroup()
        return Index(
            functions=self._functions.copy(),
            addresses=self._serials.copy(),
            groups=self._groups.copy(),
            ordered=tuple(self._ordered_groups.items),
        )

    def _learn(self, function: model.PciFunction) -> None:
        for key in _keys(function):
            self._serials[key] = (*self._serials.get(key, ()), function.address)
        group = model.card_group(function)
        self._members[group] = self.members(group) | {function.address}
        self._stale.add(group)

    def _forget(self, function: model.PciFunction) -> None:
        for key in _keys(function):
            rest = tuple(address for address in self._serials[key] if address != function.address)
            if rest:
                self._serials[key] = rest
            else:
                del self._serials[key]
        group = model.card_group(function)
        others_here = self._members[group] - {function.address}
        if others_here:
            self._members[group] = others_here
        else:
            del self._members[group]
        self._stale.add(group)

    def _regroup(self) -> None:
        """Makes the cards anew whose functions changed, or something else that they show."""
        # All the old ones go before any new one comes: a card that changed its group has its address in both.
        for group in self._stale:
            before = self._groups.pop(group, None)
            if before is not None:
                self._ordered_groups.remove(model.address_order(before.address))
        for group in self._stale:
            members = self._members.get(group)
            if members:
                card = model.make_card(
                    (self._functions[address] for address in members), self.slots, self.memdevs
                )
                self._groups[group] = card
                self._ordered_groups.insert(model.address_order(card.address), card)
        self._stale.clear()


class _Ordered(Generic[_Item]):
    """Items in order of their keys, each key once; `items` is ready at any time."""

    def __init__(self) -> None:
        self.items: list[_Item] = []
        self._keys: list[tuple[int, str]] = []

    def insert(self, key: tuple[int, str], item: _Item) -> None:
        place = bisect.bisect_left(self._keys, key)
        self._keys.insert(place, key)
        self.items.insert(place, item)

    def remove(self, key: tuple[int, str]) -> None:
        place = bisect.bisect_left(self._keys, key)
        del self._keys[place], self.items[place]


def build(
    functions: Iterable[model.PciFunction], slots: Iterable[model.Slot], memdevs: Iterable[model.Memdev]
) -> Index:
    """The index of a snapshot that has none yet."""
    entries = Entries()
    entries.slots = {slot.name: slot for slot in slots}
    entries.memdevs = by_function(memdevs)
    for function in functions:
        entries.put(function.address, function)
    return entries.index()


def by_function(memdevs: Iterable[model.Memdev]) -> dict[str, tuple[model.Memdev, ...]]:
    """Memory devices by the address of their function."""
    by_address: dict[str, tuple[model.Memdev, ...]] = {}
    for memdev in memdevs:
        if memdev.pci_address is not None:
            by_address[memdev.pci_address] = (*by_address.get(memdev.pci_address, ()), memdev)
    return by_address


def _keys(function: model.PciFunction) -> frozenset[Key]:
    """Everything by which a function may be looked up, except its address.

    A number is meant only where numbers are serials: `4660` is a CXL device's 0x1234, and no NVMe disk's.
    """
    keys: set[Key] = {model.canonical_serial(text) for text in (function.serial, function.dsn) if text}
    if function.dsn:
        keys |= model.serial_numbers(function.dsn)
    if function.serial and function.device_class is DeviceClass.CXL_MEMORY:
        keys |= model.serial_numbers(function.serial)
    if function.identifiers:
        keys |= {(each.kind, each.value) for each in recognition.expanded(function.identifiers)}
    return frozenset(key for key in keys if key != "")


# Without slots, for `cached_property` keeps its answer in the instance's dictionary.
@dataclasses.dataclass(frozen=True, kw_only=True)
class Inventory:
    """Everything that was read, in order of address or name.

    Attributes:
        prebuilt: the index of just these functions, if there is one already.
    """

    functions: tuple[PciFunction, ...]
    slots: tuple[Slot, ...] = ()
    memdevs: tuple[Memdev, ...] = ()
    ports: tuple[Port, ...] = ()
    decoders: tuple[Decoder, ...] = ()
    regions: tuple[Region, ...] = ()
    dax: tuple[DaxDevice, ...] = ()
    prebuilt: Index | None = dataclasses.field(default=None, repr=False, compare=False)

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

    def cards_with(self, kind: witnesses.Kind, value: str) -> tuple[Card, ...]:
        """Return the cards that show this identifier, or one that it follows from; see `Card.identifiers`."""
        cards = {card.address: card for card in self._index.cards_with(kind, value)}
        for memdev in self.memdevs if kind is witnesses.Kind.PCIE_DSN else ():
            card = self.card_of(memdev.pci_address or "")
            if memdev.serial and card is not None and model.dashed_serial(memdev.serial) == value:
                cards[card.address] = card
        return tuple(cards.values())

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
    def _index(self) -> Index:
        return self.prebuilt if self.prebuilt is not None else build(self.functions, self.slots, self.memdevs)
