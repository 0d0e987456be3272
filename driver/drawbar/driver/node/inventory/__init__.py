"""The node's PCI and CXL devices, read from sysfs without privilege.

`read` reads everything, `read_function` one function after a hot-plug event; both answer frozen values.
Names in words are apart, in `drawbar.driver.node.inventory.names`, because daemons do not need them.
"""

from drawbar.driver.node.inventory.classification import FunctionClass
from drawbar.driver.node.inventory.model import (
    Card,
    DaxDevice,
    Decoder,
    DeviceNode,
    FpgaManager,
    Inventory,
    Link,
    Memdev,
    NvmeController,
    PciFunction,
    Port,
    Region,
    Slot,
    Sriov,
)
from drawbar.driver.node.inventory.reader import SYSFS, read, read_function

__all__ = [
    "SYSFS",
    "Card",
    "DaxDevice",
    "Decoder",
    "DeviceNode",
    "FpgaManager",
    "FunctionClass",
    "Inventory",
    "Link",
    "Memdev",
    "NvmeController",
    "PciFunction",
    "Port",
    "Region",
    "Slot",
    "Sriov",
    "read",
    "read_function",
]
