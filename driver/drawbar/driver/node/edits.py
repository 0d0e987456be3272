"""What a device changes in the container that gets it.

The CDI device is named by claim and device, so that a runtime never serves a stale entry for a later claim.
"""

import re

from drawbar.cdi import spec
from drawbar.driver.api import attachments
from drawbar.driver.node.inventory import model

ENVIRONMENT_SAFE = re.compile(r"[^A-Z0-9]")


def kind(driver: str) -> str:
    """The CDI kind of all devices of this driver."""
    return f"{driver}/device"


def device(
    attachment: attachments.DeviceAttachment, function: model.PciFunction, claim_uid: str
) -> spec.Device:
    """The CDI device for one attached device.

    The container gets every device file the function's drivers offer, and two variables that name the device:
    `DRAWBAR_<DEVICE>_PCI_ADDRESS` and `DRAWBAR_<DEVICE>_SERIAL`.
    """
    name = attachment.spec.device
    prefix = "DRAWBAR_" + ENVIRONMENT_SAFE.sub("_", name.upper())
    env = [f"{prefix}_PCI_ADDRESS={function.address}"]
    if attachment.spec.identity.serial:
        env.append(f"{prefix}_SERIAL={attachment.spec.identity.serial}")
    nodes = tuple(
        spec.DeviceNode(path=node.path, type="b" if node.block else "c", major=node.major, minor=node.minor)
        for node in function.device_nodes
    )
    return spec.Device(
        name=f"{claim_uid}-{name}", edits=spec.ContainerEdits(env=tuple(env), device_nodes=nodes)
    )
