"""The class of a PCI function by its model: vendor, device ID and driver; its class code is the last resort. Pure.

Boards of one kind carry several class codes. An AMD Instinct is a display controller or a processing accelerator; an
FPGA has the class code of its image. `ROWS` is the table of these exceptions, each with its source. `DRIVERS` lists
drivers with devices of a single class. Bridges, NVMe controllers and CXL memory have reliable class codes, regardless of
the vendor.
"""

from collections.abc import Mapping

import msgspec

from drawbar.fabric.classes import DeviceClass


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Functions of one vendor.

    Attributes:
        vendor: PCI vendor ID.
        devices: PCI device IDs; empty for all.
        codes: the beginnings of their class codes; empty for all.
        device_class: their class.
        source: the document or the program that lists them.
    """

    vendor: int
    devices: frozenset[int] = frozenset()
    codes: tuple[str, ...] = ()
    device_class: DeviceClass
    source: str

    def describes(self, class_code: str, device: int) -> bool:
        """Return whether the row covers a function of its vendor with this class code and device ID."""
        is_device = not self.devices or device in self.devices
        return is_device and (not self.codes or class_code.startswith(self.codes))


_COMPUTE = ("03", "0b40", "12")
"""Display controllers, co-processors and processing accelerators."""
_ANY_IMAGE = ("00", "01", "02", "03", "05", "07", "08", "0b", "0d", "10", "11", "12", "ff")
"""All codes except multimedia, bridges and buses: an FPGA maker's sound and CAN cards have its vendor ID, too."""

ROWS = (
    Row(
        vendor=0x1002, codes=_COMPUTE, device_class=DeviceClass.GPU, source="pci.ids; canonical/checkbox#2033"
    ),
    Row(vendor=0x10DE, codes=_COMPUTE, device_class=DeviceClass.GPU, source="pci.ids"),
    Row(
        vendor=0x1D94,
        codes=_COMPUTE,
        device_class=DeviceClass.GPU,
        source="Hygon DCU; gpustack/gpustack#5170",
    ),
    Row(vendor=0x1E3E, codes=_COMPUTE, device_class=DeviceClass.GPU, source="Iluvatar CoreX; pci.ids"),
    Row(vendor=0x1ED5, codes=_COMPUTE, device_class=DeviceClass.GPU, source="Moore Threads; pci.ids"),
    Row(vendor=0x1EE0, codes=_COMPUTE, device_class=DeviceClass.GPU, source="Biren; pci-ids.ucw.cz"),
    Row(vendor=0x9999, codes=_COMPUTE, device_class=DeviceClass.GPU, source="MetaX; pci.ids"),
    Row(
        vendor=0x1DA3,
        device_class=DeviceClass.ACCELERATOR,
        source="Habana Goya, Greco, Gaudi; drivers/accel/habanalabs",
    ),
    Row(
        vendor=0x1D0F,
        devices=frozenset({0x7064, 0x7164, 0x7264, 0x7364, 0x7564, 0x7565}),
        device_class=DeviceClass.ACCELERATOR,
        source="AWS Inferentia, Trainium; pci.ids",
    ),
    Row(
        vendor=0x1AC1,
        devices=frozenset({0x089A}),
        device_class=DeviceClass.ACCELERATOR,
        source="Coral Edge TPU; pci.ids",
    ),
    Row(
        vendor=0x1022,
        devices=frozenset({0x1502, 0x17F0}),
        device_class=DeviceClass.ACCELERATOR,
        source="AMD NPU; drivers/accel/amdxdna",
    ),
    Row(
        vendor=0x8086,
        devices=frozenset(
            {
                *(0x09C4, 0x09C5, 0x0B2B, 0x0B2C, 0x0B30, 0x0B31),
                *(0xBCBD, 0xBCBF, 0xBCC0, 0xBCC1, 0xBCCE, 0xBCCF),
            }
        ),
        device_class=DeviceClass.FPGA,
        source="Intel PAC; drivers/fpga/dfl-pci.c",
    ),
    Row(
        vendor=0x1C2C,
        devices=frozenset({0x1000, 0x1001, 0x1002, 0x1003}),
        device_class=DeviceClass.FPGA,
        source="Silicom N501x; drivers/fpga/dfl-pci.c",
    ),
    Row(
        vendor=0x1D0F,
        devices=frozenset({0xF000, 0xF001, 0xF010}),
        device_class=DeviceClass.FPGA,
        source="AWS F1; aws/aws-fpga",
    ),
    Row(
        vendor=0x10EE,
        devices=frozenset({0x5084}),
        device_class=DeviceClass.NIC,
        source="Alveo X3522, a network adapter; pci.ids",
    ),
    Row(vendor=0x10EE, codes=_ANY_IMAGE, device_class=DeviceClass.FPGA, source="Xilinx; Xilinx/XRT#9454"),
    Row(vendor=0x1172, codes=_ANY_IMAGE, device_class=DeviceClass.FPGA, source="Altera; pci.ids"),
    Row(vendor=0x12BA, codes=_ANY_IMAGE, device_class=DeviceClass.FPGA, source="BittWare; pci.ids"),
    Row(vendor=0x1B59, codes=_ANY_IMAGE, device_class=DeviceClass.FPGA, source="Achronix; pci.ids"),
    Row(
        vendor=0x1204,
        codes=tuple(code for code in _ANY_IMAGE if code != "02"),
        device_class=DeviceClass.FPGA,
        source="Lattice, who made a wireless adapter, too; pci.ids",
    ),
)

DRIVERS: Mapping[str, DeviceClass] = {
    **dict.fromkeys(("amdgpu", "nvidia", "nouveau", "xe", "i915"), DeviceClass.GPU),
    **dict.fromkeys(
        ("habanalabs", "neuron", "apex", "qaic", "intel_vpu", "amdxdna", "tenstorrent"),
        DeviceClass.ACCELERATOR,
    ),
    **dict.fromkeys(("dfl-pci", "xclmgmt", "xocl", "xdma", "qdma-pf", "qdma-vf"), DeviceClass.FPGA),
    "cxl_pci": DeviceClass.CXL_MEMORY,
    "nvme": DeviceClass.NVME,
}
"""The class of all devices of a driver, by the driver's name."""

CERTAIN: Mapping[str, DeviceClass] = {
    **dict.fromkeys(("0600", "0604", "0609"), DeviceClass.BRIDGE),  # host bridge, PCI to PCI
    **dict.fromkeys(("010802", "010803"), DeviceClass.NVME),  # I/O controller, administrative controller
    "0502": DeviceClass.CXL_MEMORY,
}
"""The class of a function by its class code, for any vendor."""
_BY_VENDOR: Mapping[int, tuple[Row, ...]] = {
    vendor: tuple(row for row in ROWS if row.vendor == vendor) for vendor in {row.vendor for row in ROWS}
}


def by_model(class_code: str, vendor: int, device: int, driver: str | None) -> DeviceClass | None:
    """Return the class of a function by its model, or None if only its class code can tell.

    Args:
        class_code: six hexadecimal digits: base class, subclass, programming interface.
        vendor: PCI vendor ID.
        device: PCI device ID.
        driver: the bound kernel driver, or None.
    """
    for end in (6, 4):
        if class_code[:end] in CERTAIN:
            return CERTAIN[class_code[:end]]
    for row in _BY_VENDOR.get(vendor, ()):
        if row.describes(class_code, device):
            return row.device_class
    return DRIVERS.get(driver or "")
