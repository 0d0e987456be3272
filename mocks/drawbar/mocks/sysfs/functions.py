"""The common attributes and uevent variables of PCI functions, as recorded on Linux 6.1."""

import dataclasses
from collections.abc import Iterable, Mapping

from drawbar.mocks.sysfs import kobjects
from drawbar.mocks.sysfs.kobjects import readable, trigger, writable

SPEEDS_GTS = (2.5, 5.0, 8.0, 16.0, 32.0, 64.0)
WIDTHS = (1, 2, 4, 8, 16)
"""The widths of PCI Express links (PCI Express Base Specification, 7.5.3.6), without the rare x12 and x32."""
NO_RANGE = (0, 0, 0)
_MEMORY_FLAGS, _MEMORY_64_FLAGS, _PREFETCHABLE_64_FLAGS = 0x40200, 0x140204, 0x14220C
_WINDOW_FLAGS, _PREFETCHABLE_WINDOW_FLAGS = 0x200, 0x102201
"""The flags of such BARs and windows, as recorded (include/linux/ioport.h)."""
_MEMORY_BASE, MEMORY_BYTES = 0x1000_0000, 16 << 20
_PREFETCHABLE_BASE, PREFETCHABLE_BYTES = 1 << 44, 512 << 30
"""The start of bus 0's windows, and the size of each bus's: enough for the largest card."""
_BAR_LINES, _WINDOW_LINES = 13, 4
Range = tuple[int, int, int]
"""Start, end and flags of a line of `resource`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A memory BAR of a function; `number` is its first register."""

    number: int
    size: int
    prefetchable: bool = False

    @property
    def register(self) -> int:
        """Return the type bits of its register: 64 bits wide (PCI Local Bus Specification, 6.2.5.1)."""
        return 0xC if self.prefetchable else 0x4


def windows(secondary: int, subordinate: int) -> tuple[Range, Range]:
    """Return the windows of a port to these buses: not prefetchable, prefetchable."""
    return (
        (_memory_base(secondary), _memory_base(subordinate + 1) - 1, _WINDOW_FLAGS),
        (
            _prefetchable_base(secondary),
            _prefetchable_base(subordinate + 1) - 1,
            _PREFETCHABLE_WINDOW_FLAGS,
        ),
    )


def assign_bars(bars: Iterable[Bar], bus: int) -> dict[int, Range]:
    """Return the lines of a function's BARs on a bus, by number.

    The largest BAR gets the first address, as in the kernel.
    """
    free = {False: _memory_base(bus), True: _prefetchable_base(bus)}
    lines = {}
    for bar in sorted(bars, key=lambda bar: -bar.size):
        start = free[bar.prefetchable]
        flags = _PREFETCHABLE_64_FLAGS if bar.prefetchable else _MEMORY_64_FLAGS
        lines[bar.number] = (start, start + bar.size - 1, flags)
        free[bar.prefetchable] = start + bar.size
    return lines


def resource(bars: Mapping[int, Range], windows: tuple[Range, Range] | None = None) -> kobjects.Attribute:
    """Return the file `resource` of a function, or of a port with these windows."""
    lines = [bars.get(number, NO_RANGE) for number in range(_BAR_LINES)]
    if windows is not None:
        lines += [NO_RANGE, *windows, NO_RANGE]
    return readable("\n".join(f"0x{start:016x} 0x{end:016x} 0x{flags:016x}" for start, end, flags in lines))


def _memory_base(bus: int) -> int:
    return _MEMORY_BASE + bus * MEMORY_BYTES


def _prefetchable_base(bus: int) -> int:
    return _PREFETCHABLE_BASE + bus * PREFETCHABLE_BYTES


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ids:
    """The ids of a function; `class_code` has 24 bits, `subsystem` is (vendor, device)."""

    vendor: int
    device: int
    class_code: int
    subsystem: tuple[int, int] = (0x1AF4, 0x1100)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Locality:
    """The position of a function in the machine: NUMA node (-1 if unknown) and the node's processors."""

    node: int = -1
    cpulist: str = "0"
    cpumap: str = "1"


def files(ids: Ids, *, config: bytes, locality: Locality) -> dict[str, kobjects.Attribute]:
    """Return the common attributes of PCI functions."""
    return {
        "ari_enabled": readable("0"),
        "broken_parity_status": writable("0"),
        "class": readable(f"0x{ids.class_code:06x}"),
        "config": kobjects.Attribute(content=config, mode=0o644),
        "consistent_dma_mask_bits": readable("64"),
        "d3cold_allowed": writable("1"),
        "device": readable(f"0x{ids.device:04x}"),
        "dma_mask_bits": readable("64"),
        "driver_override": writable("(null)"),
        "enable": writable("1"),
        "irq": readable("0"),
        "local_cpulist": readable(locality.cpulist),
        "local_cpus": readable(locality.cpumap),
        "modalias": readable(modalias(ids)),
        "msi_bus": writable("1"),
        "numa_node": writable(str(locality.node)),
        "power_state": readable("D0"),
        "remove": trigger(0o220),
        "rescan": trigger(),
        "resource": resource({}),
        "revision": readable("0x00"),
        "subsystem_device": readable(f"0x{ids.subsystem[1]:04x}"),
        "subsystem_vendor": readable(f"0x{ids.subsystem[0]:04x}"),
        "vendor": readable(f"0x{ids.vendor:04x}"),
    }


def link_files(*, current: tuple[str, str], fastest_gts: float, widest: int) -> dict[str, kobjects.Attribute]:
    """Return the attributes of a PCI Express link: the current speed and width, as in the files, and the maximum."""
    speed, width = current
    return {
        "current_link_speed": readable(speed),
        "current_link_width": readable(width),
        "max_link_speed": readable(speed_text(fastest_gts)),
        "max_link_width": readable(str(widest)),
    }


def speed_text(speed_gts: float) -> str:
    """Return a link's speed in GT/s as the kernel writes it (`pci_speed_string`)."""
    return f"{speed_gts:.1f} GT/s PCIe"


def uevent(ids: Ids, address: str) -> dict[str, str]:
    """Return the uevent variables of a PCI function (drivers/pci/pci-driver.c, `pci_uevent`)."""
    return {
        "PCI_CLASS": f"{ids.class_code:04X}",
        "PCI_ID": f"{ids.vendor:04X}:{ids.device:04X}",
        "PCI_SUBSYS_ID": f"{ids.subsystem[0]:04X}:{ids.subsystem[1]:04X}",
        "PCI_SLOT_NAME": address,
        "MODALIAS": modalias(ids),
    }


def modalias(ids: Ids) -> str:
    """Return the module alias for modprobe."""
    code = ids.class_code
    return (
        f"pci:v{ids.vendor:08X}d{ids.device:08X}sv{ids.subsystem[0]:08X}sd{ids.subsystem[1]:08X}"
        f"bc{code >> 16:02X}sc{code >> 8 & 0xFF:02X}i{code & 0xFF:02X}"
    )
