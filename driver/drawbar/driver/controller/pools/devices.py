"""A fabric's device as it is published in a ResourceSlice.

The names and types of the attributes are those that a node gives its own devices, so that one selector fits both;
`docs/attributes.md` says what each one means.

Source: `resource.k8s.io/v1` Device; limits from its validation (the text of an attribute has at most 64 bytes, and a
version all three numbers of semver 2.0.0).
"""

from dataclasses import replace

from drawbar.driver.api import bindings, quantities, slices
from drawbar.driver.controller import names
from drawbar.fabric import contract

ATTRIBUTE_BYTES = 64
_VERSION_NUMBERS = 3


def published(
    driver: str, fabric: str, device: contract.Device, taints: tuple[slices.Taint, ...]
) -> slices.Device:
    """The device with everything a claim can select it by.

    Args:
        driver: the DRA driver's name.
        fabric: name of the Fabric object.
        device: as the fabric manager tells it.
        taints: why it should not be given out now.
    """
    return slices.Device(
        name=names.label(device.id),
        attributes=_attributes(fabric, device),
        capacity={"memory": slices.Capacity(value=quantities.of_bytes(device.memory_bytes))}
        if device.memory_bytes
        else {},
        binds_to_node=True,
        binding_conditions=bindings.binding_conditions(driver),
        binding_failure_conditions=bindings.failure_conditions(driver),
        taints=taints,
    )


def _attributes(fabric: str, device: contract.Device) -> dict[str, slices.Attribute]:
    texts = {
        "class": device.device_class.value,
        "fabric": fabric,
        "enclosure": device.enclosure,
        "deviceID": device.id,
        "model": device.model,
        "vendor": device.vendor,
        "serial": device.serial or "",
        "pciVendorID": _hexadecimal(device.pci_vendor_id),
        "pciDeviceID": _hexadecimal(device.pci_device_id),
    }
    numbers = {"maxLinkSpeedMTs": device.max_link_speed_mts, "maxLinkWidth": device.max_link_width}
    version = _version(device.compute_capability)
    # A cut value would select other devices than the whole one: what does not fit is left out.
    return (
        {
            name: slices.Attribute(string=text)
            for name, text in texts.items()
            if 0 < len(text.encode()) <= ATTRIBUTE_BYTES
        }
        | {name: slices.Attribute(int_=number) for name, number in numbers.items() if number}
        | ({"computeCapability": slices.Attribute(version=version)} if version else {})
    )


def _version(text: str) -> str:
    """With all three numbers that a version has to have; empty where it is none, which would cost the whole pool."""
    if not contract.COMPUTE_CAPABILITY.fullmatch(text):
        return ""
    numbers = text.split(".")
    return ".".join([*numbers, *["0"] * (_VERSION_NUMBERS - len(numbers))])


def _hexadecimal(number: int | None) -> str:
    return "" if number is None else f"0x{number:04x}"


def is_free(device: contract.Device) -> bool:
    """Whether nobody has it."""
    return device.connection is None


def shape(device: contract.Device) -> contract.Device:
    """What of a device is published."""
    return replace(device, connection=None, etag=None)
