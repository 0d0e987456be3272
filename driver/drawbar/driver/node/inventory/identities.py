"""The identifiers of a PCI function, as the kernel and the function's driver show them.

Only files in the listing of the function's directory are read. `witnesses.identifier` makes each value of a text. A
placeholder, a text with control characters and a text of a megabyte give no identifier.

Sources: Documentation/ABI/testing/sysfs-bus-pci (`serial_number`, the Device Serial Number since Linux 6.18),
sysfs-class-net, sysfs-driver-habanalabs, sysfs-driver-intel-m10-bmc, sysfs-bus-cxl; Documentation/gpu/amdgpu
(`unique_id`, `serial_number` and `product_number` of the board); drivers/nvme/host/sysfs.c; XRT's `xmc` and
`hwmon_sdm` (`serial_num`, `mac_addr*`); NVIDIA's driver, README, "procfs interface".
"""

import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import msgspec

from drawbar.driver.node.inventory import files, model, pci
from drawbar.driver.node.inventory.model import Silence
from drawbar.fabric import witnesses
from drawbar.fabric.classes import DeviceClass
from drawbar.fabric.witnesses import Identifier, Kind

_VIRTIO = re.compile(r"virtio\d+")
_NAMESPACE = re.compile(r"nvme\d+(?:c\d+)?n\d+")
# XRT's board controller: of Alveo cards, and of those with a Versal chip.
_XRT = ("xmc", "hwmon_sdm")
_XMC = re.compile(rf"(?:{'|'.join(_XRT)})(?:\W.*)?")
_DASHED = re.compile(r"(?:[0-9a-f]{2}-){7}[0-9a-f]{2}", re.IGNORECASE)
_GPU_UUID = re.compile(r"^GPU UUID:\s*(\S+)\s*$", re.MULTILINE)
_UUID_OF_TIME = re.compile(r"[0-9a-f]{12}(?:1[0-9a-f]|[0-9a-f]{2}1)", re.IGNORECASE)
# NVM Express Base Specification 4.7: with a dot in the date, the kernel made it for a device without one.
_KERNELS_NQN = "nqn.2014.08.org.nvmexpress:"
_MELLANOX = 0x15B3
_UUID_DIGITS, _MAC_DIGITS = 32, 12
_ENTRIES_MAX = 64
_FOLDERS_MAX = 256
_DEPTH_MAX = 8
_MACS_MAX = 16
_OF_BOND_MEMBER = "bonding_slave/perm_hwaddr"
_IS_PERMANENT = "0"  # NET_ADDR_PERM (include/uapi/linux/netdevice.h)


class Vpd(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a read of Vital Product Data.

    Attributes:
        fields: by their two letters.
        silence: the reason for missing fields.
    """

    fields: Mapping[str, str]
    silence: Silence | None = None


NO_VPD = Vpd(fields={})


# Neither frozen nor checked, for speed: every function read makes one.
@dataclass(slots=True)
class FunctionDirectory:
    """The directory of a PCI function.

    Attributes:
        root: the root of the sysfs tree.
        relative: the directory's path below the root.
        descriptor: an open descriptor of the directory.
        names: the names of its entries of interest.
        directories: its subdirectories made by drivers.
    """

    root: str
    address: str
    relative: str
    descriptor: int
    device_class: DeviceClass
    vendor: int
    driver: str | None
    names: frozenset[str]
    directories: tuple[str, ...]

    @property
    def path(self) -> str:
        """Return the directory's path."""
        return f"{self.root}/{self.relative}"


@dataclass(slots=True)
class Readings:
    """The readings of a physical function from elsewhere than the files of its directory.

    Attributes:
        dsn: the Device Serial Number from configuration space.
        dsn_hidden: this process may not read it.
        information: the text of NVIDIA's driver about the function; None if it did not come in time.
        vpd: returns the Vital Product Data read so far; the argument is true if the function is identified.
    """

    dsn: str | None
    dsn_hidden: bool
    information: str | None
    vpd: Callable[[bool], Vpd]


Shown = tuple[tuple[Identifier, ...], tuple[tuple[Kind, Silence], ...]]
"""The identifiers, and the kinds missing from a read with their reasons."""
NOTHING: Shown = ((), ())
_Text = tuple[Kind, str | None, str]
"""A kind, a file's text, and the file's name."""


def read(directory: FunctionDirectory, readings: Readings) -> Shown:
    """Return the identifiers of a physical function that is no bridge. Reads its files."""
    texts = list(_own_texts(directory, readings))
    unread: list[tuple[Kind, Silence]] = []
    if directory.driver == "nvidia" and directory.device_class is DeviceClass.GPU:
        text = _gpu_uuid(readings.information)
        texts.append((Kind.GPU_UUID, text, "/proc/driver/nvidia"))
        if text is None or "?" in text:
            unread.append((Kind.GPU_UUID, Silence.NOT_INITIALISED))
    for name in directory.directories:
        if (reader := _folder_reader(name, directory.driver)) is not None:
            texts += reader(directory, name)
    identified = _identifiers(texts)
    vital = readings.vpd(any(each.kind is not Kind.PART_NUMBER for each in identified))
    if vital.silence is not None:
        unread.append((Kind.VPD_SERIAL, vital.silence))
    if not vital.fields:
        return identified, tuple(unread)
    return _identifiers((*texts, *_vital(vital.fields, directory.vendor))), tuple(unread)


def _identifiers(texts: Iterable[_Text]) -> tuple[Identifier, ...]:
    """Return the identifiers in the texts, each value of a kind once."""
    made: dict[tuple[Kind, str], Identifier] = {}
    for kind, text, source in texts:
        # The replacement character marks bytes that are not UTF-8.
        if text and len(text) <= witnesses.VALUE_MAX and "\ufffd" not in text:
            each = witnesses.identifier(kind, text, files.as_text(source))
            if each is not None:
                made.setdefault((each.kind, each.value), each)
    return tuple(itertools.islice(made.values(), witnesses.IDENTIFIERS_MAX))


def _own_texts(directory: FunctionDirectory, readings: Readings) -> Iterator[_Text]:
    """Yield the texts of the function's own files."""
    if readings.dsn is not None:
        yield Kind.PCIE_DSN, readings.dsn, "config"
    is_amd = directory.driver == "amdgpu"
    if "serial_number" in directory.names and (is_amd or readings.dsn_hidden):
        # Two files share this name: the kernel's Device Serial Number, and the serial number of AMD's board.
        text = files.text("serial_number", directory.descriptor)
        is_dsn = text is not None and _DASHED.fullmatch(text) is not None
        if is_dsn or (is_amd and not _is_unique_id(directory, text)):
            yield (Kind.PCIE_DSN if is_dsn else Kind.BOARD_SERIAL), text, "serial_number"
    if is_amd:
        for name, kind in (("unique_id", Kind.GPU_UNIQUE_ID), ("product_number", Kind.PART_NUMBER)):
            if name in directory.names:
                yield kind, files.text(name, directory.descriptor), name
    if directory.driver == "habanalabs" and "fuse_ver" in directory.names:
        yield _fuse_version(directory, "fuse_ver")


def _is_unique_id(directory: FunctionDirectory, serial: str | None) -> bool:
    """Return whether the serial number is the chip's unique id, as amdgpu prints it for boards whose FRU it cannot read."""
    unique = files.text("unique_id", directory.descriptor) if "unique_id" in directory.names else None
    return bool(unique) and (serial or "").lstrip("0") == (unique or "").lstrip("0")


def _gpu_uuid(information: str | None) -> str | None:
    match = _GPU_UUID.search(information or "")
    return match[1] if match else None


_FolderReader = Callable[[FunctionDirectory, str], Iterator[_Text]]


def _folder_reader(name: str, driver: str | None) -> _FolderReader | None:
    """Return the reader for the directory of this name below a function, or None."""
    if (reader := _FOLDERS.get(name)) is not None:
        return reader
    if driver == "habanalabs" and name in ("habanalabs", "accel"):
        return _habanalabs
    if name.startswith(_XRT) and _XMC.fullmatch(name):
        return _xmc
    if name.startswith("mem") and model.MEMDEV.fullmatch(name):
        return _memdev
    if name.startswith("virtio") and _VIRTIO.fullmatch(name):
        return _virtio
    return None


def _nvme(directory: FunctionDirectory, folder: str) -> Iterator[_Text]:
    for name in _list_names(directory, folder, pci.NVME_CONTROLLER):
        yield _text(directory, Kind.NVME_SERIAL, f"{folder}/{name}/serial")
        kind, nqn, source = _text(directory, Kind.NVME_NQN, f"{folder}/{name}/subsysnqn")
        if nqn is not None and not nqn.startswith(_KERNELS_NQN):
            yield kind, nqn, source
        for namespace in _list_names(directory, f"{folder}/{name}", _NAMESPACE):
            below = f"{folder}/{name}/{namespace}"
            shown = frozenset(files.names(f"{directory.path}/{below}"))
            if "wwid" in shown:
                yield from _wwid_texts(_text(directory, Kind.EUI64, f"{below}/wwid"))
            if "eui" in shown:
                yield _text(directory, Kind.EUI64, f"{below}/eui")
            if "nguid" in shown:
                yield _text(directory, Kind.NGUID, f"{below}/nguid")


def _wwid_texts(text: _Text) -> Iterator[_Text]:
    """Yield the identifiers of a `wwid`; those with the prefixes `uuid.`, `nvme.` and `t10.` have no kind."""
    _, value, source = text
    if value is not None and value.startswith("eui."):
        yield Kind.EUI64, value, source
        yield Kind.NGUID, value, source


def _net(directory: FunctionDirectory, folder: str) -> Iterator[_Text]:
    for name in _list_names(directory, folder):
        below = f"{folder}/{name}"
        if pci.is_representor(files.text(f"{below}/phys_port_name", directory.descriptor)):
            continue
        is_permanent = files.text(f"{below}/addr_assign_type", directory.descriptor) == _IS_PERMANENT
        # A member of a bond has the bond's address.
        yield _text(directory, Kind.MAC, f"{below}/{'address' if is_permanent else _OF_BOND_MEMBER}")


def _virtio(directory: FunctionDirectory, folder: str) -> Iterator[_Text]:
    yield from _net(directory, f"{folder}/net")


def _infiniband(directory: FunctionDirectory, folder: str) -> Iterator[_Text]:
    for name in _list_names(directory, folder):
        yield _text(directory, Kind.NODE_GUID, f"{folder}/{name}/node_guid")


def _memdev(directory: FunctionDirectory, folder: str) -> Iterator[_Text]:
    yield _text(directory, Kind.PCIE_DSN, f"{folder}/serial")


def _habanalabs(directory: FunctionDirectory, folder: str) -> Iterator[_Text]:
    for name in _list_names(directory, folder):
        yield _fuse_version(directory, f"{folder}/{name}/fuse_ver")


def _fuse_version(directory: FunctionDirectory, path: str) -> _Text:
    text = files.text(path, directory.descriptor)
    # A placeholder stays a placeholder after the prefix.
    return Kind.VENDOR, f"fuse-ver={text}" if text and witnesses.normal(Kind.SERIAL, text) else None, path


def _xmc(directory: FunctionDirectory, folder: str) -> Iterator[_Text]:
    for name in _list_names(directory, folder):
        if name == "serial_num":
            yield _text(directory, Kind.BOARD_SERIAL, f"{folder}/{name}")
        elif name.startswith("mac_addr"):
            yield _text(directory, Kind.MAC, f"{folder}/{name}")


def _board_controller(directory: FunctionDirectory, folder: str) -> Iterator[_Text]:
    """Yield the MAC addresses of an Intel card; its board controller is some directories below the function."""
    budget = itertools.count()
    for path, names in _folders(directory, folder, _DEPTH_MAX, budget):
        if "mac_address" in names:
            text = files.text(f"{path}/mac_address", directory.descriptor) or ""
            count = files.number(f"{path}/mac_count", directory.descriptor) or 1
            source = f"{path.rpartition('/')[2]}/mac_address"
            yield from ((Kind.MAC, each, source) for each in _consecutive_macs(text, count))


def _folders(
    directory: FunctionDirectory, folder: str, levels: int, budget: Iterator[int]
) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield a directory and its subdirectories, each with the names of its files."""
    if next(budget) >= _FOLDERS_MAX:
        return
    entries = files.entries(f"{directory.path}/{folder}")
    below = {each.name for each in entries if each.is_dir(follow_symlinks=False)}
    yield folder, frozenset(each.name for each in entries) - below
    if levels > 1:
        for name in sorted(below - pci.ATTRIBUTES_ONLY):
            yield from _folders(directory, f"{folder}/{name}", levels - 1, budget)


def _consecutive_macs(address: str, count: int) -> Iterator[str]:
    first = witnesses.normal(Kind.MAC, address)
    if first:
        number = int(first.replace(":", ""), 16)
        for each in range(min(max(count, 1), _MACS_MAX)):
            yield f"{number + each:012x}"


def _vital(fields: Mapping[str, str], vendor: int) -> Iterator[_Text]:
    yield Kind.VPD_SERIAL, fields.get("SN"), "vpd SN"
    yield Kind.PART_NUMBER, fields.get("PN"), "vpd PN"
    digits = fields.get("V3", "").replace("-", "")
    if vendor == _MELLANOX and len(digits) == _UUID_DIGITS and _UUID_OF_TIME.match(digits):
        # A UUID of version 1 ends in the card's first MAC address, in any order of its other bytes.
        yield Kind.MAC, digits[-_MAC_DIGITS:], "vpd V3"


_FOLDERS: dict[str, _FolderReader] = {
    "nvme": _nvme,
    "net": _net,
    "infiniband": _infiniband,
    "fpga_region": _board_controller,
}


def _text(directory: FunctionDirectory, kind: Kind, path: str) -> _Text:
    return kind, files.text(path, directory.descriptor), path


def _list_names(
    directory: FunctionDirectory, folder: str, pattern: re.Pattern[str] | None = None
) -> list[str]:
    """Return the names in a directory of the function that match the pattern."""
    listed = files.names(os.path.join(directory.path, folder))  # noqa: PTH118 - as everywhere in this package, paths are str
    return [name for name in listed if pattern is None or pattern.fullmatch(name)][:_ENTRIES_MAX]
