"""The rules for reading a host's devices into a recording, and the format of a snapshot; pure.

Reading an attribute calls its driver. Some drivers then wake the device, send it commands or clear the value. So only
attributes known to be harmless are read: those of the kernel's own subsystems, by name where drivers add to them. Of all
other files, the name, mode and size are kept. Device memory (`resourceN`), expansion ROMs, vital product data and keys are
never read.

A snapshot is one JSON object. It maps each path, beginning with /sys/ or /proc/, to one of these:

- `{"text", "mode"}` or `{"b64", "mode"}`: the content of a file;
- `{"link"}`: the target of a symbolic link;
- `{"mode", "size"}`: a file that was not read;
- `{"errno"}`: the kernel refused the read;
- `{"folder": true}`: an empty directory; others are implied.
"""

import base64
import re
from typing import Any

import msgspec

from drawbar.driver.node.inventory import model

_NEVER = re.compile(
    r"resource\d+(_wc)?|rom|vpd|data|edid|wait_probe|.*(secret|passw|token|psk|_key|keyring).*"
)
_ALWAYS = frozenset({"dev", "modalias", "uevent", "waiting_for_supplier"})
WAKING = frozenset(
    {"config", "current_link_speed", "current_link_width", "max_link_speed", "max_link_width", "link"}
)
"""Files whose reading powers up a sleeping PCI function."""

# Endless or irrelevant attributes, and those whose reading sends commands to the device (hwmon of NVMe and GPUs, firmware).
_SKIPPED_FOLDERS = re.compile(
    r"power|wakeup\d*|statistics|queues|trace|integrity|mq|iosched|hwmon\d*|firmware|i2c-\d+|i2c-dev|leds|ptp"
)


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """The files to read of a device.

    Attributes:
        files: the names of attributes; None for all.
        groups: the names of attribute directories to read in full; None for all.
        listed: whether to record the name, mode and size of the other attributes.
    """

    files: frozenset[str] | None = _ALWAYS
    groups: frozenset[str] | None = frozenset()
    listed: bool = True

    def reads(self, name: str) -> bool:
        """Return whether this attribute is read."""
        return self.files is None or name in self.files or name in _ALWAYS

    def has_group(self, name: str) -> bool:
        """Return whether a directory of this name holds attributes to read, provided it is not a device."""
        return self.groups is None or name in self.groups


def _make_rule(files: str, groups: str = "") -> Rule:
    return Rule(files=frozenset(files.split()), groups=frozenset(groups.split()))


EVERYTHING = Rule(files=None, groups=None)
MEMORY = _make_rule("auto_online_blocks block_size_bytes")
"""The rule for the directory of the memory blocks, which has no subsystem."""
STRANGE = Rule(listed=False)
"""The rule for devices of other subsystems: enough to see their device files."""
_BOARD_CONTROLLER = Rule(
    files=_ALWAYS
    | {
        "mac_address",
        "mac_addr0",
        "mac_addr1",
        "mac_addr2",
        "mac_addr3",
        "mac_addr_first",
        "mac_count",
        "serial_num",
    },
    listed=False,
)
"""The rule for the board controllers of accelerator cards, which are devices on the buses `platform` and `spi`."""

_RULES = {
    "pci": Rule(
        files=model.CORE_ENTRIES
        | {"current_compute_partition", "fuse_ver", "product_number", "serial_number", "unique_id"},
        groups=frozenset({"link", "msi_irqs"}),
    ),
    "pci_express": Rule(),
    "pci_bus": _make_rule("cpuaffinity cpulistaffinity"),
    "cxl": EVERYTHING,
    "dax": EVERYTHING,
    "nd": EVERYTHING,
    "nvme": _make_rule(
        "address cntlid cntrltype dctype fast_io_fail_tmo firmware_rev hostid hostnqn kato model numa_node queue_count "
        "reconnect_delay serial sqsize state subsysnqn transport"
    ),
    "nvme-subsystem": _make_rule("firmware_rev iopolicy model serial subsysnqn subsystype"),
    "nvme-generic": Rule(),
    "block": _make_rule(
        "alignment_offset ana_grpid ana_state capability csi diskseq eui ext_range hidden metadata_bytes nguid nsid "
        "partition range removable ro size start uuid wwid",
        "holders queue slaves",
    ),
    "net": _make_rule(
        "addr_assign_type addr_len address broadcast carrier dev_id dev_port duplex flags ifindex iflink mtu name_assign_type operstate "
        "phys_port_id phys_port_name phys_switch_id speed tx_queue_len type"
    ),
    "drm": Rule(),
    "accel": _make_rule("fuse_ver"),
    "fpga_manager": _make_rule("name state"),
    "fpga_region": _make_rule("compat_id"),
    "fpga_bridge": _make_rule("name state"),
    "dfl": _make_rule("feature_id type"),
    "vfio": Rule(),
    "vfio-dev": Rule(),
    "iommu": Rule(),
    "kfd": Rule(),
    "misc": Rule(),
    "virtio": _make_rule("device features status vendor"),
    "infiniband": _make_rule("name node_guid numa_node"),
    "habanalabs": _make_rule("fuse_ver"),
    "platform": _BOARD_CONTROLLER,
    "spi": _BOARD_CONTROLLER,
    "memory": _make_rule("online phys_device phys_index state valid_zones"),
}
BUSES = ("pci", "pci_express", "cxl", "dax", "nd")
CLASSES = [
    "accel",
    "block",
    "drm",
    "fpga_bridge",
    "fpga_manager",
    "fpga_region",
    "infiniband",
    "kfd",
    "misc",
    "net",
    "nvme",
    "nvme-generic",
    "nvme-subsystem",
    "vfio",
    "vfio-dev",
]
# The added subsystems are not recorded as devices, but their events show the work of drivers.
_HEARD = frozenset(_RULES) | {"bdi", "drivers", "hwmon", "module", "slots"}
_VIRTUAL = "devices/virtual/"
_VIRTUAL_KEPT = (
    *("nvme-subsystem/", "vfio/", "dax/", "bdi/", "kfd/"),
    *("misc/vfio", "misc/iommu", "misc/rdma_cm"),
)


def rule(subsystem: str) -> Rule:
    """Return the rule for devices of this subsystem; an empty name stands for a directory that only groups devices."""
    return _RULES.get(subsystem, STRANGE)


def is_never_read(name: str) -> bool:
    """Return whether attributes of this name are never read, on any device."""
    return _NEVER.fullmatch(name) is not None


def is_skipped(folder: str, around: Rule) -> bool:
    """Return whether to skip a directory of this name below a device with the rule `around`."""
    return _SKIPPED_FOLDERS.fullmatch(folder) is not None and folder not in (around.groups or ())


def concerns(path: str) -> bool:
    """Return whether to record a device in this directory below the root; False for loops, bridges, tunnels and the like."""
    return not path.startswith(_VIRTUAL) or path.removeprefix(_VIRTUAL).startswith(_VIRTUAL_KEPT)


def is_heard(subsystem: str, devpath: str) -> bool:
    """Return whether to record an event. Events of other subsystems, such as keyboards, are only counted."""
    return subsystem in _HEARD and concerns(devpath.removeprefix("/"))


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a file.

    Attributes:
        data: the bytes read.
        mode: the permission bits.
    """

    data: bytes
    mode: int


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """A symbolic link, with its target unresolved."""

    target: str


class Unread(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was not read: it is write-only or too large, or reading it may do harm.

    Attributes:
        mode: the permission bits.
        size: the size in bytes.
    """

    mode: int
    size: int


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """A file or directory that could not be read.

    Attributes:
        number: the errno.
    """

    number: int


class Folder(msgspec.Struct, frozen=True, kw_only=True):
    """A directory without recorded entries."""


Entry = Content | Link | Unread | Refused | Folder


def encode(entry: Entry) -> dict[str, Any]:
    """Return the entry in the format of a snapshot."""
    match entry:
        case Content(data=data, mode=mode):
            text = _text(data)
            if text is None:
                return {"mode": oct(mode), "b64": base64.b64encode(data).decode()}
            return {"mode": oct(mode), "text": text}
        case Link(target=target):
            return {"link": target}
        case Unread(mode=mode, size=size):
            return {"mode": oct(mode), "size": size}
        case Refused(number=number):
            return {"errno": number}
        case Folder():
            return {"folder": True}


def _text(data: bytes) -> str | None:
    """Return the data as text; None if they are not UTF-8 or contain NULs, which take six bytes each in JSON."""
    if b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
