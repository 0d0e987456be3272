"""What a card is, as attributes by which claims select devices; pure. `docs/attributes.md` explains each one.

Limits are those of ResourceSlices (`resource.k8s.io/v1` validation): at most 32 attributes and capacities of a device, names
of at most 32 characters behind the domain, texts of at most 64. A text that is longer is left out, for a cut one would
select other devices. What changes while a device is in use (the link as it runs, states) is no attribute: claims do not
select by it, and each change would be a write.
"""

import re

from drawbar.driver.node.inventory import model
from drawbar.fabric import attributes

PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
PCI_BUS_ID = "resource.kubernetes.io/pciBusID"
NUMA_NODE = "resource.kubernetes.io/numaNode"

MOST_BYTES = 64
_STANDARD_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")

Version = attributes.Version
Value = attributes.Value
"""A string, an int or a bool of a card; no firmware is numbered as semver asks, so versions come from fabrics alone."""


def from_card(card: model.Card) -> dict[str, Value]:
    """Everything that is known of a card, by name; what the kernel does not say is left out."""
    values = _standard(card.first) | _own(card) | _memory(card)
    return {name: value for name, value in values.items() if value is not None and fits(value)}


def _standard(first: model.PciFunction) -> dict[str, Value | None]:
    """Attributes that all drivers name alike, so that devices of two drivers can be asked to be close."""
    return {
        PCIE_ROOT: first.pcie_root,
        # The standard has no room for domains of five digits, which are those behind a VMD.
        PCI_BUS_ID: first.address if _STANDARD_ADDRESS.fullmatch(first.address) else None,
        NUMA_NODE: first.numa_node,
    }


def _own(card: model.Card) -> dict[str, Value | None]:
    first = card.first
    physical = [function for function in card.functions if function.physical_function is None]
    controller = next(iter(first.nvme), None)
    fastest = first.link.max_speed_gts
    return {
        "class": first.device_class.value,
        "serial": card.serial,
        "pciVendorID": _hexadecimal(first.vendor),
        "pciDeviceID": _hexadecimal(first.device),
        "pciSubsystemVendorID": _hexadecimal(first.subsystem_vendor),
        "pciSubsystemDeviceID": _hexadecimal(first.subsystem_device),
        "driver": first.driver,
        "slot": first.slot,
        "iommuGroup": first.iommu_group,
        "physicalFunctions": len(physical),
        "physicalFunction": first.physical_function,
        "totalVFs": first.sriov.total_vfs if first.sriov is not None else None,
        "maxLinkSpeedMTs": round(fastest * 1000) if fastest is not None else None,
        "maxLinkWidth": first.link.max_width,
        "model": controller.model if controller is not None else None,
        "firmware": controller.firmware if controller is not None else None,
    }


def _memory(card: model.Card) -> dict[str, Value | None]:
    if not card.memdevs:
        return {}
    return {
        "volatileMemoryBytes": sum(memdev.ram_bytes or 0 for memdev in card.memdevs),
        "persistentMemoryBytes": sum(memdev.pmem_bytes or 0 for memdev in card.memdevs),
        "firmware": card.memdevs[0].firmware,
    }


def _hexadecimal(number: int | None) -> str | None:
    return None if number is None else f"0x{number:04x}"


def fits(value: Value) -> bool:
    """Return whether the API server takes the value."""
    if isinstance(value, attributes.Version):
        return 0 < len(value.text) <= MOST_BYTES
    if isinstance(value, str):
        return 0 < len(value.encode()) <= MOST_BYTES
    return -(1 << 63) <= value < 1 << 63
