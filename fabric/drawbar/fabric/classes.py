"""What a device is. By itself, since node daemons need nothing else of a fabric."""

from enum import StrEnum


class DeviceClass(StrEnum):
    """What a device is, as far as preparing and quiescing it are concerned.

    `BRIDGE` and `STORAGE` are what a node's kernel shows besides; no fabric offers them.
    """

    GPU = "gpu"
    ACCELERATOR = "accelerator"
    FPGA = "fpga"
    NVME = "nvme"
    CXL_MEMORY = "cxl-memory"
    NIC = "nic"
    OTHER = "other"
    BRIDGE = "bridge"
    STORAGE = "storage"


OFFERED_CLASSES = tuple(
    listed for listed in DeviceClass if listed not in (DeviceClass.BRIDGE, DeviceClass.STORAGE)
)
"""What a fabric can list, in the order in which documents name them."""
