"""A mocked host's sysfs: a directory that looks like /sys and changes as hot-plug changes it.

A reader of the tree sees what it would see on a kernel, in the same order: a device's directory is
complete before it is listed, children come and go in the recorded order, and each step is announced by a
uevent after it has happened.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from drawbar.mocks.sysfs import (
    cards,
    conditions,
    errors,
    hosts,
    kobjects,
    layouts,
    places,
    regions,
    sriov,
    states,
    wire,
)
from drawbar.mocks.sysfs.aer import Severity
from drawbar.mocks.sysfs.device import MockDevice, check_link
from drawbar.mocks.sysfs.hotplug import Hotplug
from drawbar.mocks.sysfs.places import Presence
from drawbar.mocks.sysfs.states import Arrival

_PRESENCE = {
    Arrival.COMPLETE: Presence.OCCUPIED,
    Arrival.UNPOWERED: Presence.UNPOWERED,
    Arrival.NO_LINK: Presence.OCCUPIED,
    Arrival.NOT_SEEN: Presence.NOT_SEEN,
}


class SysfsTree:
    """One mocked host. Safe to use from several processes; every call blocks on files and a lock.

    What goes wrong with hardware is the caller's to choose: *late* is an `attach` made late, or one that is `UNPOWERED`
    and powered on later; *never* is an `arrival` of `NO_LINK` or `NOT_SEEN`; *elsewhere* is an `address`; *the wrong
    device* is another `MockDevice` (`dataclasses.replace(device, serial=...)`); a card whose driver does not bind has
    the driver "".

    Not emulated: any effect of writing to a file (`power`, `remove`, `unbind`, `sriov_numvfs`): call `power_on`,
    `detach`, `set_vfs`; errors of attributes, for plain files do not fail. A reader that races with a removal does
    see ENOENT, as on a kernel, for directories go in one step; but a file that was opened before reads on, where a kernel
    answers ENODEV.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def create(
        cls, root: Path, *, slots: int = 4, uevent_socket: Path | None = None, layout: str = layouts.PLAIN
    ) -> "SysfsTree":
        """A new host with empty slots, at `root`.

        Args:
            root: a place where nothing is.
            slots: how many slots the plain layout has: 1 to this number.
            uevent_socket: where events are sent, as datagrams.
            layout: the host's shape, by name.

        Raises:
            ImpossibleWorld: `root` exists and is not empty, there is no such layout,
                or the socket's path is longer than 107 bytes.
        """
        shape = layouts.named(layout, slots)
        if root.exists() and (not root.is_dir() or any(root.iterdir())):
            raise errors.ImpossibleWorld(f"{root} exists already: open it, or choose an empty place")
        socket_path = str(uevent_socket.absolute()) if uevent_socket is not None else None
        if socket_path is not None and len(socket_path.encode()) > wire.LONGEST_PATH_BYTES:
            raise errors.ImpossibleWorld(
                f"the socket path {socket_path} is too long for a UNIX socket: shorten it"
            )
        root.mkdir(parents=True, exist_ok=True)
        with states.locked(root):
            state = states.State(slots=len(shape.places), layout=layout, uevent_socket=socket_path)
            _build(root, shape, Hotplug(root, state))
            states.save(root, state)
        return cls(root)

    @classmethod
    def open(cls, root: Path) -> "SysfsTree":
        """The existing host at `root`.

        Raises:
            ImpossibleWorld: there is none.
        """
        states.load(root)
        return cls(root)

    # --- reading ---

    def attached(self) -> dict[int, MockDevice]:
        """The cards that are in, by slot, whether or not the kernel shows them."""
        return {slot: occupant.device for slot, occupant in states.load(self.root).occupants.items()}

    def address(self, slot: int) -> str:
        """The PCI address that the card in this slot has, or the next one will have if it is not told another.

        Raises:
            ImpossibleWorld: there is no such slot.
        """
        return hosts.Host(str(self.root), states.load(self.root)).address(slot)

    # --- cards ---

    def attach(
        self,
        slot: int,
        device: MockDevice,
        *,
        address: str | None = None,
        arrival: Arrival = Arrival.COMPLETE,
    ) -> str:
        """Puts a card into a slot and answers its PCI address.

        Returns when the card's driver is bound and every event has been sent; where the card does not come up, there
        are no events.

        Args:
            slot: the slot's number.
            device: the card.
            address: `0000:<bus>:00.0` for another bus behind the slot, as after a reboot with other cards.
            arrival: how it comes up.

        Raises:
            ImpossibleWorld: there is no such slot, it is occupied, no such card can exist,
                or the address cannot be the card's.
        """
        device.check()
        with self._changing() as change:
            bus = self._host(change).free_bus(slot, address)
            instance = change.state.free_instance(device)
            occupant = states.Occupant(device=device, instance=instance, bus=bus, arrival=arrival)
            change.state = change.state.with_occupant(slot, occupant)
            states.save(self.root, change.state)  # first: what is half built can then be detached
            self._bring_up(change, slot)
        return self.address(slot)

    def power_on(self, slot: int) -> None:
        """Powers the slot, as writing 1 to its `power` file does: a card that waited for it comes up.

        Raises:
            ImpossibleWorld: there is no such slot, or no card in it.
        """
        with self._changing() as change:
            occupant = self._host(change).occupant(slot)
            if occupant.arrival is Arrival.UNPOWERED:
                running = dataclasses.replace(occupant, arrival=Arrival.COMPLETE)
                change.state = change.state.with_occupant(slot, running)
                states.save(self.root, change.state)
                self._bring_up(change, slot)

    def detach(self, slot: int) -> None:
        """Takes the card out of a slot, virtual functions first; nothing happens if there is none.

        A CXL region that it was part of is left dangling, as the kernel leaves it.

        Raises:
            ImpossibleWorld: there is no such slot.
        """
        with self._changing() as change:
            place = self._host(change).place(slot)
            if slot not in change.state.occupants:
                return
            change.undo(self._host(change).steps(slot))
            places.write(self.root, place, Presence.EMPTY, bus=place.bus)
            change.state = change.state.with_occupant(slot, None)

    def lose(self, slot: int) -> None:
        """Pulls the card while the kernel has not noticed yet: its directory is there, and hardware answers all ones.

        Raises:
            ImpossibleWorld: there is no such slot, or no card in it.
        """
        with self._changing() as change:
            conditions.lose(self.root, self._host(change).seat(slot))

    def surprise_remove(self, slot: int) -> None:
        """Pulls the card. The kernel clears up with the events of an orderly removal, in their order.

        What tells it apart: nobody asked, and the slot's `adapter` is 0 before the first event, not after the last.

        Raises:
            ImpossibleWorld: there is no such slot, or no card in it.
        """
        self.lose(slot)
        self.detach(slot)

    # --- conditions ---

    def set_link(self, slot: int, *, speed_gts: float | None = None, width: int | None = None) -> None:
        """Makes the card's link run slower or narrower; what is not given runs as fast as it can. No event tells.

        Raises:
            ImpossibleWorld: there is no such slot or no card in it that came up, or the link cannot run so.
        """
        with self._changing() as change:
            occupant = self._host(change).running(slot)
            seat = self._host(change).seat(slot)
            fastest, widest = cards.fastest_link(seat.place, occupant.device)
            check_link(speed_gts or fastest, width or widest)
            if (speed_gts or fastest) > fastest or (width or widest) > widest:
                raise errors.ImpossibleWorld(
                    f"the link of slot {slot} runs at {fastest:g} GT/s on {widest} lanes at most: give no more"
                )
            conditions.set_link(self.root, seat, speed_gts or fastest, width or widest)

    def add_errors(
        self, slot: int, severity: Severity, counts: Mapping[str, int], *, at_port: bool = False
    ) -> None:
        """Counts PCI Express errors: the card saw them, or the port above it did. The root port counts messages too.

        No event tells: recovery is not emulated.

        Args:
            slot: the card's.
            severity: which counters.
            counts: how many, by the kernel's short name (`BadTLP`, `CmpltTO`, ...).
            at_port: errors of a card often count at its link partner alone.

        Raises:
            ImpossibleWorld: there is no such slot, no card in it that came up and counts errors, or no such error.
        """
        with self._changing() as change:
            occupant = self._host(change).running(slot)
            if not (at_port or occupant.device.aer):
                raise errors.ImpossibleWorld(f"the card in slot {slot} counts no errors: give it `aer`")
            seat = self._host(change).seat(slot)
            conditions.add_errors(self.root, seat, severity, counts, at_port=at_port)

    def set_vfs(self, slot: int, amount: int) -> None:
        """Gives the card so many virtual functions, as writing to its `sriov_numvfs` does.

        Raises:
            ImpossibleWorld: there is no such slot or no card in it that came up, more than the card can have (the kernel's
                ERANGE), or it has another number above 0 now (EBUSY).
        """
        with self._changing() as change:
            occupant = self._host(change).running(slot)
            total = occupant.device.total_vfs
            if not 0 <= amount <= total:
                raise errors.ImpossibleWorld(
                    f"ERANGE: the card in slot {slot} has 0 to {total} virtual functions, not {amount}"
                )
            if occupant.vfs == amount:
                return
            if occupant.vfs and amount:
                raise errors.ImpossibleWorld(
                    f"EBUSY: the card in slot {slot} has {occupant.vfs} virtual functions: set 0 first"
                )
            fresh = dataclasses.replace(occupant, vfs=amount)
            seat = self._host(change).seat(slot)
            change.state = change.state.with_occupant(slot, fresh)
            states.save(self.root, change.state)
            change.take(sriov.steps(seat, occupant.device, amount))
            change.undo(sriov.steps(seat, occupant.device, occupant.vfs) if not amount else ())

    # --- CXL regions ---

    def create_region(self, slots: Sequence[int]) -> str:
        """Makes a region of all the memory of the cards in these slots, online as movable; answers its name.

        Raises:
            ImpossibleWorld: a slot has no CXL memory that came up, or they cannot make a region.
        """
        with self._changing() as change:
            region = self._host(change).new_region(slots)
            change.state = dataclasses.replace(change.state, regions=(*change.state.regions, region))
            states.save(self.root, change.state)
            change.take(regions.steps(region, self._host(change).layout))
        return f"region{region.number}"

    def destroy_region(self, name: str) -> None:
        """Takes a region and what stands on it away; nothing happens if there is none of that name."""
        with self._changing() as change:
            for region in change.state.regions:
                if name == f"region{region.number}":
                    change.undo(regions.steps(region, self._host(change).layout))
                    others = tuple(other for other in change.state.regions if other is not region)
                    change.state = dataclasses.replace(change.state, regions=others)

    # --- inner ---

    @contextlib.contextmanager
    def _changing(self) -> Iterator[Hotplug]:
        """One change, alone; the state as it is then is kept, also of a change that was refused."""
        with states.locked(self.root):
            before = states.load(self.root)
            change = Hotplug(self.root, before)
            try:
                yield change
            finally:
                if change.state != before:
                    states.save(self.root, change.state)

    def _bring_up(self, change: Hotplug, slot: int) -> None:
        """Shows the card as it arrives: the slot first, then the function and what its driver makes."""
        host = self._host(change)
        occupant = host.occupant(slot)
        seat = host.seat(slot)
        complete = occupant.arrival is Arrival.COMPLETE
        link = cards.running_link(seat.place, occupant.device) if complete else None
        places.write(self.root, seat.place, _PRESENCE[occupant.arrival], bus=seat.bus, link=link)
        if complete:
            change.take(cards.steps(seat, occupant.device))

    def _host(self, change: Hotplug) -> hosts.Host:
        return hosts.Host(str(self.root), change.state)


def _build(root: Path, layout: layouts.Layout, change: Hotplug) -> None:
    for folder in ("bus/pci/devices", "bus/pci/slots", "bus/cxl/devices", "class"):
        (root / folder).mkdir(parents=True)
    for path, attribute in layout.files().items():
        kobjects.write(root / path, attribute)
    change.build(layout.objects)
    for place in layout.places.values():
        places.write(root, place, Presence.EMPTY, bus=place.bus)
