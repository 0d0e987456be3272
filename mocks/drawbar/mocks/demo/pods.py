"""The pods of the demo, and the claims they make from templates."""

from typing import Any

from drawbar.driver.kube import kinds
from drawbar.fabric.contract import DeviceClass

NAMESPACE = "default"
CLASSES = (
    DeviceClass.GPU,
    DeviceClass.FPGA,
    DeviceClass.NVME,
    DeviceClass.CXL_MEMORY,
    DeviceClass.NIC,
    DeviceClass.ACCELERATOR,
)
SPARE = 1
"""Devices of each class that nobody asks for, so that there is something to choose from."""


def wanted(pods: int) -> dict[str, DeviceClass]:
    """The pods by name, and the class of device that each asks for."""
    return {f"demo-{number + 1}": CLASSES[number % len(CLASSES)] for number in range(pods)}


def amounts(pods: int) -> dict[DeviceClass, int]:
    """How many devices of each class the pool holds."""
    asked = list(wanted(pods).values())
    return {device_class: asked.count(device_class) + SPARE for device_class in CLASSES}


def template(device_class: DeviceClass) -> dict[str, Any]:
    """The claim template for one device of a class."""
    request = {"name": "device", "exactly": {"deviceClassName": f"{device_class.value}.drawbar.dev"}}
    return {
        "apiVersion": kinds.CLAIM_TEMPLATE.api_version,
        "kind": kinds.CLAIM_TEMPLATE.kind,
        "metadata": {"name": _template_name(device_class), "namespace": NAMESPACE},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }


def pod(name: str, device_class: DeviceClass) -> dict[str, Any]:
    """A pod that claims one device of a class."""
    container = {
        "name": "main",
        "image": "pause",
        "resources": {"claims": [{"name": "device"}]},
    }
    return {
        "apiVersion": kinds.POD.api_version,
        "kind": kinds.POD.kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "containers": [container],
            "resourceClaims": [{"name": "device", "resourceClaimTemplateName": _template_name(device_class)}],
        },
    }


def _template_name(device_class: DeviceClass) -> str:
    return f"demo-{device_class.value}"
