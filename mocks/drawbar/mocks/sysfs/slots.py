"""The slots of a mocked host: their ports, and the files with their state."""

import dataclasses
import enum
from pathlib import Path

from drawbar.mocks.sysfs import functions, kobjects
from drawbar.mocks.sysfs.functions import Locality
from drawbar.mocks.sysfs.kobjects import readable, writable


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One slot.

    Attributes:
        number: the slot's name.
        port: the directory of its port, below the root.
        bus: the default bus behind the port.
        speed_gts: the port's maximum speed in GT/s.
        width: the port's number of lanes.
        locality: its position in the machine.
        cxl_port: the CXL port above a memory device's endpoint.
        powers: true if a card gets power by itself.
        ejects: true if a card leaves when the slot loses its power, as with QEMU; on hardware it stays.
        domain: the PCI domain of its buses.
        room: the number of buses behind the port.
        at_port: true if firmware numbers the slot; its address is then that of the port's device
            (drivers/acpi/pci_slot.c).
    """

    number: int
    port: str
    bus: int
    speed_gts: float = 16.0
    width: int = 16
    locality: Locality = dataclasses.field(default_factory=Locality)
    cxl_port: str
    powers: bool = True
    ejects: bool = False
    domain: int = 0
    room: int = 1
    at_port: bool = False

    @property
    def root_port(self) -> str:
        """Return the directory of the root port above it, which may be the port itself."""
        parts = self.port.split("/")
        last = max(index for index, part in enumerate(parts) if part.startswith("pci"))
        return "/".join(parts[: last + 2])

    def make_address(self, bus: int) -> str:
        """Return the address of the slot on a bus, without a function; the device is always 0."""
        return f"{self.domain:04x}:{bus:02x}:00"

    def shown_address(self, bus: int) -> str:
        """Return the text of its file `address`."""
        return self.port.rpartition("/")[2].rpartition(".")[0] if self.at_port else self.make_address(bus)


class Presence(enum.Enum):
    """The shown state of a slot, as (adapter, power)."""

    EMPTY = (0, 0)
    OCCUPIED = (1, 1)
    UNPOWERED = (1, 0)
    """A card is present and waits for power, as recorded of a CXL device."""
    NOT_SEEN = (0, 1)
    """The slot has power, and the port notices no card."""


def write_slot(
    root: Path, slot: Slot, presence: Presence, *, bus: int, link: tuple[str, str] | None = None
) -> None:
    """Write a slot's files, and the port's files about the bus and the link behind it.

    Args:
        root: the root of the tree.
        slot: the slot.
        presence: the shown state of the slot.
        bus: the bus behind the port.
        link: speed and width, as in the files; None while no link is up.
    """
    folder = root / "bus/pci/slots" / str(slot.number)
    fastest = functions.speed_text(slot.speed_gts)
    # Without a link the recorded ports show their maximum.
    speed, width = link or (fastest, str(slot.width))
    adapter, power = presence.value
    files = {
        "address": readable(slot.shown_address(bus)),
        "attention": writable("0"),
        "max_bus_speed": readable(fastest),
        "cur_bus_speed": readable(speed),
        "adapter": readable(str(adapter)),
        "power": writable(str(power)),
    }
    for name, attribute in files.items():
        kobjects.write(folder / name, attribute)
    kobjects.link(root, f"bus/pci/slots/{slot.number}/module", "module/pciehp")
    port = root / slot.port
    kobjects.write(port / "current_link_speed", readable(speed))
    kobjects.write(port / "current_link_width", readable(width))
    kobjects.write(port / "secondary_bus_number", readable(str(bus)))
    kobjects.write(port / "subordinate_bus_number", readable(str(bus + slot.room - 1)))
