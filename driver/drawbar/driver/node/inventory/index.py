"""Finds functions by address, serial or card without looking at all of them.

An `Index` belongs to one snapshot and does not change; `Entries` is what it is made from, and changes one function at
a time, so that a hot-plug event costs little on a host with thousands of functions.
"""

import bisect
import dataclasses
from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

from drawbar.driver.node.inventory import cards, serials, values
from drawbar.driver.node.inventory.classification import FunctionClass

_Item = TypeVar("_Item")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """Where the functions of one snapshot are.

    Attributes:
        functions: by address.
        addresses: by serial, as canonical text and as the numbers that the text can mean.
        groups: cards by `cards.group`.
        ordered: every card, in order of address.
    """

    functions: Mapping[str, values.PciFunction]
    addresses: Mapping[str | int, tuple[str, ...]]
    groups: Mapping[str, cards.Card]
    ordered: tuple[cards.Card, ...]

    def card_of(self, address: str) -> cards.Card | None:
        """The card of the function at this address, or None."""
        function = self.functions.get(address)
        return None if function is None else self.groups.get(cards.group(function))

    def by_serial(self, serial: str) -> tuple[values.PciFunction, ...]:
        """Functions whose serial is written just so, then those that have it in another notation."""
        wanted = serials.canonical(serial)
        if not wanted:
            return ()
        exact = set(self.addresses.get(wanted, ()))
        alike = {address for number in serials.numbers(wanted) for address in self.addresses.get(number, ())}
        found = [*sorted(exact, key=cards.order), *sorted(alike - exact, key=cards.order)]
        return tuple(self.functions[address] for address in found)


class Entries:
    """The functions by everything that one may ask for; `slots` and `memdevs` are what cards show of others.

    Attributes:
        slots: by name, and in order of it.
        memdevs: by the address of their function. Whoever changes one of these two calls `touch`.
    """

    def __init__(self) -> None:
        self.slots: dict[str, values.Slot] = {}
        self.memdevs: dict[str, tuple[values.Memdev, ...]] = {}
        self._functions: dict[str, values.PciFunction] = {}
        self._ordered = _Ordered[values.PciFunction]()
        self._serials: dict[str | int, tuple[str, ...]] = {}
        self._members: dict[str, frozenset[str]] = {}
        self._groups: dict[str, cards.Card] = {}
        self._ordered_groups = _Ordered[cards.Card]()
        self._stale: set[str] = set()

    @property
    def functions(self) -> Mapping[str, values.PciFunction]:
        """By address, in no order."""
        return self._functions

    def ordered(self) -> tuple[values.PciFunction, ...]:
        """Every function, in order of address."""
        return tuple(self._ordered.items)

    def card_of(self, address: str) -> cards.Card | None:
        """The card of the function at this address, or None."""
        self._regroup()
        function = self._functions.get(address)
        return None if function is None else self._groups.get(cards.group(function))

    def members(self, group: str) -> frozenset[str]:
        """The addresses of the functions of one card."""
        return self._members.get(group, frozenset())

    def put(self, address: str, function: values.PciFunction | None) -> None:
        """The function at this address is now this one, or gone."""
        before = self._functions.get(address)
        if before is not None:
            self._forget(before)
            del self._functions[address]
            self._ordered.remove(cards.order(address))
        if function is not None:
            self._functions[address] = function
            self._ordered.insert(cards.order(address), function)
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

    def _learn(self, function: values.PciFunction) -> None:
        for key in _keys(function):
            self._serials[key] = (*self._serials.get(key, ()), function.address)
        group = cards.group(function)
        self._members[group] = self.members(group) | {function.address}
        self._stale.add(group)

    def _forget(self, function: values.PciFunction) -> None:
        for key in _keys(function):
            others = tuple(address for address in self._serials[key] if address != function.address)
            if others:
                self._serials[key] = others
            else:
                del self._serials[key]
        group = cards.group(function)
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
                self._ordered_groups.remove(cards.order(before.address))
        for group in self._stale:
            members = self._members.get(group)
            if members:
                card = cards.make((self._functions[address] for address in members), self.slots, self.memdevs)
                self._groups[group] = card
                self._ordered_groups.insert(cards.order(card.address), card)
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
    functions: Iterable[values.PciFunction],
    slots: Iterable[values.Slot],
    memdevs: Iterable[values.Memdev],
) -> Index:
    """The index of a snapshot that has none yet."""
    entries = Entries()
    entries.slots = {slot.name: slot for slot in slots}
    entries.memdevs = by_function(memdevs)
    for function in functions:
        entries.put(function.address, function)
    return entries.index()


def by_function(memdevs: Iterable[values.Memdev]) -> dict[str, tuple[values.Memdev, ...]]:
    """Memory devices by the address of their function."""
    found: dict[str, tuple[values.Memdev, ...]] = {}
    for memdev in memdevs:
        if memdev.pci_address is not None:
            found[memdev.pci_address] = (*found.get(memdev.pci_address, ()), memdev)
    return found


def _keys(function: values.PciFunction) -> frozenset[str | int]:
    """Everything by which the serial of a function may be asked for.

    A number is meant only where numbers are serials: `4660` is a CXL device's 0x1234, and no NVMe disk's.
    """
    found: set[str | int] = {serials.canonical(text) for text in (function.serial, function.dsn) if text}
    if function.dsn:
        found |= serials.numbers(function.dsn)
    if function.serial and function.device_class is FunctionClass.CXL_MEMORY:
        found |= serials.numbers(function.serial)
    return frozenset(key for key in found if key != "")
