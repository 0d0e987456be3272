"""A sysfs tree made by hand, file by file, for cards that the mocked kernel does not make."""

import dataclasses
from pathlib import Path

from drawbar.driver.node.discovery import reader
from drawbar.mocks.sysfs import config_space, vital

PORT = "devices/pci0000:00/0000:00:01.0"


@dataclasses.dataclass(frozen=True)
class Tree:
    """A host with functions; `folder` holds its `sys` and `proc`."""

    folder: Path

    @property
    def root(self) -> Path:
        return self.folder / "sys"

    def function(self, address, ids, class_code, *, driver=None, dsn=None, files=None, vpd=None):
        """Make a function with these files, by path in its directory; None as content makes a directory. Return the directory."""
        vendor, device = ids
        path = self.root / PORT / address
        lines = f"PCI_CLASS={class_code:X}\nPCI_ID={vendor:04X}:{device:04X}\nPCI_SUBSYS_ID=0000:0000\n"
        number = int(dsn.replace("-", ""), 16) if dsn else None
        space = config_space.endpoint(
            vendor=vendor, device=device, class_code=class_code, subsystem=(0, 0), serial_number=number
        )
        contents = {
            "uevent": f"DRIVER={driver}\n{lines}" if driver else lines,
            "config": space,
            **(files or {}),
        }
        if vpd is not None:
            contents["vpd"] = vpd if isinstance(vpd, bytes) else vital.image("Card", vpd)
        for name, content in contents.items():
            self.write(path / name, content)
        listed = self.root / "bus/pci/devices" / address
        listed.parent.mkdir(parents=True, exist_ok=True)
        listed.symlink_to(f"../../../{PORT}/{address}")
        return path

    def write(self, path, content):
        if content is None:
            path.mkdir(parents=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else f"{content}\n".encode())

    def nvidia(self, address, uuid):
        """Write the file of NVIDIA's driver about a GPU."""
        text = f"Model: \t\t NVIDIA H100 PCIe\nIRQ:   \t\t 16\nGPU UUID: \t {uuid}\nDevice Minor: \t 0"
        self.write(self.folder / "proc/driver/nvidia/gpus" / address / "information", text)

    def read(self, address, slow=None):
        """Return the function as the node reads it."""
        inventory = reader.read(self.root, slow)
        return next(function for function in inventory.functions if function.address == address)


def pairs(identified):
    """Return kinds and values of the identifiers of a function or card."""
    return {(each.kind.value, each.value) for each in identified.identifiers}
