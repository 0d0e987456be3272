"""A mocked host's sysfs: a directory that looks like /sys and changes with hot-plug.

A reader sees the same as on a kernel, in the same order. A device's directory is complete before it is listed.
Children come and go in the recorded order. A uevent follows each step.
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
    regions,
    states,
    vfio,
    wire,
)
from drawbar.mocks.sysfs.aer import Severity
from drawbar.mocks.sysfs.device import MockDevice, check_link
from drawbar.mocks.sysfs.hotplug import Hotplug
from drawbar.mocks.sysfs.slots import Presence, write_slot
from drawbar.mocks.sysfs.states import Arrival


class SysfsTree:
    """One mocked host. It is safe to use from several processes; every call blocks on files and a lock.

    The caller chooses the hardware's faults. *Late* is a late `attach`, or an `UNPOWERED` one with a later power-on.
    *Never* is an `arrival` of `NO_LINK` or `NOT_SEEN`. *Elsewhere* is an `address`. *The wrong device* is another
    `MockDevice` (`dataclasses.replace(device, serial=...)`). A card without a bound driver has the driver "".

    While a block of `reacting` runs, writes to the files take effect a moment later; see `reactions`. Limits: plain
    files do not fail, so writes return no errors. A reader in a race with a removal gets ENOENT, as on a kernel,
    because directories go in one step. But a file opened earlier stays readable, while a kernel answers ENODEV.
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
        """Make a new host with empty slots at `root`.

        Args:
            root: an empty or missing folder.
            slots: the number of slots of the plain layout, numbered from 1.
            uevent_socket: the path of a socket for events, as datagrams.
            layout: the name of the host's layout.
            harmless_numbers: true for real containers with device files: devices get numbers without a driver, so that
                opening one fails (ENXIO). The usual numbers are those of a real machine's disks and GPUs.
            iommu: true or false if vfio shows its groups, with or without an IOMMU; None if it shows nothing.

        Raises:
            ImpossibleWorld: `root` exists and is not empty, there is no such layout,
                or the socket's path is longer than 107 bytes.
        """
        shape = layouts.find_layout(layout, slots)
        if root.exists() and (not root.is_dir() or any(root.iterdir())):
            raise errors.ImpossibleWorld(f"{root} exists already: open it, or choose an empty directory")
        socket_path = str(uevent_socket.absolute()) if uevent_socket is not None else None
        if socket_path is not None and len(socket_path.encode()) > wire.LONGEST_PATH_BYTES:
            raise errors.ImpossibleWorld(
                f"the socket path {socket_path} is too long for a UNIX socket: shorten it"
            )
        root.mkdir(parents=True, exist_ok=True)
        with states.locking(root):
            state = states.State(
                slots=len(shape.slots),
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
        """Open the existing host at `root`.

        Raises:
            ImpossibleWorld: there is none.
        """
        states.load(root)
        return cls(root)

    # --- reading ---

    def list_attached_cards(self) -> dict[int, MockDevice]:
        """Return the attached cards by slot, even those that the kernel does not show."""
        return {slot: inserted.device for slot, inserted in states.load(self.root).inserted_cards.items()}

    def address(self, slot: int) -> str:
        """Return the PCI address of the card in this slot, or the default address of the next one.

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
        """Attach a card to a slot; return its PCI address.

        It returns when the card's driver is bound and every event has been sent. If the card does not come up, there
        are no events.

        Args:
            slot: the slot's number.
            device: the card.
            address: `0000:<bus>:00.0` for another bus behind the slot, as after a reboot with other cards.
            arrival: the way it comes up; None for the slot's usual one: complete, or without power until the slot is
                switched on.

        Raises:
            ImpossibleWorld: there is no such slot, it is occupied, no such card can exist,
                or the address cannot be the card's.
        """
        device.check()
        with self._changing() as change:
            lifecycle.host(change).check_room(slot, device)
            bus = lifecycle.host(change).free_bus(slot, address)
            instance = change.state.free_instance(device)
            usual = Arrival.COMPLETE if lifecycle.host(change).find_slot(slot).powers else Arrival.UNPOWERED
            inserted = states.InsertedCard(
                device=device, instance=instance, bus=bus, arrival=arrival or usual
            )
            lifecycle.keep(change, slot, inserted)
            lifecycle.bring_up(change, slot)
        return self.address(slot)

    def power_on(self, slot: int) -> None:
        """Power the slot, as a write of 1 to its `power` file does: a waiting card comes up.

        Raises:
            ImpossibleWorld: there is no such slot, or no card in it.
        """
        with self._changing() as change:
            lifecycle.switch_on(change, slot)

    def resets(self, slot: int) -> int:
        """Return the number of resets of the card in this slot since it was attached.

        Raises:
            ImpossibleWorld: there is no such slot, or no card in it.
        """
        return hosts.Host(str(self.root), states.load(self.root)).inserted_card(slot).resets

    def detach(self, slot: int) -> None:
        """Take the card out of a slot, virtual functions first; do nothing if the slot is empty.

        A CXL region of the card is left uncommitted and without its target, as by the kernel.

        Raises:
            ImpossibleWorld: there is no such slot.
        """
        with self._changing() as change:
            lifecycle.take_out(change, slot)

    def lose(self, slot: int) -> None:
        """Pull the card before the kernel notices: its directory stays, and the hardware answers with ones.

        Raises:
            ImpossibleWorld: there is no such slot, or no card in it.
        """
        with self._changing() as change:
            conditions.lose(self.root, lifecycle.host(change).seat(slot))

    def surprise_remove(self, slot: int) -> None:
        """Pull the card. The kernel sends the events of an orderly removal, in their order.

        The differences: there was no request, and the slot's `adapter` is 0 before the first event, not after the
        last.

        Raises:
            ImpossibleWorld: there is no such slot, or no card in it.
        """
        self.lose(slot)
        self.detach(slot)

    # --- conditions ---

    def set_link(self, slot: int, *, speed_gts: float | None = None, width: int | None = None) -> None:
        """Degrade the card's link; a value that is None becomes the maximum. There is no event.

        Raises:
            ImpossibleWorld: the slot has no card that came up, or the link cannot have these values.
        """
        with self._changing() as change:
            inserted = lifecycle.host(change).find_running_card(slot)
            seat = lifecycle.host(change).seat(slot)
            fastest, widest = cards.fastest_link(seat.slot, inserted.device)
            check_link(speed_gts or fastest, width or widest)
            if (speed_gts or fastest) > fastest or (width or widest) > widest:
                raise errors.ImpossibleWorld(
                    f"the link of slot {slot} runs at {fastest:g} GT/s on {widest} lanes at most: give no more"
                )
            conditions.set_link(self.root, seat, speed_gts or fastest, width or widest)

    def add_errors(
        self, slot: int, severity: Severity, counts: Mapping[str, int], *, at_port: bool = False
    ) -> None:
        """Count PCI Express errors, at the card or at the port above it, and messages at the root port.

        There is no event, because recovery is not emulated.

        Args:
            slot: the card's slot.
            severity: the errors' severity.
            counts: the number of errors, by the kernel's short name (`BadTLP`, `CmpltTO`, ...).
            at_port: true to count at the port, as a card's errors often count only at its link partner.

        Raises:
            ImpossibleWorld: there is no such slot, no card in it that came up and counts errors, or no such error.
        """
        with self._changing() as change:
            inserted = lifecycle.host(change).find_running_card(slot)
            if not (at_port or inserted.device.aer):
                raise errors.ImpossibleWorld(f"the card in slot {slot} counts no errors: give it `aer`")
            seat = lifecycle.host(change).seat(slot)
            conditions.add_errors(self.root, seat, severity, counts, at_port=at_port)

    def set_vfs(self, slot: int, amount: int) -> None:
        """Set the card's number of virtual functions, as a write to its `sriov_numvfs` does.

        Raises:
            ImpossibleWorld: the slot has no card that came up, the number is above the card's maximum (the kernel's
                ERANGE), or the card has another number above 0 (EBUSY).
        """
        with self._changing() as change:
            lifecycle.set_vfs(change, slot, amount)

    def initialise(self, slot: int) -> None:
        """Let NVIDIA's driver learn a GPU's UUID, as by its first use. There is no event.

        Raises:
            ImpossibleWorld: there is no such slot or no card in it that came up.
        """
        with self._changing() as change:
            inserted = lifecycle.host(change).find_running_card(slot)
            initialised = dataclasses.replace(inserted.device, initialised=True)
            lifecycle.keep(change, slot, dataclasses.replace(inserted, device=initialised))
            step = cards.information(self.address(slot), initialised, lifecycle.host(change).seat(slot))
            change.take([step] if step is not None else [])

    def stack_interface(self, slot: int, name: str) -> None:
        """Stack a virtual interface of the host (bond, VLAN, macvlan) on that of the network card in this slot.

        There is no event.

        Raises:
            ImpossibleWorld: there is no such slot, or no network card in it that came up.
        """
        with self._changing() as change:
            conditions.stack_interface(
                change,
                lifecycle.host(change).find_running_card(slot),
                lifecycle.host(change).seat(slot),
                name,
            )

    # --- CXL regions ---

    def create_region(self, slots: Sequence[int]) -> str:
        """Make a region of all the memory of the cards in these slots, online as movable; return its name.

        Raises:
            ImpossibleWorld: a slot has no CXL memory that came up, or the cards cannot form a region.
        """
        with self._changing() as change:
            region = lifecycle.host(change).new_region(slots)
            change.state = dataclasses.replace(change.state, regions=(*change.state.regions, region))
            states.save(self.root, change.state)
            change.take(regions.steps(region, lifecycle.host(change).layout))
        return region.name

    def keep_online(self, name: str) -> None:
        """Let the kernel use a region's memory: online blocks cannot go offline any more.

        Raises:
            ImpossibleWorld: there is no such region.
        """
        with self._changing() as change:
            memory.keep_online(change, name)

    def destroy_region(self, name: str) -> None:
        """Remove a region and everything on top of it; do nothing if there is none of the name."""
        with self._changing() as change:
            for region in change.state.regions:
                if name == region.name:
                    change.undo(regions.steps(region, lifecycle.host(change).layout))
                    remaining = tuple(other for other in change.state.regions if other is not region)
                    change.state = dataclasses.replace(change.state, regions=remaining)

    # --- writes to files ---

    @contextlib.asynccontextmanager
    async def reacting(self) -> AsyncIterator[None]:
        """Carry out the effects of writes to the files until the block ends.

        Only one process per tree may do so, but it need not be the tree's maker.

        Raises:
            ImpossibleWorld: `asyncinotify` is not installed.
        """
        try:
            from drawbar.mocks.sysfs import reactor
        except ModuleNotFoundError as error:
            raise errors.ImpossibleWorld(
                f"the files of {self.root} cannot be watched, for {error.name} is missing: install asyncinotify"
            ) from error
        async with reactor.reacting(self.root):
            yield

    # --- internal ---

    def _changing(self) -> contextlib.AbstractContextManager[Hotplug]:
        return hotplug.changing(self.root)


def _build(root: Path, layout: layouts.Layout, change: Hotplug) -> None:
    for folder in ("bus/pci/devices", "bus/pci/slots", "bus/cxl/devices", "class"):
        (root / folder).mkdir(parents=True)
    for path, attribute in layout.files().items():
        kobjects.write(root / path, attribute)
    change.build(layout.objects)
    change.build(vfio.make_container_device() if change.state.iommu is not None else ())
    for slot in layout.slots.values():
        write_slot(root, slot, Presence.EMPTY, bus=slot.bus)
