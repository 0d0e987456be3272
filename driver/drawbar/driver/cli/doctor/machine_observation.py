"""The reader of a host's preparation for hot-plug: its ports, devices, IOMMU and drivers.

Threads read everything. A device whose reading hangs is reported, and the others are read; if the kernel answers nothing
else either, the threads are left behind. A missing or senseless file counts as not known.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from drawbar.driver.api import quantities, slices
from drawbar.driver.cli.doctor.plans import machine
from drawbar.driver.node import errors, kernel
from drawbar.driver.node.discovery import devices
from drawbar.driver.node.inventory import files, index, model, resources
from drawbar.fabric.classes import DeviceClass

DEADLINE_SECONDS = 20.0
GROUPS_MAX = 4096
PORTS_MAX = 1024
_CONFIG_BYTES = 256
_HEADER_BYTES = 64
_CAPABILITIES, _PCI_EXPRESS, _STATUS, _HAS_CAPABILITIES = 0x34, 0x10, 0x06, 0x10
_SLOT_IMPLEMENTED, _SLOT_CAPABILITIES, _HOT_PLUG_CAPABLE = 0x100, 0x14, 0x40
_MOST_CAPABILITIES = 48
_SERVICE = re.compile(r"([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]):pcie[0-9a-f]{3}")
_SERVICES = "bus/pci_express/drivers"
_BUSES = ("pci", "cxl")
_COMMAND_LINE = Path("/proc/cmdline")


async def observe(sysfs: Path, root: Path | None) -> machine.Machine:
    """Return the preparation of the host; raise nothing.

    Args:
        sysfs: the host's sysfs tree.
        root: the root of the host's own files; None if they are not to be read.
    """
    asked, known = kernel.Kernel(sysfs, deadline_seconds=DEADLINE_SECONDS), devices.Devices(sysfs)
    try:
        await known.read()
        inventory, hanging = known.inventory, known.hanging
        prepared = await asked.run(
            "doctor", f"to show the ports in {sysfs}", lambda: read(sysfs, root, inventory)
        )
    except (errors.KernelRefused, errors.SysfsError) as error:
        return machine.Machine(problem=str(error))
    return msgspec.structs.replace(prepared, hanging=hanging)


def read(
    sysfs: Path, root: Path | None, inventory: index.Inventory, command_line: Path = _COMMAND_LINE
) -> machine.Machine:
    """Return the preparation of the host with this sysfs tree and its inventory."""
    tree = os.fspath(sysfs)
    has_pciehp = None
    if files.names(f"{tree}/{_SERVICES}"):
        has_pciehp = machine.PCIEHP in files.names(f"{tree}/{_SERVICES}")
    return machine.Machine(
        ports=tuple(_ports(tree, inventory)),
        has_pciehp=has_pciehp,
        unassigned=tuple(
            machine.Card(
                address=card.address,
                device_class=card.device_class,
                slot=card.first.slot or "",
                bars=card.unassigned_bars,
            )
            for card in inventory.cards
            if card.unassigned_bars
            and (card.device_class is not DeviceClass.OTHER or card.first.slot is not None)
        ),
        iommu=_iommu(tree, inventory),
        modules=_modules(tree, root),
        command_line=files.text(os.fspath(command_line)) or "",
    )


def measure_classes(published: Iterable[slices.ResourceSlice]) -> dict[DeviceClass, int]:
    """Return the offered classes of device, each with the largest memory in bytes; 0 if unknown."""
    largest: dict[DeviceClass, int] = {}
    for device in (each for listed in published if not listed.spec.node_name for each in listed.spec.devices):
        attribute = device.attributes.get("class")
        name = (attribute.string or "") if attribute is not None else ""
        if name not in {each.value for each in machine.NEEDS}:
            continue
        capacity = device.capacity.get("memory")
        try:
            memory = int(quantities.parse(capacity.value)) if capacity is not None else 0
        except (ValueError, OverflowError):
            memory = 0
        listed_class = DeviceClass(name)
        largest[listed_class] = max(largest.get(listed_class, 0), memory)
    return largest


def _ports(tree: str, inventory: index.Inventory) -> Iterable[machine.Port]:
    served = _read_served_ports(tree)
    slots = {slot.address.rpartition(":")[0]: slot for slot in inventory.slots}
    bridges = (function for function in inventory.functions if function.secondary_bus is not None)
    listed = 0
    for bridge in bridges:
        domain = bridge.address.partition(":")[0]
        slot = slots.get(f"{domain}:{bridge.secondary_bus:02x}") if bridge.secondary_bus else None
        capable = is_hotplug_capable(files.head(f"{tree}/{bridge.path}/config", _CONFIG_BYTES))
        driver = "" if slot is None else _slot_driver(tree, slot, capable=capable is True and served is None)
        driver = driver or (machine.PCIEHP if bridge.address in (served or ()) else "")
        if slot is None and not driver and capable is not True:
            continue
        if listed == PORTS_MAX:
            return
        listed += 1
        yield machine.Port(
            address=bridge.address,
            slot=slot.name if slot is not None else "",
            driver=driver,
            capable=capable,
            buses=_buses(tree, bridge),
            windows=resources.windows(resources.parse(files.text(f"{tree}/{bridge.path}/resource"))),
        )


def _read_served_ports(tree: str) -> frozenset[str] | None:
    """Return the addresses of pciehp's ports, or None if the kernel does not show its port services."""
    if not files.names(f"{tree}/{_SERVICES}"):
        return None
    matches = map(_SERVICE.fullmatch, files.names(f"{tree}/{_SERVICES}/{machine.PCIEHP}"))
    return frozenset(match[1] for match in matches if match is not None)


def _slot_driver(tree: str, slot: model.Slot, *, capable: bool) -> str:
    """Return the driver of a hot-plug slot; empty for a slot without power and presence, which is only a name on the board.

    Recordings of Linux 6.12 have no link to the module. Then pciehp drives the slot if its port is `capable`.
    """
    if slot.powered is None and slot.present is None:
        return ""
    link = files.link_name(f"{tree}/bus/pci/slots/{slot.name}/module")
    return link or (machine.PCIEHP if capable else "")


def _buses(tree: str, bridge: model.PciFunction) -> tuple[int, int] | None:
    last = files.number(f"{tree}/{bridge.path}/subordinate_bus_number")
    return None if last is None or bridge.secondary_bus is None else (bridge.secondary_bus, last)


def is_hotplug_capable(config: bytes) -> bool | None:
    """Return whether a port has a hot-plug capable slot, or None if its configuration space does not say."""
    if len(config) <= _HEADER_BYTES:
        return None
    if not config[_STATUS] & _HAS_CAPABILITIES:
        return False
    offset = config[_CAPABILITIES] & 0xFC
    for _ in range(_MOST_CAPABILITIES):
        if offset < _HEADER_BYTES or offset + _SLOT_CAPABILITIES + 4 > len(config):
            return False
        if config[offset] == _PCI_EXPRESS:
            flags = int.from_bytes(config[offset + 2 : offset + 4], "little")
            slot = int.from_bytes(
                config[offset + _SLOT_CAPABILITIES : offset + _SLOT_CAPABILITIES + 4], "little"
            )
            return bool(flags & _SLOT_IMPLEMENTED and slot & _HOT_PLUG_CAPABLE)
        offset = config[offset + 1] & 0xFC
    return None


def _iommu(tree: str, inventory: index.Inventory) -> machine.Iommu:
    groups = files.names(f"{tree}/kernel/iommu_groups")
    kinds = (files.text(f"{tree}/kernel/iommu_groups/{name}/type") for name in groups[:GROUPS_MAX])
    return machine.Iommu(
        groups=len(groups),
        modes=frozenset(kind[:32] for kind in kinds if kind and kind.isprintable()),
        users=tuple(each.address for each in inventory.functions if each.driver == "vfio-pci"),
    )


def _modules(tree: str, root: Path | None) -> machine.Modules:
    loaded = set(files.names(f"{tree}/module"))
    for bus in _BUSES:
        loaded |= set(files.names(f"{tree}/bus/{bus}/drivers"))
    available = None
    if root is not None:
        folder = f"{os.fspath(root)}/lib/modules/{os.uname().release}"
        lines = [*files.lines(f"{folder}/modules.dep"), *files.lines(f"{folder}/modules.builtin")]
        available = frozenset(_module(line) for line in lines) if lines else None
    return machine.Modules(loaded=frozenset(map(_underscore, loaded)), available=available)


def _module(line: str) -> str:
    """Return the module of a line such as `kernel/drivers/nvme/host/nvme.ko.xz: kernel/drivers/nvme/host/nvme-core.ko.xz`."""
    return _underscore(line.partition(":")[0].rpartition("/")[2].partition(".")[0])


def _underscore(name: str) -> str:
    return name.replace("-", "_")
