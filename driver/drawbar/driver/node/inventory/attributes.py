"""A card's attributes, for selection by claims. Pure. `docs/attributes.md` explains each one.

The limits are those of ResourceSlices (`resource.k8s.io/v1` validation). A device has at most 32 attributes and
capacities, a name at most 32 characters after the domain, a text at most 64. A longer text is omitted, because a cut one
would select other devices. States that change during use, such as the current link, are no attributes. Claims do not
select by them, and each change would cost a write.
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
"""A string, int, bool or version. A card's own firmware is no semantic version, so only fabrics give versions."""


def from_card(card: model.Card) -> dict[str, Value]:
    """Return all known attributes of a card, by name."""
    values = _standard(card.first) | _own(card) | _memory(card)
    return {name: value for name, value in values.items() if value is not None and fits(value)}


def _standard(first: model.PciFunction) -> dict[str, Value | None]:
    """Return the attributes with a standard name, so that a claim can ask for devices of two drivers close to each other."""
    return {
        PCIE_ROOT: first.pcie_root,
        # The standard excludes domains of five digits, which VMD uses.
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
    """Return whether the API server accepts the value."""
    if isinstance(value, attributes.Version):
        return 0 < len(value.text) <= MOST_BYTES
    if isinstance(value, str):
        return 0 < len(value.encode()) <= MOST_BYTES
    return -(1 << 63) <= value < 1 << 63
