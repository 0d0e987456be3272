"""Readers for a PCI function and its slot in sysfs, one for each aspect.

**Device nodes and network interfaces.** The walk is generic: a directory whose `uevent` names a DEVNAME is a device node
of any subsystem. It goes three levels deep (nvme/nvme0/nvme0n1 is the deepest of interest). It skips directories that
hold only attributes.

**Device Serial Number.** PCI Express Base Specification, 7.9.3: extended capability 0x0003 holds a 64-bit number, unique
to the card and the same for all its functions. Extended capabilities start at 256. An unprivileged reader gets only the
first 64 bytes, as if the file ended there. The list is read in small pieces. Each dword is a real access to the device,
and 4,096 bytes would take a millisecond for each function.

**Links.** `current_link_speed` says `16.0 GT/s PCIe`, `8 GT/s` on old kernels and `Unknown` for a link that is down. The
width of such a link is 0, 63 or 255 (all ones, cut).

**Network interfaces.** A function's folder `net` also has interfaces of other devices. Representors stand for other
functions' ports, and have the name of a function's port (Documentation/networking/devlink/devlink-port.rst,
`phys_port_name`). Others lie on top of another interface (`iflink`, `lower_*`), such as a VLAN or a partition of
InfiniBand. A subfunction (`mlx5_core.sf.4`) is a device of its own.

**Slots.** The files of a slot depend on its port's capabilities; without a hot-plug driver there are no slots. `address`
has no function number. For a hot-plug driver's slot it is the address of the device in the slot. For a slot numbered by
firmware (`_SUN`, drivers/acpi/pci_slot.c) it may be the address of the device with the port above the slot. All ports of
that device share this address. The number in the slot's name identifies the port, by one of three files:
`firmware_node/sun`, the physical slot number of its Slot Capabilities (PCI Express Base Specification, 7.5.3.9), or its
`label`. In a name such as `1-2` only the first number comes from firmware; the kernel adds the second one in order of
discovery (drivers/pci/slot.c).

**NVMe controllers** (drivers/nvme/host), and disks with several controllers.

**FPGA managers** (Documentation/ABI/testing/sysfs-class-fpga-manager). Their class lists all of them. On a DFL card a
manager is six directories below its function, too deep for the walk.
"""

import dataclasses
import functools
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from drawbar.driver.node.inventory import files, model

ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
"""A PCI address in sysfs notation; domains behind a VMD have five digits or more."""
_SLOT_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}")

_LEVELS = 3
ATTRIBUTES_ONLY = frozenset(
    [
        "power",
        "link",
        "msi_irqs",
        "pci_bus",
        "firmware_node",
        "hwmon",
        "queues",
        "statistics",
        "integrity",
        "wakeup",
    ]
)
# Below these are partitions and connectors, but no further device files for a container.
_LEAVES = frozenset({"drm", "accel", "nvme-generic", "cxl"})
_FLAT = frozenset({"vfio-dev"})  # nothing of interest below its devices
# Directories of a class are no devices themselves (drivers/base/core.c, class_dir_create_and_add).
_CLASSES = frozenset({"accel", "drm", "infiniband", "infiniband_verbs", "nvme", "vfio-dev"})
_MULTIPATH_LEG = re.compile(r"nvme(\d+)c\d+n(\d+)")
_SUBFUNCTION = re.compile(r".+\.sf\.\d+")
# A physical port is named "p0", "p0s1" or "n1"; a function's port "pf0vf1", "c1pf0sf3", or "p0pf0vf1".
_ABOVE_FOLDERS = frozenset({"bonding", "bridge", "brif"})
_REPRESENTOR = re.compile(r"(?:c\d+)?(?:p\d+)?pf\d+")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Children:
    """The device nodes and network interfaces below one function, sorted."""

    device_nodes: tuple[model.DeviceNode, ...] = ()
    net_interfaces: tuple[str, ...] = ()


def read_children(root: str, path: str, directories: Iterable[str]) -> Children:
    """Return the device nodes and interfaces in the named subdirectories of the function's directory `path`."""
    nodes: list[model.DeviceNode] = []
    interfaces: list[str] = []
    for name in directories:
        if name not in ATTRIBUTES_ONLY and not _is_another_device(name):
            for child in _walk(root, f"{path}/{name}", name, _LEVELS):
                if isinstance(child, str):
                    interfaces.append(child)
                else:
                    nodes.append(child)
    return Children(
        device_nodes=tuple(sorted(set(nodes), key=lambda node: node.path)),
        net_interfaces=tuple(sorted(interfaces)),
    )


def device_node(path: str) -> model.DeviceNode | None:
    """Return the device node of the directory `path`, or None if it has none."""
    content = files.text(path + "/uevent")
    if content is None or "DEVNAME=" not in content:
        return None
    properties = files.pairs(content)
    name = properties.get("DEVNAME")
    numbers = _device_numbers(path, properties)
    if not name or numbers is None:
        return None
    subsystem = files.link_name(path + "/subsystem") or ""
    major, minor = numbers
    return model.DeviceNode(
        path="/dev/" + name, major=major, minor=minor, block=subsystem == "block", subsystem=subsystem
    )


def _device_numbers(path: str, properties: dict[str, str]) -> tuple[int, int] | None:
    major, minor = files.parse_number(properties.get("MAJOR")), files.parse_number(properties.get("MINOR"))
    if major is not None and minor is not None:
        return major, minor
    before, _, after = (files.text(path + "/dev") or "").partition(":")
    major, minor = files.parse_number(before), files.parse_number(after)
    return (major, minor) if major is not None and minor is not None else None


def _walk(root: str, path: str, name: str, levels: int) -> Iterator[model.DeviceNode | str]:
    """Yield the device nodes, and the names of network interfaces, in and below one directory."""
    if name == "net":
        yield from (
            entry.name
            for entry in files.entries(path)
            if _is_directory(entry) and _is_own_interface(entry.path)
        )
        return
    if leg := _MULTIPATH_LEG.fullmatch(name):
        yield from _multipath_head(root, leg)
        return
    node = device_node(path) if name not in _CLASSES else None
    if node is not None:
        yield node
        if node.block or node.subsystem in _LEAVES:
            return
    if levels > 1:
        levels = 2 if name in _FLAT else levels
        for entry in files.entries(path):
            if _is_directory(entry) and entry.name not in ATTRIBUTES_ONLY:
                yield from _walk(root, entry.path, entry.name, levels - 1)


def _multipath_head(root: str, leg: re.Match[str]) -> Iterator[model.DeviceNode]:
    """Yield the files of the disk behind a hidden path nvme<subsystem>c<controller>n<head> (drivers/nvme/host/multipath.c)."""
    for kind, prefix in (("block", "nvme"), ("nvme-generic", "ng")):
        if (node := device_node(f"{root}/class/{kind}/{prefix}{leg[1]}n{leg[2]}")) is not None:
            yield node


def _is_directory(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False)


def _is_another_device(name: str) -> bool:
    """Return whether this is a function behind a bridge, a port's service (`0000:00:03.0:pcie001`), or a subfunction."""
    return ADDRESS.match(name) is not None or _SUBFUNCTION.fullmatch(name) is not None


def _is_own_interface(path: str) -> bool:
    """Return whether the network interface in this directory belongs to the function above it."""
    if _REPRESENTOR.match(files.text(path + "/phys_port_name") or ""):
        return False
    link = files.text(path + "/iflink")
    if link is not None and link != files.text(path + "/ifindex"):
        return False
    device = files.link_target(path + "/device")
    if device is not None and not path.startswith(os.path.normpath(f"{path}/{device}") + "/"):
        return False
    return not any(name in _ABOVE_FOLDERS or name.startswith("lower_") for name in files.names(path))


_EXTENDED_START = 0x100
_SPACE_BYTES = 4096
_CAPABILITY_DSN = 0x0003
_MOST_CAPABILITIES = (_SPACE_BYTES - _EXTENDED_START) // 8  # a longer list is a loop
_ALL_ONES = 0xFFFF_FFFF  # the answer of a removed device

ReadConfigSpace = Callable[[int, int], bytes]
"""A function of a length and an offset in bytes, like `os.pread` after its descriptor."""


class ConfigSpaceHidden(Exception):
    """This process may read only the first 64 bytes of configuration space."""


def read_serial_number(directory: int) -> int | None:
    """Return the Device Serial Number of the function with this open directory, or None if it has none.

    Raises:
        ConfigSpaceHidden: the process has no privilege (CAP_SYS_ADMIN) to read it.
    """
    try:
        descriptor = os.open("config", os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
    except PermissionError as error:
        raise ConfigSpaceHidden from error
    except OSError:
        return None
    try:
        return find_serial_number(
            lambda length, offset: os.pread(descriptor, length, offset), lambda: os.fstat(descriptor).st_size
        )
    except OSError:
        return None
    finally:
        os.close(descriptor)


def find_serial_number(read: ReadConfigSpace, size: Callable[[], int]) -> int | None:
    """Return the Device Serial Number from the list of extended capabilities, or None if it has none.

    Args:
        read: reads configuration space; returns fewer bytes at its end.
        size: returns the bytes of the function's configuration space, 4,096 for PCI Express.

    Raises:
        ConfigSpaceHidden: the function has extended space, but `read` ends before it.
    """
    offset = _EXTENDED_START
    for _ in range(_MOST_CAPABILITIES):
        block = read(12, offset)
        if offset == _EXTENDED_START and not block and size() > _EXTENDED_START:
            raise ConfigSpaceHidden
        header = int.from_bytes(block[:4], "little")
        if len(block) < 12 or header in (0, _ALL_ONES):
            return None
        if header & 0xFFFF == _CAPABILITY_DSN:
            return _plausible_number(int.from_bytes(block[4:12], "little"))
        offset = (header >> 20) & 0xFFC
        if offset < _EXTENDED_START:
            return None
    return None


def _plausible_number(number: int) -> int | None:
    """Return the number, or None for zeros or ones, which boards without a number have."""
    return None if number in (0, 0xFFFF_FFFF_FFFF_FFFF) else number


_ID_BYTES = 4  # vendor and device


def is_silent(path: str) -> bool:
    """Return whether the function in the directory `path` answers with ones only, as it does when its link is down.

    Source: PCI Express Base Specification, 2.3.2; no function has the vendor id 0xffff. A virtual function has no
    configuration space of its own and always answers ones. Call this for its physical function instead.
    """
    try:
        descriptor = os.open(path + "/config", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.read(descriptor, _ID_BYTES) == b"\xff" * _ID_BYTES
    except OSError:
        return False
    finally:
        os.close(descriptor)


_WIDTHS = frozenset({1, 2, 4, 8, 12, 16, 32})  # PCI Express Base Specification, 7.5.3.6
_HIGHEST_SPEED_GTS = 256.0  # PCIe 8.0


NO_LINK = model.Link()
"""The link of a function that has or shows none."""


def read_link(directory: int) -> model.Link:
    """Return the link of the function with this open directory."""
    return _link(
        files.text("current_link_speed", directory),
        files.text("current_link_width", directory),
        files.text("max_link_speed", directory),
        files.text("max_link_width", directory),
    )


@functools.lru_cache(maxsize=256)  # a host has thousands of links, and few different ones
def _link(now: str | None, lanes: str | None, fastest: str | None, most: str | None) -> model.Link:
    return model.Link(
        speed_gts=link_speed(now),
        width=link_width(files.parse_number(lanes)),
        max_speed_gts=link_speed(fastest),
        max_width=link_width(files.parse_number(most)),
    )


def link_speed(value: str | None) -> float | None:
    """Return GT/s, or None for `Unknown`, for conventional PCI's MHz and for any other text."""
    if not value:
        return None
    amount, _, unit = value.partition(" ")
    if not unit.startswith("GT/s"):
        return None
    try:
        speed = float(amount)
    except ValueError:
        return None
    return speed if 0 < speed <= _HIGHEST_SPEED_GTS else None


def link_width(value: int | None) -> int | None:
    """Return the lanes, or None for an impossible number of lanes."""
    return value if value in _WIDTHS else None


_SLOTS = "bus/pci/slots"


def read_slots(root: str, functions: Collection[str] | None = None) -> tuple[model.Slot, ...]:
    """Return every slot, in order of name. Arguments as for `read_slot`."""
    listed = (read_slot(root, name, functions) for name in slot_names(root))
    return sort_slots(slot for slot in listed if slot is not None)


def slot_names(root: str) -> list[str]:
    """Return the names of the slots, in no meaningful order."""
    return files.names(f"{root}/{_SLOTS}")


def read_slot(root: str, name: str, functions: Collection[str] | None = None) -> model.Slot | None:
    """Return the slot of this name, or None if there is none or its address is unknown.

    Args:
        root: the root of the sysfs tree.
        name: the slot's name.
        functions: the addresses of all functions, if they are listed already.
    """
    path = f"{root}/{_SLOTS}/{name}"
    address = files.text(path + "/address")
    if address is None or _SLOT_ADDRESS.fullmatch(address) is None:
        return None
    ports = _ports_at(root, address, functions)
    port = _port_of_slot(root, name, ports)
    return model.Slot(
        name=name,
        address=address,
        present=flag(files.number(path + "/adapter")),
        powered=flag(files.number(path + "/power")),
        attention=files.number(path + "/attention"),
        speed_gts=link_speed(files.text(path + "/cur_bus_speed")),
        max_speed_gts=link_speed(files.text(path + "/max_bus_speed")),
        port=port,
        is_ambiguous=bool(ports) and port is None,
    )


_FUNCTIONS = range(8)
_PORT_CLASS = "0604"
_UEVENT_CLASS = re.compile(r"^PCI_CLASS=([0-9A-Fa-f]+)$", re.MULTILINE)
_NAME_NUMBER = re.compile(r"0*(\d+)(?:-\d+)?$")
_LAST_NUMBER = re.compile(r"slot\W*0*(\d+)|0*(\d+)\W*$", re.IGNORECASE)


def _ports_at(root: str, address: str, functions: Collection[str] | None) -> tuple[str, ...]:
    """Return the functions at this address that are ports above a slot; none if the device itself sits in a slot.

    Levels alternate: below a root port is a device; if it is a switch, its ports are below it. So every other level may be a
    port.
    """
    ports = []
    for function in _FUNCTIONS:
        if functions is not None and f"{address}.{function}" not in functions:
            continue
        path = f"{root}/bus/pci/devices/{address}.{function}"
        levels = _levels(files.link_target(path) or "")
        if levels % 2 and _class_code(path).startswith(_PORT_CLASS):
            kind = read_port(path).kind
            if levels == 1 or kind is None or kind in _ABOVE_SLOTS:
                ports.append(f"{address}.{function}")
    return tuple(ports)


def _levels(link: str) -> int:
    """Return the number of functions on the path from the root complex to the link's function, including both ends."""
    levels = 0
    for part in reversed(link.split("/")):
        if not ADDRESS.fullmatch(part):
            break
        levels += 1
    return levels


def _class_code(path: str) -> str:
    match = _UEVENT_CLASS.search(files.text(path + "/uevent") or "")
    return f"{int(match[1], 16):06x}" if match else f"{files.number(path + '/class') or 0:06x}"


def _port_of_slot(root: str, name: str, ports: tuple[str, ...]) -> str | None:
    """Return the port above the slot of this name, or None if it cannot be identified."""
    if len(ports) == 1:
        return ports[0]
    match = _NAME_NUMBER.search(name)
    number = int(match[1]) if match else None
    for matches in (_matches_firmware, _matches_capability, _matches_label):
        matching = [port for port in ports if matches(f"{root}/bus/pci/devices/{port}", name, number)]
        if len(matching) == 1:
            return matching[0]
    return None


def _matches_firmware(path: str, name: str, number: int | None) -> bool:
    del name
    return number is not None and files.number(path + "/firmware_node/sun") == number


def _matches_capability(path: str, name: str, number: int | None) -> bool:
    del name
    return number is not None and read_port(path).slot_number == number


def _matches_label(path: str, name: str, number: int | None) -> bool:
    label = files.text(path + "/label") or ""
    match = _LAST_NUMBER.search(label)
    return label.casefold() == name.casefold() or (
        match is not None and number is not None and int(match[1] or match[2]) == number
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PortCapability:
    """The PCI Express capability of a bridge.

    Attributes:
        kind: device/port type: 4 root port, 5 upstream and 6 downstream port of a switch; None without the capability or
            without privilege.
        slot_number: the physical slot number of the slot below; None without one.
    """

    kind: int | None = None
    slot_number: int | None = None


_HEADER_BYTES = 256
_FIRST_CAPABILITY, _LEAST_CAPABILITY = 0x34, 0x40
_CAPABILITY_EXPRESS = 0x10
_SLOT_IMPLEMENTED = 1 << 8
_ABOVE_SLOTS = frozenset({4, 6, 8})
"""Root ports, downstream ports, and bridges from conventional PCI to PCI Express."""


def read_port(path: str) -> PortCapability:
    """Return the PCI Express capability of the bridge in this directory; empty if it cannot be read."""
    try:
        descriptor = os.open(path + "/config", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return PortCapability()
    try:
        return find_port(os.pread(descriptor, _HEADER_BYTES, 0))
    except OSError:
        return PortCapability()
    finally:
        os.close(descriptor)


def find_port(space: bytes) -> PortCapability:
    """Return the PCI Express capability from the first 256 bytes of configuration space, or from fewer."""
    pointer = space[_FIRST_CAPABILITY] & 0xFC if len(space) > _FIRST_CAPABILITY else 0
    for _ in range(_HEADER_BYTES // 4):
        if not _LEAST_CAPABILITY <= pointer <= len(space) - 4:
            break
        if space[pointer] == _CAPABILITY_EXPRESS:
            flags = int.from_bytes(space[pointer + 2 : pointer + 4], "little")
            slot = int.from_bytes(space[pointer + 0x14 : pointer + 0x18], "little") >> 19
            has_slot = flags & _SLOT_IMPLEMENTED and slot not in (0, 0x1FFF)
            return PortCapability(kind=flags >> 4 & 0xF, slot_number=slot if has_slot else None)
        pointer = space[pointer + 1] & 0xFC
    return PortCapability()


def sort_slots(slots: Iterable[model.Slot]) -> tuple[model.Slot, ...]:
    """Return the slots by name: slot 10 comes after slot 9, and names that are not numbers (`2-1`) come last."""
    return tuple(sorted(slots, key=_name_order))


def slot_locations(slots: Iterable[model.Slot]) -> dict[str, str]:
    """Return slot names by `model.Slot.location`; of two slots at one location the first counts."""
    return {slot.location: slot.name for slot in reversed(sort_slots(slots)) if slot.location is not None}


def nearest_slot(path: str, by_location: Mapping[str, str], *, ari: bool = False) -> str | None:
    """Return the name of the nearest slot at or above the device in this directory, or None.

    Args:
        path: a directory of a function, or below one. A port itself does not sit in the slot below it.
        by_location: see `slot_locations`.
        ari: the function has ARI, so its device number is 0 regardless of its address.
    """
    *above, last = path.split("/")
    device = last.rpartition(".")[0]
    name = by_location.get(f"{device[:-2]}00" if ari else device)
    if name is not None:
        return name
    for part in reversed(above):
        name = by_location.get(part.rpartition(".")[0]) or by_location.get(part)
        if name is not None:
            return name
    return None


def flag(value: int | None) -> bool | None:
    """Return 0 or 1 as a truth value; None stays None."""
    return None if value is None else value != 0


def _name_order(slot: model.Slot) -> tuple[int, str]:
    return (int(slot.name), "") if slot.name.isdecimal() else (1 << 32, slot.name)


NVME_CONTROLLER = re.compile(r"nvme\d+")
_SUBSYSTEMS = "devices/virtual/nvme-subsystem"
_TEXT_MAX = 64  # the longest, a model, has 40 bytes (NVM Express Base Specification, Identify Controller)
_NOWHERE = frozenset({"(efault)", "(null)"})
"""The kernel's texts for a missing string (lib/vsprintf.c). Linux 6.1 shows one for a moment, until it has identified the
controller.
"""


def read_nvme(path: str) -> tuple[model.NvmeController, ...]:
    """Return the controllers of the function in this directory."""
    return tuple(
        model.NvmeController(
            name=name,
            state=files.text(f"{path}/nvme/{name}/state") or None,
            model=_read_text(f"{path}/nvme/{name}/model"),
            firmware=_read_text(f"{path}/nvme/{name}/firmware_rev"),
            serial=_read_text(f"{path}/nvme/{name}/serial"),
        )
        for name in files.names(path + "/nvme")
        if NVME_CONTROLLER.fullmatch(name)
    )


def _read_text(path: str) -> str | None:
    text = files.text(path)
    return text if text and text not in _NOWHERE and len(text) <= _TEXT_MAX else None


def functions_of_subsystem(root: str, subsystem: str) -> frozenset[str]:
    """Return the functions with a controller of an NVMe subsystem."""
    path = f"{root}/{_SUBSYSTEMS}/{subsystem}"
    addresses = set()
    for name in files.names(path):
        if NVME_CONTROLLER.fullmatch(name):
            parts = (files.link_target(f"{path}/{name}") or "").split("/")
            addresses |= {part for part in parts if ADDRESS.fullmatch(part)}
    return frozenset(addresses)


def fpga_manager_paths(root: str) -> dict[str, tuple[str, ...]]:
    """Return the directories of all FPGA managers below the root, by the nearest function above each."""
    managers: dict[str, tuple[str, ...]] = {}
    for name in files.names(f"{root}/class/fpga_manager"):
        relative = files.resolve_below_root(files.link_target(f"{root}/class/fpga_manager/{name}") or "")
        above = [part for part in relative.split("/") if ADDRESS.fullmatch(part)]
        if above:
            managers[above[-1]] = (*managers.get(above[-1], ()), relative)
    return managers


def read_fpga_managers(root: str, managers: Iterable[str]) -> tuple[model.FpgaManager, ...]:
    """Return the managers in these directories."""
    return tuple(
        model.FpgaManager(
            name=relative.rpartition("/")[2],
            path=relative,
            title=files.text(f"{root}/{relative}/name") or None,
            state=files.text(f"{root}/{relative}/state") or None,
        )
        for relative in managers
    )
