"""What a mocked host remembers beside its tree, so that several processes can work on one host.

The file lies next to the tree (`<name>.json` for a tree `<name>`), and whoever changes the tree holds
`<name>.lock` with flock(2).
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
    """How a card that is put in comes up."""

    COMPLETE = "complete"
    UNPOWERED = "unpowered"
    """Present, and powered only once the slot is switched on: so was a CXL device recorded."""
    NO_LINK = "no-link"
    """Present and powered, and the function never appears."""
    NOT_SEEN = "not-seen"
    """The slot is powered, and does not notice the card."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Occupant:
    """A card in a slot.

    Attributes:
        device: the card.
        instance: the number that the kernel gave it among its class.
        bus: the bus that it is on; None for the slot's own.
        arrival: how it came up.
        vfs: how many virtual functions it has.
        vf_drivers: by number of a virtual function, what is bound to it in place of their own driver: "" for none.
        off: its slot's power was switched off.
        removed: its functions were removed, and come back with a rescan.
        driver: what is bound to it in place of its own driver: "" for none, None while it is its own.
        resets: how often it was reset.
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
        """Whether its slot gives it power."""
        return self.arrival is not Arrival.UNPOWERED and not self.off

    @property
    def shown(self) -> bool:
        """Whether the kernel shows its functions."""
        return self.arrival is Arrival.COMPLETE and self.powered and not self.removed

    @property
    def card(self) -> MockDevice:
        """The card with the driver that is bound to it now."""
        return self.device if self.driver is None else dataclasses.replace(self.device, driver=self.driver)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A mocked host.

    Attributes:
        slots: how many slots there are.
        layout: the name of its layout.
        uevent_socket: where events are sent, if anywhere.
        harmless_numbers: device files have numbers for local use, which no driver of a real machine has.
        seqnum: the number of the last event.
        occupants: cards by slot.
        regions: CXL regions.
        iommu: whether vfio has an IOMMU; None where it is not there at all.
    """

    slots: int
    layout: str = layouts.PLAIN
    uevent_socket: str | None = None
    harmless_numbers: bool = False
    seqnum: int = 0
    occupants: dict[int, Occupant] = dataclasses.field(default_factory=dict)
    regions: tuple[Region, ...] = ()
    iommu: bool | None = None

    def free_instance(self, device: MockDevice) -> int:
        """The lowest number that no other device of the class has, as the kernel would choose."""
        taken = {
            occupant.instance
            for occupant in self.occupants.values()
            if occupant.device.device_class is device.device_class
        }
        return next(number for number in range(len(taken) + 1) if number not in taken)

    def with_occupant(self, slot: int, occupant: Occupant | None) -> "State":
        """The same with another card in a slot, or none."""
        changed = {number: other for number, other in self.occupants.items() if number != slot}
        if occupant is not None:
            changed[slot] = occupant
        return dataclasses.replace(self, occupants=dict(sorted(changed.items())))


def path_of(root: Path) -> Path:
    """Where the state of the tree at `root` lies."""
    return root.with_name(root.name + ".json")


def load(root: Path) -> State:
    """The state of an existing tree.

    Raises:
        ImpossibleWorld: there is none, or it is not readable as one.
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
    """Replaces the state in one step."""
    path = path_of(root)
    draft = path.with_name(path.name + ".new")
    draft.write_bytes(msgspec.json.format(msgspec.json.encode(state)))
    draft.replace(path)


@contextlib.contextmanager
def locked(root: Path) -> Iterator[None]:
    """The one who may change the tree; waits for its turn."""
    with root.with_name(root.name + ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
