"""The saved state of a mocked host, so that several processes can work on one host.

The file lies next to the tree (`<name>.json` for a tree `<name>`). To change the tree, a process holds `<name>.lock`
with flock(2).
"""

import contextlib
import dataclasses
import enum
import fcntl
from collections.abc import Iterator
from pathlib import Path

import msgspec

from drawbar.mocks.sysfs import errors, layouts
from drawbar.mocks.sysfs.device import MockDevice
from drawbar.mocks.sysfs.regions import Region


class Arrival(enum.StrEnum):
    """The way in which a new card comes up."""

    COMPLETE = "complete"
    UNPOWERED = "unpowered"
    """Present, and powered once the slot is switched on, as recorded of a CXL device."""
    NO_LINK = "no-link"
    """Present and powered, but the function never appears."""
    NOT_SEEN = "not-seen"
    """The slot has power, but does not notice the card."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class InsertedCard:
    """A card in a slot.

    Attributes:
        device: the card.
        instance: its number in its class, given by the kernel.
        bus: its bus; None for the slot's own.
        arrival: the way it came up.
        vfs: the number of virtual functions.
        vf_drivers: other drivers than the usual one, by number of the virtual function; "" for none.
        off: true if its slot's power was switched off.
        removed: true if its functions were removed; a rescan brings them back.
        driver: the bound driver if it is not the card's own; "" for none, None for its own.
        resets: the number of resets.
    """

    device: MockDevice
    instance: int
    bus: int | None = None
    arrival: Arrival = Arrival.COMPLETE
    vfs: int = 0
    vf_drivers: dict[int, str] = dataclasses.field(default_factory=dict)
    off: bool = False
    removed: bool = False
    driver: str | None = None
    resets: int = 0

    @property
    def powered(self) -> bool:
        """Return true if its slot gives it power."""
        return self.arrival is not Arrival.UNPOWERED and not self.off

    @property
    def shown(self) -> bool:
        """Return true if the kernel shows its functions."""
        return self.arrival is Arrival.COMPLETE and self.powered and not self.removed

    @property
    def card(self) -> MockDevice:
        """Return the card with the driver that is bound now."""
        return self.device if self.driver is None else dataclasses.replace(self.device, driver=self.driver)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A mocked host.

    Attributes:
        slots: the number of slots.
        layout: the name of its layout.
        uevent_socket: the path for events, or None.
        harmless_numbers: true for device numbers for local use, which no driver of a real machine has.
        seqnum: the number of the last event.
        inserted_cards: the cards by slot.
        regions: the CXL regions.
        iommu: true if vfio has an IOMMU; None without vfio.
    """

    slots: int
    layout: str = layouts.PLAIN
    uevent_socket: str | None = None
    harmless_numbers: bool = False
    seqnum: int = 0
    inserted_cards: dict[int, InsertedCard] = dataclasses.field(default_factory=dict)
    regions: tuple[Region, ...] = ()
    iommu: bool | None = None

    def free_instance(self, device: MockDevice) -> int:
        """Return the lowest free number in the device's class, as the kernel chooses."""
        taken = {
            inserted.instance
            for inserted in self.inserted_cards.values()
            if inserted.device.device_class is device.device_class
        }
        return next(number for number in range(len(taken) + 1) if number not in taken)

    def with_inserted_card(self, slot: int, inserted: InsertedCard | None) -> "State":
        """Return the same state with this card in a slot, or none."""
        changed = {number: other for number, other in self.inserted_cards.items() if number != slot}
        if inserted is not None:
            changed[slot] = inserted
        return dataclasses.replace(self, inserted_cards=dict(sorted(changed.items())))


def path_of(root: Path) -> Path:
    """Return the path of the state of the tree at `root`."""
    return root.with_name(root.name + ".json")


def load(root: Path) -> State:
    """Return the state of an existing tree.

    Raises:
        ImpossibleWorld: there is none, or it is invalid.
    """
    path = path_of(root)
    try:
        return msgspec.json.decode(path.read_bytes(), type=State)
    except FileNotFoundError as error:
        raise errors.ImpossibleWorld(
            f"{root} is no mocked sysfs tree: {path} is missing; create one first"
        ) from error
    except msgspec.DecodeError as error:
        raise errors.ImpossibleWorld(f"{path} does not describe a mocked sysfs tree: {error}") from error


def save(root: Path, state: State) -> None:
    """Replace the state in one step."""
    path = path_of(root)
    draft = path.with_name(path.name + ".new")
    draft.write_bytes(msgspec.json.format(msgspec.json.encode(state)))
    draft.replace(path)


@contextlib.contextmanager
def locking(root: Path) -> Iterator[None]:
    """Hold the lock for changes of the tree until the block ends; wait for it first."""
    with root.with_name(root.name + ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
