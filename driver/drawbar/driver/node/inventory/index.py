"""The inventory of a node's PCI and CXL devices as one value, and the search for functions in it. Pure.

An `Inventory` is an immutable snapshot. Its `Index` finds functions by address, serial or card without a scan. `Entries`
builds an index, and changes one function at a time. A hot-plug event is therefore cheap on a host with thousands of
functions.
"""

import bisect
import dataclasses
import functools
from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

import msgspec

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
"""A key to look up functions."""


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """The lookup tables of one snapshot.

    Attributes:
        functions: by address.
        addresses: by serial, as canonical text and as each number it can mean; and by the kind and value of an identifier,
            including derived identifiers (`recognition.expand`).
        groups: cards by `model.card_group`.
        ordered: every card, in order of address.
    """

    functions: Mapping[str, model.PciFunction]
    addresses: Mapping[Key, tuple[str, ...]]
    groups: Mapping[str, model.Card]
    ordered: tuple[model.Card, ...]

    def card_of(self, address: str) -> model.Card | None:
        """Return the card of the function at this address, or None."""
        function = self.functions.get(address)
        return None if function is None else self.groups.get(model.card_group(function))

    def cards_with(self, kind: witnesses.Kind, value: str) -> tuple[model.Card, ...]:
        """Return the cards with this identifier, or with one that implies it."""
        shown = (self.card_of(address) for address in self.addresses.get((kind, value), ()))
        return tuple({card.address: card for card in shown if card is not None}.values())

    def by_serial(self, serial: str) -> tuple[model.PciFunction, ...]:
        """Return the functions with exactly this serial, then those with the same serial in another notation."""
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
    """A mutable index of functions, slots and memory devices; after a change of `slots` or `memdevs` call `touch`.

    Attributes:
        slots: by name, in order of name.
        memdevs: by the address of their function.
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
        """Return the functions by address, unordered."""
        return self._functions

    def list_functions(self) -> tuple[model.PciFunction, ...]:
        """Return every function, in order of address."""
        return tuple(self._ordered.items)

    def card_of(self, address: str) -> model.Card | None:
        """Return the card of the function at this address, or None."""
        self._regroup()
        function = self._functions.get(address)
        return None if function is None else self._groups.get(model.card_group(function))

    def members(self, group: str) -> frozenset[str]:
        """Return the addresses of the functions of one card."""
        return self._members.get(group, frozenset())

    def put(self, address: str, function: model.PciFunction | None) -> None:
        """Replace the function at this address, or remove it if `function` is None."""
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
        """Mark a card as changed, for changes outside its functions."""
        self._stale.add(group)

    def index(self) -> Index:
        """Return the current index."""
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
        """Rebuild the changed cards."""
        # Remove all old cards first: a card that changed its group has the same address in both.
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
    """Items in order of their keys, each key once; `items` is always sorted."""

    def __init__(self) -> None:
        self.items: list[_Item] = []
        self._keys: list[tuple[int, str]] = []

    def insert(self, key: tuple[int, str], item: _Item) -> None:
        position = bisect.bisect_left(self._keys, key)
        self._keys.insert(position, key)
        self.items.insert(position, item)

    def remove(self, key: tuple[int, str]) -> None:
        position = bisect.bisect_left(self._keys, key)
        del self._keys[position], self.items[position]


def build(
    functions: Iterable[model.PciFunction], slots: Iterable[model.Slot], memdevs: Iterable[model.Memdev]
) -> Index:
    """Return the index of these functions, slots and memory devices."""
    entries = Entries()
    entries.slots = {slot.name: slot for slot in slots}
    entries.memdevs = by_function(memdevs)
    for function in functions:
        entries.put(function.address, function)
    return entries.index()


def by_function(memdevs: Iterable[model.Memdev]) -> dict[str, tuple[model.Memdev, ...]]:
    """Return memory devices by the address of their function."""
    by_address: dict[str, tuple[model.Memdev, ...]] = {}
    for memdev in memdevs:
        if memdev.pci_address is not None:
            by_address[memdev.pci_address] = (*by_address.get(memdev.pci_address, ()), memdev)
    return by_address


def _keys(function: model.PciFunction) -> frozenset[Key]:
    """Return all keys of a function except its address.

    Numbers count only for serials that are numbers: `4660` is a CXL device's 0x1234, and never an NVMe disk's.
    """
    keys: set[Key] = {model.canonical_serial(text) for text in (function.serial, function.dsn) if text}
    if function.dsn:
        keys |= model.serial_numbers(function.dsn)
    if function.serial and function.device_class is DeviceClass.CXL_MEMORY:
        keys |= model.serial_numbers(function.serial)
    if function.identifiers:
        keys |= {(each.kind, each.value) for each in recognition.expand(function.identifiers)}
    return frozenset(key for key in keys if key != "")


# Without slots, because `cached_property` stores its result in the instance's dictionary.
@dataclasses.dataclass(frozen=True, kw_only=True)
class Inventory:
    """All devices of one reading, in order of address or name.

    Attributes:
        prebuilt: the index of exactly these functions, if there is one already.
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
        """Return every card, in order of the address of its first function, including cards with bridges only."""
        return self._index.ordered

    def card_of(self, address: str) -> Card | None:
        """Return the card of the function at this address, or None."""
        return self._index.card_of(address)

    def by_address(self, address: str) -> PciFunction | None:
        """Return the function at an address, or None."""
        return self._index.functions.get(address)

    def cards_with(self, kind: witnesses.Kind, value: str) -> tuple[Card, ...]:
        """Return the cards with this identifier, or with one that implies it; see `Card.identifiers`."""
        cards = {card.address: card for card in self._index.cards_with(kind, value)}
        for memdev in self.memdevs if kind is witnesses.Kind.PCIE_DSN else ():
            card = self.card_of(memdev.pci_address or "")
            if memdev.serial and card is not None and model.format_serial(memdev.serial) == value:
                cards[card.address] = card
        return tuple(cards.values())

    def by_serial(self, serial: str) -> PciFunction | None:
        """Return the function with this serial, or None.

        NVMe serials match regardless of case and padding, CXL serials and Device Serial Numbers by number, in any notation. Of
        several functions, one with exactly this notation comes first, then the lowest address. For a card with several
        functions this is function 0. `all_by_serial` returns all of them.
        """
        return next(iter(self.all_by_serial(serial)), None)

    def all_by_serial(self, serial: str) -> tuple[PciFunction, ...]:
        """Return every function with this serial: the functions of one card, or of two cards with the same serial."""
        return self._index.by_serial(serial)

    @functools.cached_property
    def _index(self) -> Index:
        return self.prebuilt if self.prebuilt is not None else build(self.functions, self.slots, self.memdevs)
