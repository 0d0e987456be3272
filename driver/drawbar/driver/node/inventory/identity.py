"""Who a PCI function says it is: from its `uevent`, or from single files where that does not say."""

import dataclasses
import functools
import re

from drawbar.driver.node.inventory import classification, files
from drawbar.driver.node.inventory.classification import FunctionClass

_NO_DEVICE = 0xFFFF  # the id that configuration space answers where nothing answers
_NO_CLASS = 0xFF0000  # "does not fit in any defined class"
_LINES = re.compile(r"^(DRIVER|PCI_CLASS|PCI_ID|PCI_SUBSYS_ID)=(.*)$", re.MULTILINE)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ids:
    """The ids of a function, its class, and the driver that is bound to it."""

    class_code: int
    kind: FunctionClass
    vendor: int
    device: int
    subsystem_vendor: int | None
    subsystem_device: int | None
    driver: str | None

    @property
    def known(self) -> bool:
        """Whether anything answered."""
        return self.vendor != _NO_DEVICE


def read(directory: int) -> Ids:
    """The ids of the function whose directory this descriptor is."""
    said = dict(_LINES.findall(files.text("uevent", directory) or ""))
    driver = said.get("DRIVER") or None
    known = _from_uevent(
        said.get("PCI_CLASS", ""), said.get("PCI_ID", ""), said.get("PCI_SUBSYS_ID", ""), driver
    )
    return (
        known if known is not None else _from_files(directory, driver or files.link_name("driver", directory))
    )


@functools.lru_cache(maxsize=1024)  # a host has thousands of functions, and far fewer kinds of them
def _from_uevent(class_code: str, device: str, subsystem: str, driver: str | None) -> Ids | None:
    """Ids as in `PCI_CLASS=10802`, `PCI_ID=1B36:0010`; None if one is no such thing."""
    try:
        code = int(class_code, 16)
        ids = tuple(int(number, 16) for pair in (device, subsystem) for number in pair.split(":"))
        first, second, third, fourth = ids
    except ValueError:
        return None
    return _made(code, (first, second), (third, fourth), driver)


def _from_files(directory: int, driver: str | None) -> Ids:
    names = ("class", "vendor", "device", "subsystem_vendor", "subsystem_device")
    code, vendor, device, subsystem_vendor, subsystem_device = (
        files.number(name, directory) for name in names
    )
    return _made(
        _NO_CLASS if code is None else code,
        (_NO_DEVICE if vendor is None else vendor, _NO_DEVICE if device is None else device),
        (subsystem_vendor, subsystem_device),
        driver,
    )


def _made(
    code: int, ids: tuple[int, int], subsystem: tuple[int | None, int | None], driver: str | None
) -> Ids:
    vendor, device = ids
    return Ids(
        class_code=code,
        kind=classification.classify(code, vendor, device),
        vendor=vendor,
        device=device,
        subsystem_vendor=subsystem[0],
        subsystem_device=subsystem[1],
        driver=driver,
    )
