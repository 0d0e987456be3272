"""A mocked host in a state: queries about slots, cards and addresses, and the checks of changes."""

import functools
import re
from collections.abc import Sequence

from drawbar.fabric.contract import DeviceClass
from drawbar.mocks.sysfs import cards, errors, layouts, regions, sriov, states
from drawbar.mocks.sysfs.device import MockDevice
from drawbar.mocks.sysfs.slots import Slot
from drawbar.mocks.sysfs.steps import Step

MOST_SLOTS = layouts.MOST_SLOTS
"""The maximum number of slots of a host with the plain layout."""
_ADDRESS = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):00\.0")


class Host:
    """A host in a state; `name` is its name in messages."""

    def __init__(self, name: str, state: states.State) -> None:
        self._name = name
        self._state = state

    @functools.cached_property
    def layout(self) -> layouts.Layout:
        """Return its layout."""
        return layouts.find_layout(self._state.layout, self._state.slots)

    def find_slot(self, number: int) -> Slot:
        """Return a slot by its number.

        Raises:
            ImpossibleWorld: there is no slot of the number.
        """
        slot = self.layout.slots.get(number)
        if slot is None:
            raise errors.ImpossibleWorld(
                f"the mocked host {self._name} has slots 1 to {self._state.slots}, no slot {number}"
            )
        return slot

    def inserted_card(self, slot: int) -> states.InsertedCard:
        """Return the card in a slot.

        Raises:
            ImpossibleWorld: there is no such slot, or no card in it.
        """
        self.find_slot(slot)
        inserted = self._state.inserted_cards.get(slot)
        if inserted is None:
            raise errors.ImpossibleWorld(
                f"slot {slot} of the mocked host {self._name} is empty: attach a card"
            )
        return inserted

    def find_running_card(self, slot: int) -> states.InsertedCard:
        """Return the card in a slot, if it came up.

        Raises:
            ImpossibleWorld: there is no such slot, no card in it, or it did not come up.
        """
        inserted = self.inserted_card(slot)
        if not inserted.shown:
            why = "its slot is off" if not inserted.powered else inserted.arrival.value
            raise errors.ImpossibleWorld(
                f"the card in slot {slot} has not come up ({'removed' if inserted.removed else why})"
            )
        return inserted

    def address(self, slot: int) -> str:
        """Return the PCI address of the card in a slot, or that of the next card if the slot is empty."""
        found = self.find_slot(slot)
        inserted = self._state.inserted_cards.get(slot)
        bus = found.bus if inserted is None or inserted.bus is None else inserted.bus
        behind = inserted is not None and inserted.device.switch
        return f"{found.make_address(bus + cards.BUSES_OF_SWITCH if behind else bus)}.0"

    def free_bus(self, slot: int, address: str | None) -> int | None:
        """Return the bus in an address, or None without an address; then the slot's own bus is used.

        Raises:
            ImpossibleWorld: the slot is missing or occupied, or the address is impossible or taken.
        """
        found = self.find_slot(slot)
        if slot in self._state.inserted_cards:
            raise errors.ImpossibleWorld(
                f"slot {slot} of the mocked host {self._name} is occupied: detach it first"
            )
        if address is None:
            return None
        match = _ADDRESS.fullmatch(address)
        if match is None or int(match[1], 16) != found.domain:
            raise errors.ImpossibleWorld(
                f"a card in a slot cannot have the address {address}: give {found.domain:04x}:<bus>:00.0"
            )
        bus = int(match[2], 16)
        taken = {other.bus for other in self._state.inserted_cards.values() if other.bus is not None}
        if bus in self.layout.buses(beside=found) | taken:
            raise errors.ImpossibleWorld(f"bus {bus:02x} of {address} is another's: choose one that is free")
        return bus

    def check_room(self, slot: int, device: MockDevice) -> None:
        """Raise ImpossibleWorld unless the slot's port has enough buses for the card."""
        room = self.find_slot(slot).room
        if device.buses > room:
            raise errors.ImpossibleWorld(
                f"a card with {device.buses} buses does not fit behind slot {slot}, which has {room}: choose another slot"
            )

    def seat(self, slot: int) -> cards.Seat:
        """Return the seat of the card in a slot."""
        found, inserted = self.find_slot(slot), self.inserted_card(slot)
        return cards.Seat(
            slot=found,
            bus=found.bus if inserted.bus is None else inserted.bus,
            instance=inserted.instance,
            iommu=self._state.iommu,
            switch=inserted.device.switch,
            endpoint=self.layout.first_endpoint + inserted.instance,
        )

    def steps(self, slot: int) -> tuple[Step, ...]:
        """Return all steps by which the card in a slot came into the tree."""
        inserted, seat = self.inserted_card(slot), self.seat(slot)
        return (
            *cards.steps(seat, inserted.card),
            *sriov.steps(seat, inserted.card, inserted.vfs, inserted.vf_drivers),
        )

    def slot_at(self, address: str) -> int | None:
        """Return the slot of the card whose first or virtual function has this address, or None."""
        for slot in self._state.inserted_cards:
            seat, inserted = self.seat(slot), self.inserted_card(slot)
            virtual = sriov.addresses(seat, inserted.vfs)
            if address == seat.address or address in virtual:
                return slot
        return None

    def new_region(
        self, slots: Sequence[int], present: Sequence[regions.Region] | None = None
    ) -> regions.Region:
        """Return a CXL region of all the memory in these slots.

        `present` are the existing regions, by default the host's.

        Raises:
            ImpossibleWorld: a slot has no CXL memory that came up, or the cards cannot form a region.
        """
        devices = [self.find_running_card(slot).device for slot in slots]
        if len(set(slots)) < len(slots):
            raise errors.ImpossibleWorld(f"a slot is named twice in {list(slots)}: name each once")
        if any(
            device.device_class is not DeviceClass.CXL_MEMORY or not device.bound_driver for device in devices
        ):
            raise errors.ImpossibleWorld(f"slots {list(slots)} do not all hold CXL memory with its driver")
        sizes = {device.memory_bytes for device in devices}
        if len(sizes) > 1:
            raise errors.ImpossibleWorld(
                f"the cards in slots {list(slots)} differ in size: choose equal ones"
            )
        kinds = {device.persistent for device in devices}
        if len(kinds) > 1:
            raise errors.ImpossibleWorld(f"slots {list(slots)} hold volatile and persistent memory")
        return regions.make_region(
            [self.seat(slot) for slot in slots],
            sum(sizes),
            self._state.regions if present is None else present,
            persistent=kinds == {True},
            says_mode=self.layout.says_mode,
        )
