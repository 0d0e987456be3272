"""Which files of which devices are read when a host is recorded, and the form of what was read; pure.

Reading an attribute calls its driver, and some drivers then wake the device, send it commands or clear what they show.
So only what is known to be harmless is read: attributes of the kernel's own subsystems, by name where drivers add to
them. Of everything else name, mode and size are kept. Device memory (`resourceN`), expansion ROMs, vital product data
and keys are never read.

A snapshot is one JSON object: path, beginning with /sys/ or /proc/, to one of `{"text", "mode"}` or `{"b64", "mode"}` (content),
`{"link"}` (target), `{"mode", "size"}` (there, and not read), `{"errno"}` (the kernel refused), `{"folder": true}`
(an empty one; others are implied).
"""

import base64
import dataclasses
import re
from typing import Any

from drawbar.driver.node.inventory import model

_NEVER = re.compile(
    r"resource\d+(_wc)?|rom|vpd|data|edid|wait_probe|.*(secret|passw|token|psk|_key|keyring).*"
)
_ALWAYS = frozenset({"dev", "modalias", "uevent", "waiting_for_supplier"})
WAKING = frozenset(
    {"config", "current_link_speed", "current_link_width", "max_link_speed", "max_link_width", "link"}
)
"""What a sleeping PCI function is powered up for when it is read."""
ASLEEP = frozenset({"D1", "D2", "D3hot", "D3cold"})

# Attributes without end or interest, or for which a device is sent commands (hwmon of NVMe and GPUs, firmware).
_SKIPPED_FOLDERS = re.compile(
    r"power|wakeup\d*|statistics|queues|trace|integrity|mq|iosched|hwmon\d*|firmware|i2c-\d+|i2c-dev|leds|ptp"
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What is read of a device.

    Attributes:
        files: names of attributes; None for all.
        groups: names of directories of attributes that are read in full; None for all that it has.
        listed: whether attributes that are not read are recorded as being there.
    """

    files: frozenset[str] | None = _ALWAYS
    groups: frozenset[str] | None = frozenset()
    listed: bool = True

    def reads(self, name: str) -> bool:
        """Whether this attribute is read."""
        return self.files is None or name in self.files or name in _ALWAYS

    def has_group(self, name: str) -> bool:
        """Whether a directory of this name, if it is no device, holds attributes that are read."""
        return self.groups is None or name in self.groups


def _named(files: str, groups: str = "") -> Rule:
    return Rule(files=frozenset(files.split()), groups=frozenset(groups.split()))


EVERYTHING = Rule(files=None, groups=None)
MEMORY = _named("auto_online_blocks block_size_bytes")
"""For the directory of the memory blocks, which has no subsystem of its own."""
STRANGE = Rule(listed=False)
"""For devices of other subsystems: enough to see which device files there are."""
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
"""For the board controllers of accelerator cards, which are devices of the buses `platform` and `spi`."""

_RULES = {
    "pci": Rule(
        files=model.CORE_ENTRIES
        | {"current_compute_partition", "fuse_ver", "product_number", "serial_number", "unique_id"},
        groups=frozenset({"link", "msi_irqs"}),
    ),
    "pci_express": Rule(),
    "pci_bus": _named("cpuaffinity cpulistaffinity"),
    "cxl": EVERYTHING,
    "dax": EVERYTHING,
    "nd": EVERYTHING,
    "nvme": _named(
        "address cntlid cntrltype dctype fast_io_fail_tmo firmware_rev hostid hostnqn kato model numa_node queue_count "
        "reconnect_delay serial sqsize state subsysnqn transport"
    ),
    "nvme-subsystem": _named("firmware_rev iopolicy model serial subsysnqn subsystype"),
    "nvme-generic": Rule(),
    "block": _named(
        "alignment_offset ana_grpid ana_state capability csi diskseq eui ext_range hidden metadata_bytes nguid nsid "
        "partition range removable ro size start uuid wwid",
        "holders queue slaves",
    ),
    "net": _named(
        "addr_assign_type addr_len address broadcast carrier dev_id dev_port duplex flags ifindex iflink mtu name_assign_type operstate "
        "phys_port_id phys_port_name phys_switch_id speed tx_queue_len type"
    ),
    "drm": Rule(),
    "accel": _named("fuse_ver"),
    "fpga_manager": _named("name state"),
    "fpga_region": _named("compat_id"),
    "fpga_bridge": _named("name state"),
    "dfl": _named("feature_id type"),
    "vfio": Rule(),
    "vfio-dev": Rule(),
    "iommu": Rule(),
    "kfd": Rule(),
    "misc": Rule(),
    "virtio": _named("device features status vendor"),
    "infiniband": _named("name node_guid numa_node"),
    "habanalabs": _named("fuse_ver"),
    "platform": _BOARD_CONTROLLER,
    "spi": _BOARD_CONTROLLER,
    "memory": _named("online phys_device phys_index state valid_zones"),
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
# Events that are no device's own, or of devices that are not recorded and still show how a driver got on.
_HEARD = frozenset(_RULES) | {"bdi", "drivers", "hwmon", "module", "slots"}
_VIRTUAL = "devices/virtual/"
_VIRTUAL_KEPT = (
    *("nvme-subsystem/", "vfio/", "dax/", "bdi/", "kfd/"),
    *("misc/vfio", "misc/iommu", "misc/rdma_cm"),
)


def rule(subsystem: str) -> Rule:
    """What is read of a device of this subsystem; empty for a directory that only groups devices."""
    return _RULES.get(subsystem, STRANGE)


def is_never_read(name: str) -> bool:
    """Whether an attribute of this name is left alone whatever device has it."""
    return _NEVER.fullmatch(name) is not None


def is_skipped(folder: str, around: Rule) -> bool:
    """Whether a directory of this name is left out below a device that is read by the rule `around`."""
    return _SKIPPED_FOLDERS.fullmatch(folder) is not None and folder not in (around.groups or ())


def concerns(path: str) -> bool:
    """Whether a device in this directory, below the root, is recorded: not loops, bridges, tunnels and the like."""
    return not path.startswith(_VIRTUAL) or path.removeprefix(_VIRTUAL).startswith(_VIRTUAL_KEPT)


def is_heard(subsystem: str, devpath: str) -> bool:
    """Whether an event is recorded; those of other subsystems, such as keyboards, are only counted."""
    return subsystem in _HEARD and concerns(devpath.removeprefix("/"))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """A file that was read; `mode` are its permission bits."""

    data: bytes
    mode: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A symbolic link, as it says."""

    target: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """A file that is there and was not read: it can only be written, or reading it is not known to be harmless."""

    mode: int
    size: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A file or directory that could not be read; `number` is the errno."""

    number: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """A directory with nothing recorded in it."""


Entry = Content | Link | Unread | Refused | Folder


def encoded(entry: Entry) -> dict[str, Any]:
    """The entry as it stands in a snapshot."""
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
    """Text, unless there are NULs: JSON needs six bytes for each."""
    if b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
