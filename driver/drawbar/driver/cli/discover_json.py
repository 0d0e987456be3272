"""The inventory as JSON: camelCase keys, units in the names, ids as hexadecimal strings."""

import dataclasses
import re
from typing import Any

from drawbar.driver.node.inventory import index, model, names

_UNDERSCORE = re.compile(r"_([a-z])")


def document(found: index.Inventory, known: names.Names) -> dict[str, Any]:
    """Everything that was discovered."""
    return {
        "cards": [card(each) for each in found.cards],
        "functions": [function(each, known) for each in found.functions],
        "slots": [_plain(each) for each in found.slots],
        "cxl": {
            "memdevs": [_plain(each) for each in found.memdevs],
            "ports": [_plain(each) for each in found.ports],
            "decoders": [_plain(each) for each in found.decoders],
            "regions": [_plain(each) for each in found.regions],
        },
        "dax": [_plain(each) for each in found.dax],
    }


def card(each: model.Card) -> dict[str, Any]:
    """The functions that come and go together, by address, the one that the card is known by first."""
    return {
        "address": each.address,
        "deviceClass": each.device_class.value,
        "serial": each.serial,
        "slot": each.slot.name if each.slot is not None else None,
        "functions": [function.address for function in each.functions],
        "memdevs": [memdev.name for memdev in each.memdevs],
    }


def function(each: model.PciFunction, known: names.Names) -> dict[str, Any]:
    """One PCI function, with names in words where the ids are known."""
    sriov = each.sriov
    return {
        "address": each.address,
        "deviceClass": each.device_class.value,
        "classCode": f"0x{each.class_code:06x}",
        "className": known.class_name(each.class_code),
        "vendorID": _identifier(each.vendor),
        "vendorName": known.vendor(each),
        "deviceID": _identifier(each.device),
        "deviceName": known.device(each),
        "subsystemVendorID": _identifier(each.subsystem_vendor),
        "subsystemDeviceID": _identifier(each.subsystem_device),
        "subsystemName": known.subsystem(each),
        "driver": each.driver,
        "serial": each.serial,
        "deviceSerialNumber": each.dsn,
        "numaNode": each.numa_node,
        "pcieRoot": each.pcie_root,
        "linkSpeedGTs": each.link.speed_gts,
        "linkWidth": each.link.width,
        "maxLinkSpeedGTs": each.link.max_speed_gts,
        "maxLinkWidth": each.link.max_width,
        "slot": each.slot,
        "iommuGroup": each.iommu_group,
        "sriov": None
        if sriov is None
        else {
            "totalVFs": sriov.total_vfs,
            "numVFs": sriov.num_vfs,
            "virtualFunctions": list(sriov.virtual_functions),
        },
        "physicalFunction": each.physical_function,
        "deviceNodes": [_device_node(node) for node in each.device_nodes],
        "networkInterfaces": list(each.net_interfaces),
        "secondaryBus": each.secondary_bus,
        "nvmeControllers": [_plain(controller) for controller in each.nvme],
        "fpgaManagers": [_plain(manager) for manager in each.fpga_managers],
        "path": each.path,
    }


def _identifier(value: int | None) -> str | None:
    return None if value is None else f"0x{value:04x}"


def _device_node(node: model.DeviceNode) -> dict[str, Any]:
    return {
        "path": node.path,
        "type": "block" if node.block else "char",
        "major": node.major,
        "minor": node.minor,
        "subsystem": node.subsystem,
    }


_Described = (
    model.Slot
    | model.Memdev
    | model.Port
    | model.Decoder
    | model.Region
    | model.DaxDevice
    | model.NvmeController
    | model.FpgaManager
)


def _plain(value: _Described) -> dict[str, Any]:
    """A dataclass whose field names become the keys."""
    result: dict[str, Any] = {}
    for field in dataclasses.fields(value):
        content = getattr(value, field.name)
        if isinstance(content, model.DeviceNode):
            content = _device_node(content)
        elif isinstance(content, tuple):
            content = list(content)
        result[_key(field.name)] = content
    return result


def _key(name: str) -> str:
    """`max_speed_gts` becomes `maxSpeedGTs`."""
    return _UNDERSCORE.sub(lambda match: match[1].upper(), name.replace("_gts", "_g_ts"))
