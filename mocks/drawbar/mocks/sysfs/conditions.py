"""The conditions of an attached card: counted errors, a degraded link, a pulled card.

The kernel sends no event for any of them.
"""

from collections.abc import Mapping
from pathlib import Path

from drawbar.mocks.sysfs import aer, cards, config_space, errors, functions, kobjects, states
from drawbar.mocks.sysfs.aer import Severity
from drawbar.mocks.sysfs.hotplug import Hotplug
from drawbar.mocks.sysfs.kobjects import readable


def set_link(root: Path, seat: cards.Seat, speed_gts: float, width: int) -> None:
    """Set the current speed and width of the link, at both ends and in the slot."""
    speed = readable(functions.speed_text(speed_gts))
    for end in (seat.slot.port, seat.path):
        kobjects.write(root / end / "current_link_speed", speed)
        kobjects.write(root / end / "current_link_width", readable(str(width)))
    kobjects.write(root / "bus/pci/slots" / str(seat.slot.number) / "cur_bus_speed", speed)


def add_errors(
    root: Path, seat: cards.Seat, severity: Severity, counts: Mapping[str, int], *, at_port: bool
) -> None:
    """Raise the counters of the reporting function, and those of the root port that received the message.

    Raises:
        ImpossibleWorld: there are no errors of these names.
    """
    reporter = root / (seat.slot.port if at_port else seat.path) / severity.file
    kobjects.write(reporter, aer.add_errors(severity, reporter.read_text(), counts))
    total = root / seat.slot.root_port / severity.root_port_file
    kobjects.write(total, readable(str(int(total.read_text()) + sum(counts.values()))))


def stack_interface(change: Hotplug, inserted: states.InsertedCard, seat: cards.Seat, name: str) -> None:
    """Stack a virtual interface of the host on that of a card; both get a link to the other (net/core/dev.c).

    Raises:
        ImpossibleWorld: the card shows no interface.
    """
    below = cards.interface(cards.function(seat, inserted.card), seat.instance)
    if not (change.root / below.path).is_dir():
        raise errors.ImpossibleWorld(f"the card in slot {seat.slot.number} has no network interface")
    index = str(900 + len(list((change.root / "class/net").iterdir())))
    above = kobjects.Kobject(
        path=f"devices/virtual/net/{name}",
        subsystem="net",
        subsystem_path="class/net",
        uevent={"INTERFACE": name, "IFINDEX": index},
        files={
            "ifindex": readable(index),
            "iflink": readable(below.uevent["IFINDEX"]),
            "operstate": readable("up"),
        },
        links={f"lower_{below.name}": below.path},
    )
    change.build((above,))
    kobjects.link(change.root, f"{below.path}/upper_{name}", above.path)


def lose(root: Path, seat: cards.Seat) -> None:
    """Make the card unresponsive: its configuration space reads as ones, and the slot shows no adapter."""
    config = root / seat.path / "config"
    if config.exists():
        kobjects.write(config, kobjects.Attribute(content=b"\xff" * config_space.SPACE_BYTES, mode=0o644))
    kobjects.write(root / "bus/pci/slots" / str(seat.slot.number) / "adapter", readable("0"))
