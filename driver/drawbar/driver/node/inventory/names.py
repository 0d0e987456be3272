"""Names in words for PCI ids, from the pci.ids database.

The system's own database is used if there is one, because an administrator keeps it current; otherwise
the copy in the `pypci-ng` package. One pass over the file finds just the ids asked for: the daemons
never load it, and `drawbar discover` keeps a few names instead of 40,000.

Format (https://pci-ids.ucw.cz/): `vvvv  name`, tab `dddd  name`, two tabs `ssss dddd  name`; classes as
`C cc  name`, tab `ss  name`, two tabs `pp  name`.
"""

import dataclasses
import importlib.util
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from drawbar.driver.node.inventory import model

SYSTEM_DATABASES = (Path("/usr/share/misc/pci.ids"), Path("/usr/share/hwdata/pci.ids"))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The names found, by id; subsystems by all four ids, classes by the 8, 16 or 24 bits they name."""

    vendors: Mapping[int, str] = dataclasses.field(default_factory=dict)
    devices: Mapping[tuple[int, int], str] = dataclasses.field(default_factory=dict)
    subsystems: Mapping[tuple[int, int, int, int], str] = dataclasses.field(default_factory=dict)
    classes: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def vendor(self, function: model.PciFunction) -> str | None:
        """Who made the chip."""
        return self.vendors.get(function.vendor)

    def device(self, function: model.PciFunction) -> str | None:
        """What the chip is."""
        return self.devices.get((function.vendor, function.device))

    def subsystem(self, function: model.PciFunction) -> str | None:
        """What the card is; its maker's name if the card itself is not listed."""
        vendor, device = function.subsystem_vendor, function.subsystem_device
        if vendor is None or device is None:
            return None
        return self.subsystems.get((function.vendor, function.device, vendor, device)) or self.vendors.get(
            vendor
        )

    def class_name(self, class_code: int) -> str | None:
        """The class in words: of the subclass if it is listed, else of the base class."""
        code = f"{class_code:06x}"
        return self.classes.get(code[:4]) or self.classes.get(code[:2])


def find_database(candidates: Iterable[Path] = SYSTEM_DATABASES) -> Path | None:
    """The first candidate that exists, else the packaged database, else None."""
    for path in candidates:
        if path.is_file():
            return path
    specification = importlib.util.find_spec("pypci")  # locates the package without running it
    if specification is None or specification.origin is None:
        return None
    path = Path(specification.origin).with_name("data") / "pci.ids"
    return path if path.is_file() else None


def load(functions: Collection[model.PciFunction], database: Path | None) -> Names:
    """The names of these functions; none at all if there is no readable database."""
    if database is None:
        return Names()
    try:
        with database.open(encoding="utf-8", errors="replace") as lines:
            return look_up(lines, functions)
    except OSError:
        return Names()


def look_up(lines: Iterable[str], functions: Collection[model.PciFunction]) -> Names:
    """The names of these functions in the lines of a pci.ids file."""
    vendors: dict[int, str] = {}
    devices: dict[tuple[int, int], str] = {}
    subsystems: dict[tuple[int, int, int, int], str] = {}
    classes: dict[str, str] = {}
    wanted_vendors = {f.vendor for f in functions} | {
        f.subsystem_vendor for f in functions if f.subsystem_vendor
    }
    wanted_devices = {(f.vendor, f.device) for f in functions}
    first, second, in_classes = -1, -1, False
    for line in lines:
        body = line.lstrip("\t")
        depth = len(line) - len(body)
        identifier, _, name = body.rstrip("\n").partition("  ")
        if not name or body.startswith("#"):
            continue
        if depth == 0:
            in_classes, first = identifier.startswith("C "), _hexadecimal(identifier.removeprefix("C "))
            second = -1
            if in_classes:
                classes[f"{first:02x}"] = name
            elif first in wanted_vendors:
                vendors[first] = name
        elif depth == 1:
            second = _hexadecimal(identifier)
            if in_classes:
                classes[f"{first:02x}{second:02x}"] = name
            elif (first, second) in wanted_devices:
                devices[first, second] = name
        elif not in_classes and (first, second) in devices:
            vendor, _, device = identifier.partition(" ")
            subsystems[first, second, _hexadecimal(vendor), _hexadecimal(device)] = name
    return Names(vendors=vendors, devices=devices, subsystems=subsystems, classes=classes)


def _hexadecimal(digits: str) -> int:
    """The number, or -1, which no id is."""
    try:
        return int(digits, 16)
    except ValueError:
        return -1
