"""The device files of NVIDIA's driver, which has none in sysfs.

/proc/driver/nvidia shows the number of a GPU. The program `nvidia-modprobe` makes the file, so it may be absent from /dev.

Source: kernel-open/common/inc/nv-chardev-numbers.h; Documentation/admin-guide/devices.txt.
"""

import re

from drawbar.driver.node.inventory import model

DRIVER = SUBSYSTEM = "nvidia"
_MAJOR = 195
_MINOR_MAX = 247  # the numbers above are of the files shared by all GPUs, such as nvidiactl
_MINOR = re.compile(r"^Device Minor:\s*([0-9]{1,3})\s*$", re.MULTILINE)


def information_path(proc: str, address: str) -> str:
    """Return the path of the driver's text about the function at this address."""
    return f"{proc}/driver/nvidia/gpus/{address}/information"


def device_nodes(information: str | None) -> tuple[model.DeviceNode, ...]:
    """Return the device file in the driver's text about a function; empty without a text or a number."""
    match = _MINOR.search(information or "")
    if match is None or int(match[1]) > _MINOR_MAX:
        return ()
    minor = int(match[1])
    node = model.DeviceNode(
        path=f"/dev/nvidia{minor}", major=_MAJOR, minor=minor, block=False, subsystem=SUBSYSTEM
    )
    return (node,)


def is_shown(function: model.PciFunction) -> bool:
    """Return whether the driver shows the device file of a function bound to it."""
    return any(node.subsystem == SUBSYSTEM for node in function.device_nodes)
