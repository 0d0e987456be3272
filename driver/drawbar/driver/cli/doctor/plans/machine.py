"""The troubles of a host's preparation for hot-plug: ports, buses, memory windows, BARs, IOMMU, drivers; pure.

A window or bus range that is too small is a warning and no error. The kernel may enlarge that of an empty port. Whether
it can depends on the rest of the host.

Source: Linux Documentation/admin-guide/kernel-parameters.txt (`pci=`, `pcie_ports=`, `intel_iommu=`, `iommu=`); PCI
Express Base Specification, 7.5.3.9 (Slot Capabilities). `docs/host-preparation.md` has the sizes.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from drawbar.driver.catalogue import links
from drawbar.driver.cli.doctor import findings
from drawbar.driver.cli.doctor.findings import Check, Finding, Unread
from drawbar.driver.node.inventory import resources
from drawbar.fabric.classes import DeviceClass

PAGE = links.url("host-preparation.md")
PCIEHP = "pciehp"
_MIB, _GIB = 1 << 20, 1 << 30
_SIZE = re.compile(r"(\d{1,12})([KMGTPE]?)", re.IGNORECASE)
_UNITS = {"": 1, "K": 1 << 10, "M": _MIB, "G": _GIB, "T": 1 << 40, "P": 1 << 50, "E": 1 << 60}
_LARGEST_MEMORY = 1 << 50


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """The room that a device needs behind its slot's port.

    Attributes:
        buses: bus numbers, with those of a switch on the card.
        memory: bytes of memory that is not prefetchable.
        prefetchable: bytes of prefetchable memory, apart from the device's own memory.
        maps_memory: the host maps the device's own memory as a whole, rounded up to a power of two.
    """

    buses: int = 1
    memory: int = 2 * _MIB
    prefetchable: int = 0
    maps_memory: bool = False

    def add_memory(self, memory_bytes: int) -> "Need":
        """Return the need of a device with this memory in bytes; 0 if unknown."""
        if not self.maps_memory or not 0 < memory_bytes <= _LARGEST_MEMORY:
            return self
        mapped = 1 << (memory_bytes - 1).bit_length()
        return Need(
            buses=self.buses, memory=self.memory, prefetchable=mapped + _BESIDE_MEMORY, maps_memory=True
        )


_BESIDE_MEMORY = 64 * _MIB
NEEDS: Mapping[DeviceClass, Need] = {
    # Hopper and CDNA 3: up to 256 GiB of memory in one BAR, and two small ones; before them 16 MiB of registers.
    DeviceClass.GPU: Need(memory=16 * _MIB, prefetchable=256 * _GIB + _BESIDE_MEMORY, maps_memory=True),
    DeviceClass.ACCELERATOR: Need(
        memory=16 * _MIB, prefetchable=128 * _GIB + _BESIDE_MEMORY, maps_memory=True
    ),
    # A card such as the N3000: a switch, the FPGA and two network chips.
    DeviceClass.FPGA: Need(buses=5, memory=16 * _MIB, prefetchable=64 * _MIB),
    # Two ports with their virtual functions, which use further bus numbers.
    DeviceClass.NIC: Need(buses=2, prefetchable=128 * _MIB),
    DeviceClass.NVME: Need(memory=1 * _MIB),
    # Its memory lies in the windows of the CXL host bridge, not behind PCI windows.
    DeviceClass.CXL_MEMORY: Need(memory=1 * _MIB),
}
"""The needs of the largest usual device of each class."""

_DRIVERS: Mapping[DeviceClass, tuple[str, ...]] = {
    DeviceClass.GPU: ("nvidia", "amdgpu", "xe", "i915", "nouveau"),
    DeviceClass.FPGA: ("dfl_pci", "xclmgmt", "xocl"),
    DeviceClass.NIC: ("mlx5_core", "ice", "bnxt_en", "i40e", "ixgbe", "igb", "sfc", "qede", "ionic"),
    DeviceClass.NVME: ("nvme",),
    DeviceClass.CXL_MEMORY: ("cxl_pci",),
}
"""The possible drivers of a class's devices; accelerators have too many."""


class Port(msgspec.Struct, frozen=True, kw_only=True):
    """A port with a hot-plug slot, or a port that could have one.

    Attributes:
        address: the port's address.
        slot: the slot's name; empty without one.
        driver: the hot-plug driver of the slot, such as pciehp; empty without one.
        capable: whether the port's registers show it as hot-plug capable; None if they could not be read.
        buses: the first and the last bus number behind it; None if the kernel shows none.
        windows: the memory behind it; None if the kernel shows none.
    """

    address: str
    slot: str = ""
    driver: str = ""
    capable: bool | None = None
    buses: tuple[int, int] | None = None
    windows: resources.Windows | None = None

    @property
    def is_native(self) -> bool:
        """Return whether the kernel itself handles hot-plug at this port."""
        return self.driver == PCIEHP

    @property
    def name(self) -> str:
        """Return the name of the port in findings."""
        return f"slot {self.slot} (port {self.address})" if self.slot else f"port {self.address}"

    @property
    def bus_count(self) -> int:
        """Return the number of bus numbers behind the port; 0 if unknown."""
        if self.buses is None or not 0 < self.buses[0] <= self.buses[1]:
            return 0
        return self.buses[1] - self.buses[0] + 1


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """A device with memory that the kernel gave no address.

    Attributes:
        bars: each BAR without an address, as the function's address and the BAR's number.
    """

    address: str
    device_class: DeviceClass
    slot: str = ""
    bars: tuple[tuple[str, int], ...]


class Iommu(msgspec.Struct, frozen=True, kw_only=True):
    """The IOMMU, as far as the kernel shows it.

    Attributes:
        groups: the number of its groups; 0 while it is off.
        modes: the modes of the devices in them, such as DMA-FQ or identity.
        users: the addresses of the functions bound to vfio.
    """

    groups: int = 0
    modes: frozenset[str] = frozenset()
    users: tuple[str, ...] = ()


class Modules(msgspec.Struct, frozen=True, kw_only=True):
    """The kernel's drivers, their names with underscores.

    Attributes:
        loaded: drivers that are loaded or built in.
        available: drivers that can be loaded; None if they were not to be read.
    """

    loaded: frozenset[str] = frozenset()
    available: frozenset[str] | None = None


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """A host's preparation for hot-plug.

    Attributes:
        problem: the reason why it could not be read; empty if it was.
        ports: ports with a slot, and hot-plug capable ports.
        has_pciehp: whether the kernel has the driver; None if not known.
        unassigned: devices with memory that has no address.
        hanging: devices whose reading the kernel does not finish.
        command_line: the kernel's command line.
        wanted: by offered class of device, the largest memory in bytes, 0 if unknown; None if the classes are not
            known.
    """

    problem: str = ""
    ports: tuple[Port, ...] = ()
    has_pciehp: bool | None = None
    unassigned: tuple[Card, ...] = ()
    hanging: tuple[str, ...] = ()
    iommu: Iommu = Iommu()
    modules: Modules = Modules()
    command_line: str = ""
    wanted: Mapping[DeviceClass, int] | None = None

    @property
    def needs(self) -> dict[DeviceClass, Need]:
        """Return the room that a device of each class needs: of the offered classes if known, else of all."""
        if self.wanted is None:
            return dict(NEEDS)
        return {
            listed: NEEDS[listed].add_memory(memory)
            for listed, memory in self.wanted.items()
            if listed in NEEDS
        }


def plan(machine: Machine) -> Iterator[Finding]:
    """Yield the findings on a host's preparation."""
    if machine.problem:
        lost = Unread(what="this host's ports", why=machine.problem, remedy="read the kernel log (dmesg)")
        yield findings.make_unread(Check.HOST_HOTPLUG, lost)
        return
    yield from _hotplug(machine)
    yield from _buses(machine)
    yield from _windows(machine)
    yield from _bars(machine)
    yield from _iommu(machine)
    yield from _drivers(machine)


def _hotplug(machine: Machine) -> Iterator[Finding]:
    native = [port for port in machine.ports if port.is_native]
    by_firmware = [port for port in machine.ports if port.driver and not port.is_native]
    unserved = [port for port in machine.ports if not port.driver and port.capable]
    hidden = [port for port in machine.ports if not port.driver and port.capable is None]
    if native:
        yield findings.make_ok(Check.HOST_HOTPLUG, _name_ports(native), f"{_have(native)} native hot-plug")
    if by_firmware:
        drivers = ", ".join(sorted({port.driver for port in by_firmware}))
        yield findings.make_warning(
            Check.HOST_HOTPLUG,
            _name_ports(by_firmware),
            f"the firmware handles hot-plug here ({drivers}), and the kernel cannot power the slot",
            _native_remedy(machine),
        )
    if unserved:
        yield findings.make_warning(
            Check.HOST_HOTPLUG,
            _name_ports(unserved),
            "supports hot-plug, but the kernel's driver pciehp does not serve it: no arriving device is seen"
            + ("" if machine.has_pciehp is False else "; the firmware keeps hot-plug to itself (_OSC)"),
            _native_remedy(machine),
        )
    if native or by_firmware or unserved:
        return
    if hidden:
        lost = Unread(
            what=_name_ports(hidden),
            why="configuration space beyond 64 bytes is hidden from this process",
            remedy="run this as root, or in the node daemon's pod",
        )
        yield findings.make_unread(Check.HOST_HOTPLUG, lost)
        return
    yield (findings.make_warning if machine.wanted else findings.make_note)(
        Check.HOST_HOTPLUG,
        "this host",
        "has no hot-plug slot: no fabric can attach a device to it while it runs",
        f"{_native_remedy(machine)}; a host for its own devices alone needs none",
    )


def _native_remedy(machine: Machine) -> str:
    options = _options(machine.command_line)
    if "pcie_ports=compat" in options:
        return "take pcie_ports=compat off the kernel's command line and reboot"
    if machine.has_pciehp is False:
        return "boot a kernel that was built with CONFIG_HOTPLUG_PCI_PCIE=y"
    return (
        "in the firmware's setup let the operating system control PCIe hot-plug (native hot-plug); without such a setting "
        "boot the kernel with pcie_ports=native"
    )


def _buses(machine: Machine) -> Iterator[Finding]:
    ports = [port for port in machine.ports if port.slot or port.capable]
    if not ports:
        return
    needs = machine.needs
    unnumbered = [port for port in ports if port.bus_count == 0]
    if unnumbered:
        yield findings.make_warning(
            Check.HOST_BUSES,
            _name_ports(unnumbered),
            "no bus number is reserved: no arriving device is seen",
            f"boot the kernel with pci=assign-busses,{_parameters(needs.values())} and reboot; see {PAGE}",
        )
    small = {
        listed: short
        for listed, need in needs.items()
        if (short := [port for port in ports if 0 < port.bus_count < need.buses])
    }
    if small:
        short = list(dict.fromkeys(port for listed in small.values() for port in listed))
        most = max(needs[listed].buses for listed in small)
        yield (findings.make_note if machine.wanted is None else findings.make_warning)(
            Check.HOST_BUSES,
            _name_ports(short),
            f"fewer than {most} bus numbers are reserved: a card of class {_classes(small)} with a switch or many functions "
            "may not fit",
            f"boot the kernel with pci={_parameters(needs.values())}; see {PAGE}",
        )
    elif not unnumbered:
        yield findings.make_ok(Check.HOST_BUSES, _name_ports(ports), f"{_have(ports)} enough bus numbers")


def _windows(machine: Machine) -> Iterator[Finding]:
    ports = [port for port in machine.ports if (port.slot or port.capable) and port.windows is not None]
    if not ports:
        return
    needs = machine.needs
    small: dict[DeviceClass, list[Port]] = {}
    for listed, need in needs.items():
        short = [port for port in ports if port.windows is not None and not _has_room(port.windows, need)]
        if short:
            small[listed] = short
    if not small:
        yield findings.make_ok(
            Check.HOST_WINDOWS, _name_ports(ports), f"{_have(ports)} room for every class of device"
        )
        return
    for classes, short in _group_by_ports(small):
        largest = [needs[each] for each in classes]
        yield (findings.make_note if machine.wanted is None else findings.make_warning)(
            Check.HOST_WINDOWS,
            _name_ports(short),
            f"{_smallest(short)} are reserved, and a device of class {_classes(classes)} can need "
            f"{_bytes(max(need.memory for need in largest))} and "
            f"{_bytes(max(need.prefetchable for need in largest))} prefetchable",
            _window_remedy(machine, needs.values()),
        )


def _group_by_ports(
    small: Mapping[DeviceClass, list[Port]],
) -> Iterator[tuple[tuple[DeviceClass, ...], list[Port]]]:
    """Yield the classes together with the ports that are too small for them, grouped by ports."""
    by_ports: dict[tuple[Port, ...], list[DeviceClass]] = {}
    for listed, short in small.items():
        by_ports.setdefault(tuple(short), []).append(listed)
    for short_ports, listed_classes in by_ports.items():
        yield tuple(listed_classes), list(short_ports)


def _has_room(windows: resources.Windows, need: Need) -> bool:
    return windows.memory >= need.memory and windows.prefetchable >= need.prefetchable


def _window_remedy(machine: Machine, needs: Iterable[Need]) -> str:
    wanted = list(needs)
    asked = _parse_sizes(machine.command_line)
    firmware = "turn on Above 4G Decoding (a large MMIO High Size) in the firmware's setup"
    memory = max((need.memory for need in wanted), default=0)
    prefetchable = max((need.prefetchable for need in wanted), default=0)
    if asked.get("hpmmiosize", 0) >= memory and asked.get("hpmmioprefsize", 0) >= prefetchable:
        return f"{firmware}: the kernel is asked for enough, and has no room; see {PAGE}"
    return f"{firmware}, and boot the kernel with pci={_parameters(wanted)}; see {PAGE}"


def _bars(machine: Machine) -> Iterator[Finding]:
    for card in machine.unassigned:
        bars = ", ".join(f"{number} of {address}" for address, number in card.bars)
        slot_text = f" in slot {card.slot}" if card.slot else ""
        need = NEEDS.get(card.device_class, Need())
        yield findings.make_error(
            Check.HOST_BARS,
            f"{card.device_class} {card.address}{slot_text}",
            f"the kernel has no memory addresses for BAR {bars}, so no driver can use it",
            _window_remedy(machine, (*machine.needs.values(), need)),
        )
    if machine.hanging:
        lost = Unread(
            what=findings.join_names(machine.hanging),
            why="the kernel does not finish reading it",
            remedy="read the kernel log (dmesg)",
        )
        yield findings.make_unread(Check.HOST_BARS, lost)
    elif not machine.unassigned:
        yield findings.make_ok(Check.HOST_BARS, "this host", "has memory addresses for every device")


def _iommu(machine: Machine) -> Iterator[Finding]:
    iommu, subject = machine.iommu, "the IOMMU"
    if iommu.groups:
        modes = f", in mode {', '.join(sorted(iommu.modes))}" if iommu.modes else ""
        yield findings.make_ok(Check.HOST_IOMMU, subject, f"is on with {iommu.groups} groups{modes}")
        return
    options = _options(machine.command_line)
    off = next(
        (each for each in ("iommu=off", "intel_iommu=off", "amd_iommu=off") if each in options),
        None,
    )
    remedy = (
        f"take {off} off the kernel's command line and reboot"
        if off is not None
        else "turn on VT-d, AMD-Vi or SMMU in the firmware's setup, or the virtual machine's IOMMU, and on Intel boot the kernel with intel_iommu=on iommu=pt"
    )
    if iommu.users:
        yield findings.make_warning(
            Check.HOST_IOMMU,
            subject,
            f"is off, and vfio-pci has {findings.join_names(iommu.users)}: it works in its unsafe mode or not at all",
            remedy,
        )
        return
    yield findings.make_note(
        Check.HOST_IOMMU,
        subject,
        "is off: an attached device can reach all of the host's memory, and no virtual machine can have it",
        remedy,
    )


def _drivers(machine: Machine) -> Iterator[Finding]:
    modules = machine.modules
    for listed in sorted(machine.wanted or {}):
        usual = _DRIVERS.get(listed)
        if usual is None:
            continue
        subject = f"drivers of class {listed}"
        loaded = [name for name in usual if name in modules.loaded]
        available = [name for name in usual if name in (modules.available or ())]
        if loaded:
            yield findings.make_ok(Check.HOST_DRIVERS, subject, f"{', '.join(loaded)} is loaded")
        elif available:
            yield findings.make_ok(
                Check.HOST_DRIVERS, subject, f"{', '.join(available)} is loaded when a device arrives"
            )
        elif modules.available is None:
            yield findings.make_note(
                Check.HOST_DRIVERS,
                subject,
                f"none of {', '.join(usual)} is loaded, and the host's modules were not read",
                "on the host: drawbar doctor --node --host-root /",
            )
        else:
            yield findings.make_warning(
                Check.HOST_DRIVERS,
                subject,
                f"the kernel has none of {', '.join(usual)}: no driver takes a usual device of this class",
                f"install the driver of your devices for this kernel, and try modprobe with its name; see {PAGE}",
            )


def _parameters(needs: Iterable[Need]) -> str:
    """Return the value of `pci=` for devices of these needs."""
    wanted = [*needs, Need()]
    buses = max(need.buses for need in wanted)
    memory = max(need.memory for need in wanted)
    prefetchable = max(need.prefetchable for need in wanted)
    parts = [
        f"hpbussize={buses}",
        f"hpmmiosize={_size(memory)}",
        *([f"hpmmioprefsize={_size(prefetchable)}"] if prefetchable else []),
        "realloc",
    ]
    return ",".join(parts)


def _options(command_line: str) -> frozenset[str]:
    return frozenset(command_line.split())


def _parse_sizes(command_line: str) -> dict[str, int]:
    """Return the sizes in `pci=` by name, without those that are not valid."""
    sizes = {}
    for option in command_line.split():
        for part in option.removeprefix("pci=").split(",") if option.startswith("pci=") else ():
            name, _, value = part.partition("=")
            match = _SIZE.fullmatch(value)
            if match is not None:
                sizes[name] = int(match[1]) * _UNITS[match[2].upper()]
    return sizes


def _size(amount: int) -> str:
    """Return bytes as a kernel parameter, rounded up to GiB from 1 GiB on, else to MiB."""
    return f"{-(-amount // _GIB)}G" if amount >= _GIB else f"{-(-amount // _MIB)}M"


def _bytes(amount: int) -> str:
    """Return bytes as text for people, rounded up to GiB from 1 GiB on, else to MiB."""
    if amount >= _GIB:
        return f"{-(-amount // _GIB)} GiB"
    return f"{-(-amount // _MIB)} MiB"


def _smallest(ports: Iterable[Port]) -> str:
    windows = [port.windows for port in ports if port.windows is not None]
    memory = min(each.memory for each in windows)
    prefetchable = min(each.prefetchable for each in windows)
    return f"{_bytes(memory)} and {_bytes(prefetchable)} prefetchable"


def _name_ports(ports: list[Port]) -> str:
    return findings.join_names([port.name for port in ports])


def _have(ports: list[Port]) -> str:
    return "has" if len(ports) == 1 else "have"


def _classes(listed: Iterable[DeviceClass]) -> str:
    return ", ".join(str(each) for each in listed)
