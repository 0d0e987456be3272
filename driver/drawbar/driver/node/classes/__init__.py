"""What the node does differently for each class of device, one module each."""

from drawbar.driver.node.classes.accelerator import Accelerator
from drawbar.driver.node.classes.cxl_memory import CxlMemory
from drawbar.driver.node.classes.fpga import Fpga
from drawbar.driver.node.classes.generic import DeviceOperations
from drawbar.driver.node.classes.gpu import Gpu
from drawbar.driver.node.classes.nic import Nic
from drawbar.driver.node.classes.nvme import Nvme
from drawbar.driver.node.classes.other import Other
from drawbar.driver.node.classes.users import Host
from drawbar.fabric.contract import DeviceClass

__all__ = ["DeviceOperations", "Host", "of"]

_CLASSES: dict[str, DeviceOperations] = {
    DeviceClass.GPU: Gpu(),
    DeviceClass.ACCELERATOR: Accelerator(),
    DeviceClass.FPGA: Fpga(),
    DeviceClass.NVME: Nvme(),
    DeviceClass.CXL_MEMORY: CxlMemory(),
    DeviceClass.NIC: Nic(),
}
_OTHER = Other()


def of(device_class: str) -> DeviceOperations:
    """What to do with a device of that class; an unknown class is treated as `other`."""
    return _CLASSES.get(device_class, _OTHER)
