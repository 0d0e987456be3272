"""The pods of the demo, and their claim templates, in the form of each version of the API."""

from collections.abc import Iterator, Sequence
from typing import Any

from drawbar.fabric.contract import DeviceClass
from drawbar.mocks import attachments
from drawbar.mocks.claims import dialects
from drawbar.mocks.kube import kinds

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
"""The number of unused devices of each class, so that the allocator has a choice."""


def assign_classes(pods: int, classes: Sequence[DeviceClass] = CLASSES) -> dict[str, DeviceClass]:
    """Return the class of device for each pod, by the pod's name; the classes take turns."""
    return {f"demo-{number + 1}": classes[number % len(classes)] for number in range(pods)}


def amounts(pods: int, classes: Sequence[DeviceClass] = CLASSES) -> dict[DeviceClass, int]:
    """Return the number of devices of each class in the pool."""
    asked = list(assign_classes(pods, classes).values())
    return {device_class: asked.count(device_class) + SPARE for device_class in classes}


def prerequisites(
    device_class: DeviceClass, dialect: dialects.Dialect
) -> Iterator[tuple[kinds.Kind, dict[str, Any]]]:
    """Yield the objects needed before a pod that claims a device of a class: a claim template.

    In `v1alpha2` parameters too.
    """
    name = _template_name(device_class)
    spec: dict[str, Any]
    request = {"name": "device", "deviceClassName": _class_name(device_class)}
    if dialect.version == dialects.V1ALPHA2.version:
        labels = {"drawbar.dev/parameters": ""}
        parameters = {"deviceClass": device_class.value, "count": "1"}
        yield kinds.CONFIG_MAP, _object(kinds.CONFIG_MAP, name, labels=labels) | {"data": parameters}
        reference = {"kind": kinds.CONFIG_MAP.kind, "name": name}
        spec = {"resourceClassName": _class_name(device_class), "parametersRef": reference}
    elif dialect.version == dialects.V1ALPHA3.version:
        spec = {"controller": attachments.DRIVER, "devices": {"requests": [request]}}
    else:
        exactly = {"deviceClassName": request.pop("deviceClassName")}
        spec = {"devices": {"requests": [request | {"exactly": exactly}]}}
    yield dialect.template, _object(dialect.template, name) | {"spec": {"spec": spec}}


def pod(name: str, device_class: DeviceClass, dialect: dialects.Dialect) -> dict[str, Any]:
    """Return a pod that claims one device of a class."""
    container = {
        "name": "main",
        "image": "pause",
        "resources": {"claims": [{"name": "device"}]},
    }
    source: dict[str, Any] = {"resourceClaimTemplateName": _template_name(device_class)}
    if dialect.version == dialects.V1ALPHA2.version:
        source = {"source": source}
    spec = {"containers": [container], "resourceClaims": [{"name": "device"} | source]}
    return _object(kinds.POD, name) | {"spec": spec}


def _object(kind: kinds.Kind, name: str, **metadata: Any) -> dict[str, Any]:
    named = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": named | metadata}


def _class_name(device_class: DeviceClass) -> str:
    return f"{device_class.value}.{attachments.DRIVER}"


def _template_name(device_class: DeviceClass) -> str:
    return f"demo-{device_class.value}"
