"""The classes of device, and which of them a PCI function is.

Class codes are those of the PCI Code and ID Assignment Specification. FPGA boards carry whatever class their designer
chose, so a class may know its boards by vendor, too, and only a class code that is `certain` counts for more than that.
"""

from drawbar.driver.node.classes import accelerator, cxl_memory, fpga, generic, gpu, nic, nvme
from drawbar.fabric.classes import DeviceClass

CLASSES: tuple[generic.Generic, ...] = (
    gpu.Gpu(),
    accelerator.Accelerator(),
    fpga.Fpga(),
    nvme.Nvme(),
    cxl_memory.CxlMemory(),
    nic.Nic(),
)
"""Every class but `other`. A class of device is added here, and nowhere else in the node daemon."""
_OTHER = generic.Generic()
_SHOWN = (
    generic.Generic(device_class=DeviceClass.BRIDGE, class_codes=("06",), certain=True),
    generic.Generic(device_class=DeviceClass.STORAGE, class_codes=("01",)),
)
_BY_NAME = {str(offered.device_class): offered for offered in CLASSES}
_BY_CODE = {code: shown for shown in (*CLASSES, *_SHOWN) for code in shown.class_codes}


def by_name(device_class: str) -> generic.Generic:
    """Return what to do with a device of that class; an unknown class is treated as `other`."""
    return _BY_NAME.get(device_class, _OTHER)


def classify(class_code: int, vendor: int, device: int) -> DeviceClass:
    """Return the class of a function.

    Args:
        class_code: 24 bits: base class, subclass, programming interface.
        vendor: PCI vendor id.
        device: PCI device id.
    """
    digits = f"{class_code:06x}"
    by_code = next((_BY_CODE[digits[:end]] for end in (6, 4, 2) if digits[:end] in _BY_CODE), _OTHER)
    if by_code.certain:
        return by_code.device_class
    by_model = next((offered for offered in CLASSES if offered.is_model(vendor, device)), by_code)
    return by_model.device_class
