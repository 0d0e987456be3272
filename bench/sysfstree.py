"""A sysfs tree of thousands of functions, made in seconds: what `drawbar mock sysfs` makes, without its care.

Every directory has as many entries as Linux 6.1 gives it; files of equal content are hard links to one. A tree is made
of cards, each behind a root port of its own: GPUs with their audio function, NVMe disks, NICs with 62 virtual
functions, since no machine has so many functions in another way, CXL memory with its endpoint and decoder. The first ``SLOTS`` ports have hot-plug slots.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path

SLOTS = 256
BUSES = 250  # of a domain: cards beyond have a domain of their own
VFS = 62
TEMPLATES = 1024  # contents that are remembered: most files have one of a few
KINDS = ("gpu", "nvme", "gpu", "nic", "gpu", "nvme", "gpu", "cxl")
CLASSES = {
    "port": 0x060400,
    "gpu": 0x030200,
    "audio": 0x040300,
    "nvme": 0x010802,
    "nic": 0x020000,
    "cxl": 0x050210,
}
ATTRIBUTES = """
aer_dev_correctable aer_dev_fatal aer_dev_nonfatal ari_enabled broken_parity_status class consistent_dma_mask_bits
d3cold_allowed device dma_mask_bits driver_override enable irq local_cpulist local_cpus modalias msi_bus power_state
remove rescan reset reset_method resource resource0 revision subsystem_device subsystem_vendor vendor
"""
COMMON = {
    **dict.fromkeys(ATTRIBUTES.split(), "0"),
    "numa_node": "1",
    "current_link_speed": "16.0 GT/s PCIe",
    "max_link_speed": "32.0 GT/s PCIe",
    "current_link_width": "8",
    "max_link_width": "16",
}
FOLDERS = ("power", "link", "msi_irqs")


class Builder:
    """Writes one tree."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.count = 0
        self._templates: dict[bytes, Path] = {}
        for folder in ("bus/pci/devices", "bus/pci/slots", "bus/cxl/devices", "class"):
            self.folder(folder)

    def folder(self, path: str) -> None:
        """Create a directory below the root, with its parents."""
        (self.root / path).mkdir(parents=True, exist_ok=True)

    def link(self, path: str, target: str) -> None:
        """Create a symbolic link below the root."""
        (self.root / path).symlink_to(target)

    def file(self, path: str, content: bytes) -> None:
        """Create a file with this content below the root."""
        template = self._templates.get(content)
        if template is not None:
            (self.root / path).hardlink_to(template)
            return
        (self.root / path).write_bytes(content)
        if len(self._templates) < TEMPLATES:
            self._templates[content] = self.root / path

    def files(self, folder: str, texts: Mapping[str, str]) -> None:
        """Create a directory with these files."""
        self.folder(folder)
        for name, text in texts.items():
            self.file(f"{folder}/{name}", text.encode() + b"\n")

    def function(self, folder: str, kind: str, *, driver: str, serial: int | None = None) -> None:
        """Create a PCI function."""
        self.count += 1
        address = folder.rpartition("/")[2]
        code = CLASSES[kind]
        ids = f"PCI_CLASS={code:X}\nPCI_ID=10DE:2330\nPCI_SUBSYS_ID=1AF4:1100\nPCI_SLOT_NAME={address}\n"
        bound = f"DRIVER={driver}\n" if driver else ""
        self.files(folder, {**COMMON, "uevent": f"{bound}{ids}MODALIAS=pci:v000010DEd00002330"})
        self.file(f"{folder}/config", _config(serial))
        for name in FOLDERS:
            self.folder(f"{folder}/{name}")
        self.link(f"{folder}/subsystem", "../../../bus/pci")
        if driver:
            self.link(f"{folder}/driver", f"../../../bus/pci/drivers/{driver}")
        if driver == "vfio-pci":
            self.files(f"{folder}/vfio-dev/vfio{self.count}", {"uevent": ""})
            self.folder(f"{folder}/vfio-dev/vfio{self.count}/power")
        self.link(f"{folder}/iommu_group", f"../../../kernel/iommu_groups/{self.count}")
        self.link(f"bus/pci/devices/{address}", f"../../../{folder}")

    def node(self, folder: str, name: str, subsystem: str, number: int) -> None:
        """Create a class device with a file in /dev."""
        uevent = f"MAJOR=240\nMINOR={number}\nDEVNAME={name}"
        self.files(f"{folder}/{name}", {"uevent": uevent, "dev": f"240:{number}"})
        self.folder(f"{folder}/{name}/power")
        self.link(f"{folder}/{name}/subsystem", f"../../../class/{subsystem}")


def build(root: Path, functions: int) -> None:
    """Make a tree of this many functions at ``root``, where nothing is."""
    builder = Builder(root)
    for number, kind in enumerate(itertools.cycle(KINDS)):
        _card(builder, number, kind, functions)
        if builder.count >= functions:
            return


def port(number: int) -> str:
    """Return the directory of a card's root port."""
    domain, bus = divmod(number, BUSES)
    return f"devices/pci{domain:04x}:00/{domain:04x}:00:{bus >> 3:02x}.{bus & 7}"


def first(number: int) -> str:
    """Return the directory of a card's first function."""
    domain, bus = divmod(number, BUSES)
    return f"{port(number)}/{domain:04x}:{bus + 1:02x}:00.0"


def _card(builder: Builder, number: int, kind: str, most: int) -> None:
    bridge, folder = port(number), first(number)
    builder.function(bridge, "port", driver="pcieport")
    builder.files(bridge, {"secondary_bus_number": "1", "subordinate_bus_number": "1"})
    if number < SLOTS:
        address = folder.rpartition("/")[2].rpartition(".")[0]
        slot = {"address": address, "adapter": "1", "power": "1", "attention": "0"}
        builder.files(f"bus/pci/slots/{number + 1}", {**slot, "cur_bus_speed": "16.0 GT/s PCIe"})
    if builder.count >= most:
        return
    for extra in _functions(builder, folder, kind, number):
        if builder.count >= most:
            return
        builder.function(*extra, driver="vfio-pci" if kind == "nic" and number % 16 == 3 else "")
        if kind == "nic":
            builder.link(f"{extra[0]}/physfn", f"../{folder.rpartition('/')[2]}")


def _functions(builder: Builder, folder: str, kind: str, number: int) -> Iterator[tuple[str, str]]:
    """Make the first function with what its driver shows, and yield the others."""
    builder.function(folder, kind, driver=kind, serial=0x48B0_2D00_0000_0000 + number)
    above = folder.rpartition(".")[0]
    match kind:
        case "gpu":
            builder.node(f"{folder}/drm", f"card{number}", "drm", number)
            builder.node(f"{folder}/drm", f"renderD{128 + number}", "drm", number)
            yield f"{above}.1", "audio"
        case "nvme":
            builder.node(f"{folder}/nvme", f"nvme{number}", "nvme", number)
            texts = {"serial": f"S{number:019}", "model": "Drawbar", "firmware_rev": "1.0", "state": "live"}
            name = {"subsysnqn": f"nqn.2019-08.org.example:{number}"}
            builder.files(f"{folder}/nvme/nvme{number}", {**texts, **name})
            builder.node(f"{folder}/nvme/nvme{number}", f"nvme{number}n1", "block", number)
            builder.file(
                f"{folder}/nvme/nvme{number}/nvme{number}n1/wwid", f"eui.0025389a{number:08x}\n".encode()
            )
        case "nic":
            builder.files(folder, {"sriov_totalvfs": f"{VFS}", "sriov_numvfs": f"{VFS}"})
            mac = f"94:6d:ae:00:{number >> 8 & 255:02x}:{number & 255:02x}"
            builder.files(f"{folder}/net/eth{number}", {"address": mac, "addr_assign_type": "0"})
            builder.files(f"{folder}/infiniband/mlx5_{number}", {"node_guid": f"946d:ae03:0000:{number:04x}"})
            builder.file(f"{folder}/vpd", b"")
            bus = above.rpartition(":")[0]
            for index in range(VFS):
                address = f"{bus}:{1 + index // 8:02x}.{index % 8}"
                builder.link(f"{folder}/virtfn{index}", f"../{address.rpartition('/')[2]}")
                yield address, "nic"
        case "cxl":
            memdev = f"{folder}/mem{number}"
            builder.files(memdev, {"serial": f"{number + 1:#x}", "numa_node": "1", "uevent": ""})
            builder.files(f"{memdev}/ram", {"size": "0x100000000"})
            builder.link(f"bus/cxl/devices/mem{number}", f"../../../{memdev}")


def _config(serial: int | None) -> bytes:
    """Return a configuration space with a Device Serial Number, or one without extended capabilities."""
    if serial is None:
        return bytes(4096)
    return bytes(256) + b"\x03\x00\x01\x00" + serial.to_bytes(8, "little") + bytes(4096 - 268)
