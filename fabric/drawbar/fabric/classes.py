"""The classes of devices. They have a module of their own because node daemons need no other part of a fabric."""

from enum import StrEnum


class DeviceClass(StrEnum):
    """The classes of device; `make generate` writes every other list of them.

    A node's kernel also shows devices of `BRIDGE` and `STORAGE`; no fabric offers them.

    Attributes:
        number: in the protocol of adapters; 0 if no fabric offers the class.
        meaning: a description of its devices.
        can_erase: whether a node can erase the data of its devices.
    """

    number: int
    meaning: str
    can_erase: bool

    def __new__(cls, name: str, number: int = 0, meaning: str = "", can_erase: bool = False) -> "DeviceClass":
        """Make one row."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.number, member.meaning, member.can_erase = number, meaning, can_erase
        return member

    GPU = "gpu", 1, "GPUs"
    ACCELERATOR = "accelerator", 2, "Accelerators"
    FPGA = "fpga", 3, "FPGAs"
    NVME = "nvme", 4, "NVMe disks", True
    CXL_MEMORY = "cxl-memory", 5, "CXL memory", True
    NIC = "nic", 6, "Network devices"
    OTHER = "other", 7, "All the others"
    BRIDGE = "bridge"
    STORAGE = "storage"


OFFERED_CLASSES = tuple(listed for listed in DeviceClass if listed.number)
"""The classes that a fabric can list, in the order of the documents."""
