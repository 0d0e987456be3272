"""A mocked host's sysfs: a directory that looks like /sys and changes as hot-plug changes it.

A reader of the tree sees what it would see on a kernel, in the same order: a device's directory is
complete before it is listed, children come and go in the recorded order, and each step is announced by a
uevent after it has happened.
"""

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from drawbar.mocks.sysfs import (
    cards,
    conditions,
    errors,
    hosts,
    hotplug,
    kobjects,
    layouts,
    lifecycle,
    memory,
    places,
    regions,
    states,
    vfio,
    wire,
)
from drawbar.mocks.sysfs.aer import Severity
from drawbar.mocks.sysfs.device import MockDevice, check_link
from drawbar.mocks.sysfs.hotplug import Hotplug
from drawbar.mocks.sysfs.places import Presence
from drawbar.mocks.sysfs.states import Arrival


class SysfsTree:
    """One mocked host. Safe to use from several processes; every call blocks on files and a lock.

    What goes wrong with hardware is the caller's to choose: *late* is an `attach` made late, or one that is `UNPOWERED`
    and powered on later; *never* is an `arrival` of `NO_LINK` or `NOT_SEEN`; *elsewhere* is an `address`; *the wrong
    device* is another `MockDevice` (`dataclasses.replace(device, serial=...)`); a card whose driver does not bind has
    the driver "".

    What is written to its files takes effect while a block of `reacting` runs, a moment later: see `reactions`. Not emulated:
    errors of attributes, for plain files do not fail, and nothing else of what a write would answer. A reader that races with a removal does
    see ENOENT, as on a kernel, for directories go in one step; but a file that was opened before reads on, where a kernel
    answers ENODEV.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def create(
        cls,
        root: Path,
        *,
        slots: int = 4,
        uevent_socket: Path | None = None,
        layout: str = layouts.PLAIN,
        harmless_numbers: bool = False,
        iommu: bool | None = None,
    ) -> "SysfsTree":
        """A new host with empty slots, at `root`.

        Args:
            root: a place where nothing is.
            slots: how many slots the plain layout has: 1 to this number.
            uevent_socket: where events are sent, as datagrams.
            layout: the host's shape, by name.
            harmless_numbers: for real containers, in which device files are made: give devices numbers that belong to no
                driver, so that opening one fails (ENXIO). The usual numbers are those of a real machine's disks and GPUs.
            iommu: vfio shows its groups, with an IOMMU or without one; None: it shows nothing of a function that it has.

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
            state = states.State(
                slots=len(shape.places),
                layout=layout,
                uevent_socket=socket_path,
                harmless_numbers=harmless_numbers,
                iommu=iommu,
            )
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
        arrival: Arrival | None = None,
    ) -> str:
        """Puts a card into a slot and answers its PCI address.

        Returns when the card's driver is bound and every event has been sent; where the card does not come up, there
        are no events.

        Args:
            slot: the slot's number.
            device: the card.
            address: `0000:<bus>:00.0` for another bus behind the slot, as after a reboot with other cards.
            arrival: how it comes up; None for what is usual in this slot: complete, or without power until the slot
                is switched on.

        Raises:
            ImpossibleWorld: there is no such slot, it is occupied, no such card can exist,
                or the address cannot be the card's.
        """
        device.check()
        with self._changing() as change:
            lifecycle.host(change).check_room(slot, device)
            bus = lifecycle.host(change).free_bus(slot, address)
            instance = change.state.free_instance(device)
            usual = Arrival.COMPLETE if lifecycle.host(change).place(slot).powers else Arrival.UNPOWERED
            occupant = states.Occupant(device=device, instance=instance, bus=bus, arrival=arrival or usual)
            lifecycle.keep(change, slot, occupant)
            lifecycle.bring_up(change, slot)
        return self.address(slot)

    def power_on(self, slot: int) -> None:
        """Powers the slot, as writing 1 to its `power` file does: a card that waited for it comes up.

        Raises:
            ImpossibleWorld: there is no such slot, or no card in it.
        """
        with self._changing() as change:
            lifecycle.switch_on(change, slot)

    def resets(self, slot: int) -> int:
        """How often the card in this slot was reset since it was put in.

        Raises:
            ImpossibleWorld: there is no such slot, or no card in it.
        """
        return hosts.Host(str(self.root), states.load(self.root)).occupant(slot).resets

    def detach(self, slot: int) -> None:
        """Takes the card out of a slot, virtual functions first; nothing happens if there is none.

        A CXL region that it was part of is left without its target and not committed, as the kernel leaves it.

        Raises:
            ImpossibleWorld: there is no such slot.
        """
        with self._changing() as change:
            lifecycle.take_out(change, slot)

    def lose(self, slot: int) -> None:
        """Pulls the card while the kernel has not noticed yet: its directory is there, and hardware answers all ones.

        Raises:
            ImpossibleWorld: there is no such slot, or no card in it.
        """
        with self._changing() as change:
            conditions.lose(self.root, lifecycle.host(change).seat(slot))

    def surprise_remove(self, slot: int) -> None:
        """Pulls the card. The kernel clears up with the events of an orderly removal, in their order.

        The difference: it was not requested, and the slot's `adapter` is 0 before the first event, not after the last.

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
            occupant = lifecycle.host(change).running(slot)
            seat = lifecycle.host(change).seat(slot)
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
            occupant = lifecycle.host(change).running(slot)
            if not (at_port or occupant.device.aer):
                raise errors.ImpossibleWorld(f"the card in slot {slot} counts no errors: give it `aer`")
            seat = lifecycle.host(change).seat(slot)
            conditions.add_errors(self.root, seat, severity, counts, at_port=at_port)

    def set_vfs(self, slot: int, amount: int) -> None:
        """Gives the card so many virtual functions, as writing to its `sriov_numvfs` does.

        Raises:
            ImpossibleWorld: there is no such slot or no card in it that came up, more than the card can have (the kernel's
                ERANGE), or it has another number above 0 now (EBUSY).
        """
        with self._changing() as change:
            lifecycle.set_vfs(change, slot, amount)

    def initialise(self, slot: int) -> None:
        """Makes NVIDIA's driver know the UUID of a GPU that was put in without, as its first user does. No event tells.

        Raises:
            ImpossibleWorld: there is no such slot or no card in it that came up.
        """
        with self._changing() as change:
            occupant = lifecycle.host(change).running(slot)
            initialised = dataclasses.replace(occupant.device, initialised=True)
            lifecycle.keep(change, slot, dataclasses.replace(occupant, device=initialised))
            step = cards.information(self.address(slot), initialised)
            change.take([step] if step is not None else [])

    def stack_interface(self, slot: int, name: str) -> None:
        """Makes an interface of the host (a bond, a VLAN, a macvlan) that stands on that of the network card in this slot. No event.

        Raises:
            ImpossibleWorld: there is no such slot, or no network card in it that came up.
        """
        with self._changing() as change:
            conditions.stack_interface(
                change, lifecycle.host(change).running(slot), lifecycle.host(change).seat(slot), name
            )

    # --- CXL regions ---

    def create_region(self, slots: Sequence[int]) -> str:
        """Makes a region of all the memory of the cards in these slots, online as movable; answers its name.

        Raises:
            ImpossibleWorld: a slot has no CXL memory that came up, or they cannot make a region.
        """
        with self._changing() as change:
            region = lifecycle.host(change).new_region(slots)
            change.state = dataclasses.replace(change.state, regions=(*change.state.regions, region))
            states.save(self.root, change.state)
            change.take(regions.steps(region, lifecycle.host(change).layout))
        return region.name

    def keep_online(self, name: str) -> None:
        """Makes the kernel use a region's memory itself: what is online does not go offline any more.

        Raises:
            ImpossibleWorld: there is no such region.
        """
        with self._changing() as change:
            memory.keep_online(change, name)

    def destroy_region(self, name: str) -> None:
        """Takes a region and what stands on it away; nothing happens if there is none of that name."""
        with self._changing() as change:
            for region in change.state.regions:
                if name == region.name:
                    change.undo(regions.steps(region, lifecycle.host(change).layout))
                    remaining = tuple(other for other in change.state.regions if other is not region)
                    change.state = dataclasses.replace(change.state, regions=remaining)

    # --- what is written into files ---

    @contextlib.asynccontextmanager
    async def reacting(self) -> AsyncIterator[None]:
        """Does what a kernel does when its files are written to, while the context lasts; in force once it is entered.

        One process per tree may do so, which need not be the one that made it.

        Raises:
            ImpossibleWorld: `asyncinotify` is not installed.
        """
        try:
            from drawbar.mocks.sysfs import reactor
        except ModuleNotFoundError as error:
            raise errors.ImpossibleWorld(
                f"the files of {self.root} cannot be watched, for {error.name} is missing: install drawbar[mocks]"
            ) from error
        async with reactor.reacting(self.root):
            yield

    # --- inner ---

    def _changing(self) -> contextlib.AbstractContextManager[Hotplug]:
        return hotplug.changing(self.root)


def _build(root: Path, layout: layouts.Layout, change: Hotplug) -> None:
    for folder in ("bus/pci/devices", "bus/pci/slots", "bus/cxl/devices", "class"):
        (root / folder).mkdir(parents=True)
    for path, attribute in layout.files().items():
        kobjects.write(root / path, attribute)
    change.build(layout.objects)
    change.build(vfio.shared() if change.state.iommu is not None else ())
    for place in layout.places.values():
        places.write(root, place, Presence.EMPTY, bus=place.bus)
