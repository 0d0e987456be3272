"""Cards as values, without a tree: what the kernel would show of functions and slots."""

import dataclasses

import msgspec

from drawbar.driver.node.inventory import model
from drawbar.fabric import witnesses
from drawbar.fabric.contract import DeviceClass
from drawbar.fabric.witnesses import Kind

CLASS_CODES = {DeviceClass.GPU: 0x030200, DeviceClass.NVME: 0x010802}
UNKNOWN = (
    *("subsystem_vendor", "subsystem_device", "driver", "numa_node", "pcie_root", "serial", "dsn"),
    *("iommu_group", "sriov", "physical_function", "slot"),
)


def function(address="0000:01:00.0", device_class=DeviceClass.GPU, *, nvme="", **fields):
    """Return a PCI function about which the kernel shows only `fields`.

    Args:
        address: of the function.
        device_class: of the function.
        nvme: the serial number of its NVMe controller; empty where it has none.
        fields: fields of `model.PciFunction`.
    """
    controller = model.NvmeController(name="nvme0", state="live", model=None, firmware=None, serial=nvme)
    described = dict.fromkeys(UNKNOWN) | {
        "path": f"devices/pci0000:00/{address}",
        "class_code": CLASS_CODES.get(device_class, 0),
        "vendor": 0x10DE,
        "device": 0x2330,
        "link": model.Link(),
        "serial": nvme or fields.get("dsn"),
        "dsn_hidden": False,
        "device_nodes": (),
        "net_interfaces": (),
        "nvme": (controller,) if nvme else (),
    }
    memory = fields.get("serial") if device_class is DeviceClass.CXL_MEMORY else None
    described["identifiers"] = (
        *identifiers(Kind.PCIE_DSN, fields.get("dsn"), memory),
        *identifiers(Kind.NVME_SERIAL, nvme),
    )
    return model.PciFunction(address=address, device_class=device_class, **described | fields)


def of_any_arrival(inventory):
    """Return the inventory without arrivals: two copies of one tree have directories of their own."""
    return dataclasses.replace(
        inventory, functions=functions_of_any_arrival(inventory.functions), prebuilt=None
    )


def card_of_any_arrival(card):
    """Return the card without arrivals."""
    return msgspec.structs.replace(card, functions=functions_of_any_arrival(card.functions))


def functions_of_any_arrival(functions):
    """Return the functions without arrivals."""
    return tuple(msgspec.structs.replace(each, arrival=0) for each in functions)


def identifiers(kind, *texts):
    """Return the identifiers of this kind, those of empty texts and of placeholders left out."""
    made = (witnesses.identifier(kind, text, "sysfs") for text in texts if text)
    return tuple(each for each in made if each is not None)


def slot(name, **fields):
    """Return a hot-plug slot with a card and power; its address follows from its name unless it is given."""
    address = f"0000:{int(name.partition('-')[0]):02x}:00"
    described = dict.fromkeys(("attention", "speed_gts", "max_speed_gts"))
    return model.Slot(
        name=name, **described | {"address": address, "present": True, "powered": True} | fields
    )
