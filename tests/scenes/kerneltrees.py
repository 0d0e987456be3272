"""Hand-written sysfs trees: what a kernel shows that no mocked host has, or of a single function."""

import os
import struct

PORT = {"class_code": 0x060400, "vendor": 0x1022, "device": 0x14AB, "driver": "pcieport"}
ROOT_PORT, UPSTREAM_PORT, DOWNSTREAM_PORT, BRIDGE_FROM_EXPRESS = 4, 5, 6, 7


class Tree:
    """A tree that grows by functions, slots, device files and network interfaces."""

    def __init__(self, root):
        self.root = root
        for folder in ("bus/pci/devices", "bus/pci/slots", "class", "devices"):
            (root / folder).mkdir(parents=True)

    def write(self, path, content):
        """Write a file; text gets a final newline."""
        path = self.root / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else f"{content}\n".encode())

    def link(self, path, target):
        """Make `path` a relative link to the directory `target`, both below the root."""
        path, target = self.root / path, self.root / target
        target.mkdir(parents=True, exist_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(os.path.relpath(target, path.parent))

    def slot(self, name, address):
        """Create a slot with power and a card."""
        for file, text in (("address", address), ("power", 1), ("adapter", 1), ("attention", 0)):
            self.write(f"bus/pci/slots/{name}/{file}", text)

    def function(self, path, *, class_code, vendor, device, driver=None, config=None, files=(), group=None):
        """Create a function in devices/`path`, whose last part is its address; return the directory.

        Args:
            path: below `devices`.
            class_code: 24 bits.
            vendor: PCI vendor ID.
            device: PCI device ID.
            driver: what is bound to it.
            config: its configuration space.
            files: by name the text of further files.
            group: its IOMMU group.
        """
        address, base = path.rpartition("/")[2], f"devices/{path}"
        ids = f"PCI_CLASS={class_code:X}\nPCI_ID={vendor:04X}:{device:04X}\nPCI_SUBSYS_ID=0000:0000\nPCI_SLOT_NAME={address}"
        self.write(f"{base}/uevent", f"DRIVER={driver}\n{ids}" if driver else ids)
        self.write(f"{base}/config", config or bytes(64))
        for name, text in dict(files).items():
            self.write(f"{base}/{name}", text)
        self.link(f"bus/pci/devices/{address}", base)
        if driver:
            self.link(f"{base}/driver", f"bus/pci/drivers/{driver}")
            self.link(f"bus/pci/drivers/{driver}/{address}", base)
        if group is not None:
            self.link(f"{base}/iommu_group", f"kernel/iommu_groups/{group}")
        return base

    def port(self, path, *, bus, kind=None, slot_number=0, files=()):
        """Create a port that leads to a bus; without a kind, hide its capabilities."""
        config = None if kind is None else port_space(kind, slot_number)
        buses = {"secondary_bus_number": bus, "subordinate_bus_number": bus}
        return self.function(path, **PORT, config=config, files=buses | dict(files))

    def node(self, path, name, major, minor, subsystem):
        """Create a device with a file in /dev, in a directory below the root."""
        self.write(f"{path}/uevent", f"MAJOR={major}\nMINOR={minor}\nDEVNAME={name}")
        self.link(f"{path}/subsystem", f"class/{subsystem}")
        self.link(f"class/{subsystem}/{path.rpartition('/')[2]}", path)

    def interface(self, parent, name, *, index=7, **files):
        """Create a network interface below the directory of its device."""
        path = f"{parent}/net/{name}"
        shown = {"ifindex": index, "iflink": index, "address": "02:00:00:00:00:01"} | files
        for file, text in shown.items():
            self.write(f"{path}/{file}", text)
        self.link(f"class/net/{name}", path)
        return path

    def render_nodes(self, parent, number):
        """Create the device files of a GPU or of its partition, below its directory."""
        self.node(f"{parent}/drm/card{number}", f"dri/card{number}", 226, number, "drm")
        self.node(
            f"{parent}/drm/renderD{128 + number}", f"dri/renderD{128 + number}", 226, 128 + number, "drm"
        )


def port_space(kind, slot_number):
    """Return the configuration space of a port of PCI Express with a slot."""
    space = bytearray(256)
    space[0x34] = 0x48
    struct.pack_into("<BB", space, 0x48, 0x01, 0x60)  # power management, and then
    struct.pack_into("<BBH", space, 0x60, 0x10, 0, 1 << 8 | kind << 4 | 2)
    struct.pack_into("<I", space, 0x74, slot_number << 19)
    return bytes(space)
