"""Readers for a PCI function in sysfs, one for each aspect.

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

**NVMe controllers** (drivers/nvme/host), and disks with several controllers.

**FPGA managers** (Documentation/ABI/testing/sysfs-class-fpga-manager). Their class lists all of them. On a DFL card a
manager is six directories below its function, too deep for the walk.
"""

import functools
import os
import re
from collections.abc import Callable, Iterable, Iterator

import msgspec

from drawbar.driver.node.inventory import files, model

ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
"""A PCI address in sysfs notation; domains behind a VMD have five digits or more."""

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


class Children(msgspec.Struct, frozen=True, kw_only=True):
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
            files.as_text(entry.name)
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


def is_representor(port: str | None) -> bool:
    """Return whether a network interface with this name of a port stands for another function."""
    return _REPRESENTOR.match(port or "") is not None


def _is_own_interface(path: str) -> bool:
    """Return whether the network interface in this directory belongs to the function above it."""
    if is_representor(files.text(path + "/phys_port_name")):
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
