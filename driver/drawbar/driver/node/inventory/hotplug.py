"""The reader of hot-plug slots in sysfs, and of the ports above them.

The files of a slot depend on its port's capabilities; without a hot-plug driver there are no slots. `address`
has no function number, and on POWER no device number either if the slot was empty at boot (drivers/pci/slot.c,
"Placeholder slots"). For a hot-plug driver's slot it is the address of the device in the slot. For a slot numbered by
firmware (`_SUN`, drivers/acpi/pci_slot.c) it may be the address of the device with the port above the slot. All ports of
that device share this address. The number in the slot's name identifies the port, by one of three files:
`firmware_node/sun`, the physical slot number of its Slot Capabilities (PCI Express Base Specification, 7.5.3.9), or its
`label`. In a name such as `1-2` only the first number comes from firmware; the kernel adds the second one in order of
discovery (drivers/pci/slot.c).
"""

import os
import re
from collections.abc import Collection, Iterable, Mapping

import msgspec

from drawbar.driver.node.inventory import files, model, pci

_SLOT_ADDRESS = re.compile(r"([0-9a-f]{4,8}:[0-9a-f]{2})(:[0-9a-f]{2})?")
_SLOTS = "bus/pci/slots"


def read_slots(root: str, functions: Collection[str] | None = None) -> tuple[model.Slot, ...]:
    """Return every slot, in order of name. Arguments as for `read_slot`."""
    listed = (read_slot(root, name, functions) for name in slot_names(root))
    return sort_slots(slot for slot in listed if slot is not None)


def slot_names(root: str) -> list[str]:
    """Return the names of the slots as text, in no meaningful order."""
    return [files.as_text(name) for name in files.names(f"{root}/{_SLOTS}")]


def read_slot(root: str, name: str, functions: Collection[str] | None = None) -> model.Slot | None:
    """Return the slot of this name, or None if there is none or its address is unknown.

    Args:
        root: the root of the sysfs tree.
        name: the slot's name, as text.
        functions: the addresses of all functions, if they are listed already.
    """
    path = f"{root}/{_SLOTS}/{name if name.isascii() else _find_file_name(root, name)}"
    match = _SLOT_ADDRESS.fullmatch(files.text(path + "/address") or "")
    if match is None:
        return None
    address = f"{match[1]}{match[2] or ':00'}"
    ports = _ports_at(root, address, functions)
    port = _port_of_slot(root, name, ports)
    return model.Slot(
        name=name,
        address=address,
        present=files.flag(files.number(path + "/adapter")),
        powered=files.flag(files.number(path + "/power")),
        attention=files.number(path + "/attention"),
        speed_gts=pci.link_speed(files.text(path + "/cur_bus_speed")),
        max_speed_gts=pci.link_speed(files.text(path + "/max_bus_speed")),
        port=port,
        is_ambiguous=bool(ports) and port is None,
    )


def _find_file_name(root: str, name: str) -> str:
    """Return the name in sysfs of the slot with this name as text."""
    listed = files.names(f"{root}/{_SLOTS}")
    return next((file_name for file_name in listed if files.as_text(file_name) == name), name)


_FUNCTIONS = range(8)
_PORT_CLASS = "0604"
_UEVENT_CLASS = re.compile(r"^PCI_CLASS=([0-9A-Fa-f]+)$", re.MULTILINE)
_NAME_NUMBER = re.compile(r"0*(\d+)(?:-\d+)?$")
_LAST_NUMBER = re.compile(r"slot\W*0*(\d+)|0*(\d+)\W*$", re.IGNORECASE)


def _ports_at(root: str, address: str, functions: Collection[str] | None) -> tuple[str, ...]:
    """Return the functions at this address that are ports above a slot; none if the device itself sits in a slot.

    Levels alternate: below a root port is a device; if it is a switch, its ports are below it. So every other level may be a
    port.
    """
    ports = []
    for function in _FUNCTIONS:
        if functions is not None and f"{address}.{function}" not in functions:
            continue
        path = f"{root}/bus/pci/devices/{address}.{function}"
        levels = _levels(files.link_target(path) or "")
        is_port = levels % 2 and _class_code(path).startswith(_PORT_CLASS)
        if is_port and (levels == 1 or read_port(path).kind in (None, *_ABOVE_ONE_DEVICE)):
            ports.append(f"{address}.{function}")
    return tuple(ports)


def _levels(link: str) -> int:
    """Return the number of functions on the path from the root complex to the link's function, including both ends."""
    levels = 0
    for part in reversed(link.split("/")):
        if not pci.ADDRESS.fullmatch(part):
            break
        levels += 1
    return levels


def _class_code(path: str) -> str:
    match = _UEVENT_CLASS.search(files.text(path + "/uevent") or "")
    return f"{int(match[1], 16):06x}" if match else f"{files.number(path + '/class') or 0:06x}"


def _port_of_slot(root: str, name: str, ports: tuple[str, ...]) -> str | None:
    """Return the port above the slot of this name, or None if it cannot be identified."""
    if len(ports) == 1:
        return ports[0]
    match = _NAME_NUMBER.search(name)
    number = int(match[1]) if match else None
    for matches in (_matches_firmware, _matches_capability, _matches_label):
        matching = [port for port in ports if matches(f"{root}/bus/pci/devices/{port}", name, number)]
        if len(matching) == 1:
            return matching[0]
    return None


def _matches_firmware(path: str, name: str, number: int | None) -> bool:
    del name
    return number is not None and files.number(path + "/firmware_node/sun") == number


def _matches_capability(path: str, name: str, number: int | None) -> bool:
    del name
    return number is not None and read_port(path).slot_number == number


def _matches_label(path: str, name: str, number: int | None) -> bool:
    label = files.text(path + "/label") or ""
    match = _LAST_NUMBER.search(label)
    return label.casefold() == name.casefold() or (
        match is not None and number is not None and int(match[1] or match[2]) == number
    )


class PortCapability(msgspec.Struct, frozen=True, kw_only=True):
    """The PCI Express capability of a bridge.

    Attributes:
        kind: device/port type: 4 root port, 5 upstream and 6 downstream port of a switch; None without the capability or
            without privilege.
        slot_number: the physical slot number of the slot below; None without one.
    """

    kind: int | None = None
    slot_number: int | None = None


_HEADER_BYTES = 256
_FIRST_CAPABILITY, _LEAST_CAPABILITY = 0x34, 0x40
_CAPABILITY_EXPRESS = 0x10
_SLOT_IMPLEMENTED = 1 << 8
_ABOVE_ONE_DEVICE = frozenset({4, 6, 8})
"""Root ports, downstream ports, and bridges from conventional PCI to PCI Express: a link has one device at its end."""


def is_above_one_device(path: str) -> bool:
    """Return whether the bridge in this directory leads to a link of PCI Express; False if its capability cannot be read."""
    return read_port(path).kind in _ABOVE_ONE_DEVICE


def read_port(path: str) -> PortCapability:
    """Return the PCI Express capability of the bridge in this directory; empty if it cannot be read."""
    try:
        descriptor = os.open(path + "/config", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return PortCapability()
    try:
        return find_port(os.pread(descriptor, _HEADER_BYTES, 0))
    except OSError:
        return PortCapability()
    finally:
        os.close(descriptor)


def find_port(space: bytes) -> PortCapability:
    """Return the PCI Express capability from the first 256 bytes of configuration space, or from fewer."""
    pointer = space[_FIRST_CAPABILITY] & 0xFC if len(space) > _FIRST_CAPABILITY else 0
    for _ in range(_HEADER_BYTES // 4):
        if not _LEAST_CAPABILITY <= pointer <= len(space) - 4:
            break
        if space[pointer] == _CAPABILITY_EXPRESS:
            flags = int.from_bytes(space[pointer + 2 : pointer + 4], "little")
            slot = int.from_bytes(space[pointer + 0x14 : pointer + 0x18], "little") >> 19
            has_slot = flags & _SLOT_IMPLEMENTED and slot not in (0, 0x1FFF)
            return PortCapability(kind=flags >> 4 & 0xF, slot_number=slot if has_slot else None)
        pointer = space[pointer + 1] & 0xFC
    return PortCapability()


def sort_slots(slots: Iterable[model.Slot]) -> tuple[model.Slot, ...]:
    """Return the slots by name: slot 10 comes after slot 9, and names that are not numbers (`2-1`) come last."""
    return tuple(sorted(slots, key=_name_order))


def slot_locations(slots: Iterable[model.Slot]) -> dict[str, str]:
    """Return slot names by `model.Slot.location`; of two slots at one location the first counts."""
    return {slot.location: slot.name for slot in reversed(sort_slots(slots)) if slot.location is not None}


def nearest_slot(path: str, by_location: Mapping[str, str], *, ari: bool = False) -> str | None:
    """Return the name of the nearest slot at or above the device in this directory, or None.

    Args:
        path: a directory of a function, or below one. A port itself does not sit in the slot below it.
        by_location: see `slot_locations`.
        ari: the function has ARI, so its device number is 0 regardless of its address.
    """
    *above, last = path.split("/")
    device = last.rpartition(".")[0]
    name = by_location.get(f"{device[:-2]}00" if ari else device)
    if name is not None:
        return name
    for part in reversed(above):
        name = by_location.get(part.rpartition(".")[0]) or by_location.get(part)
        if name is not None:
            return name
    return None


def _name_order(slot: model.Slot) -> tuple[int, str]:
    return (int(slot.name), "") if slot.name.isdecimal() else (1 << 32, slot.name)
