"""Which kind of device a PCI function is, judged by its class code.

Class codes are those of the PCI Code and ID Assignment Specification; CXL memory devices are 0x0502xx
(CXL 2.0, 8.1.12.1). FPGA boards carry whatever class their designer chose, so known FPGA vendors are
recognised by vendor.
"""

import enum


class FunctionClass(enum.StrEnum):
    """The kinds of device a fabric offers (`DeviceClass`), and two that it never does."""

    GPU = "gpu"
    ACCELERATOR = "accelerator"
    FPGA = "fpga"
    NVME = "nvme"
    CXL_MEMORY = "cxl-memory"
    NIC = "nic"
    OTHER = "other"
    BRIDGE = "bridge"
    STORAGE = "storage"


_FPGA_VENDORS = frozenset(
    {
        0x10EE,  # Xilinx, AMD
        0x1172,  # Altera
        0x1204,  # Lattice
        0x1B59,  # Achronix
    }
)
# Intel's own FPGA cards share 0x8086 with everything else Intel makes (drivers/fpga/dfl-pci.c).
_INTEL_FPGA_DEVICES = frozenset(
    {0x09C4, 0x09C5, 0x0B2B, 0x0B2C, 0x0B30, 0x0B31, 0xBCBD, 0xBCC0, 0xBCCE, 0xBCCF}
)
_NVME_INTERFACES = frozenset({0x02, 0x03})  # I/O controller, administrative controller

_BY_BASE = {
    0x01: FunctionClass.STORAGE,
    0x02: FunctionClass.NIC,
    0x03: FunctionClass.GPU,
    0x06: FunctionClass.BRIDGE,
    0x12: FunctionClass.ACCELERATOR,
    0x40: FunctionClass.ACCELERATOR,
}
_BY_SUBCLASS = {
    0x0502: FunctionClass.CXL_MEMORY,
    0x0B40: FunctionClass.ACCELERATOR,
}
# A card of an FPGA vendor that says it is one of these means it.
_CERTAIN = frozenset({FunctionClass.BRIDGE, FunctionClass.NIC, FunctionClass.NVME, FunctionClass.CXL_MEMORY})


def classify(class_code: int, vendor: int, device: int) -> FunctionClass:
    """The kind of a function.

    Args:
        class_code: 24 bits: base class, subclass, programming interface.
        vendor: PCI vendor id.
        device: PCI device id.
    """
    by_class = _by_class_code(class_code)
    if by_class in _CERTAIN:
        return by_class
    if vendor in _FPGA_VENDORS or (vendor == 0x8086 and device in _INTEL_FPGA_DEVICES):
        return FunctionClass.FPGA
    return by_class


def _by_class_code(class_code: int) -> FunctionClass:
    subclass = class_code >> 8
    if subclass == 0x0108 and class_code & 0xFF in _NVME_INTERFACES:
        return FunctionClass.NVME
    return _BY_SUBCLASS.get(subclass) or _BY_BASE.get(subclass >> 8, FunctionClass.OTHER)
