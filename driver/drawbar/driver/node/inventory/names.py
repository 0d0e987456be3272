"""Names for PCI ids, from the pci.ids database.

The system's own database takes precedence, because an administrator keeps it current. The fallback is the copy in the
`pypci-ng` package. One pass over the file finds the requested ids. The daemons never load it, and `drawbar discover`
keeps a few names instead of 40,000.

Format (https://pci-ids.ucw.cz/): `vvvv  name`, tab `dddd  name`, two tabs `ssss dddd  name`; classes as
`C cc  name`, tab `ss  name`, two tabs `pp  name`.
"""

import importlib.util
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import msgspec

from drawbar.driver.node.inventory import model

SYSTEM_DATABASES = (Path("/usr/share/misc/pci.ids"), Path("/usr/share/hwdata/pci.ids"))


class Names(msgspec.Struct, frozen=True, kw_only=True):
    """The names found, by id. Subsystems have all four ids as key, classes the first two or four digits of their code."""

    vendors: Mapping[int, str] = msgspec.field(default_factory=dict)
    devices: Mapping[tuple[int, int], str] = msgspec.field(default_factory=dict)
    subsystems: Mapping[tuple[int, int, int, int], str] = msgspec.field(default_factory=dict)
    classes: Mapping[str, str] = msgspec.field(default_factory=dict)

    def vendor(self, function: model.PciFunction) -> str | None:
        """Return the name of the chip's vendor, or None."""
        return self.vendors.get(function.vendor)

    def device(self, function: model.PciFunction) -> str | None:
        """Return the name of the chip, or None."""
        return self.devices.get((function.vendor, function.device))

    def subsystem(self, function: model.PciFunction) -> str | None:
        """Return the name of the card, or its vendor's name if the card is not listed, or None."""
        vendor, device = function.subsystem_vendor, function.subsystem_device
        if vendor is None or device is None:
            return None
        return self.subsystems.get((function.vendor, function.device, vendor, device)) or self.vendors.get(
            vendor
        )

    def class_name(self, class_code: int) -> str | None:
        """Return the name of the subclass, or of the base class if the subclass is not listed, or None."""
        code = f"{class_code:06x}"
        return self.classes.get(code[:4]) or self.classes.get(code[:2])


def find_database(candidates: Iterable[Path] = SYSTEM_DATABASES) -> Path | None:
    """Return the first existing candidate, or the packaged database, or None."""
    for path in candidates:
        if path.is_file():
            return path
    specification = importlib.util.find_spec("pypci")  # locates the package without running it
    if specification is None or specification.origin is None:
        return None
    path = Path(specification.origin).with_name("data") / "pci.ids"
    return path if path.is_file() else None


def load(functions: Collection[model.PciFunction], database: Path | None) -> Names:
    """Return the names for these functions; none without a readable database."""
    if database is None:
        return Names()
    try:
        with database.open(encoding="utf-8", errors="replace") as lines:
            return look_up(lines, functions)
    except OSError:
        return Names()


def look_up(lines: Iterable[str], functions: Collection[model.PciFunction]) -> Names:
    """Return the names for these functions from the lines of a pci.ids file."""
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
    """Return the number, or -1, which is no id."""
    try:
        return int(digits, 16)
    except ValueError:
        return -1
