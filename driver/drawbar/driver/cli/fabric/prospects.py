"""How nodes are expected to recognise the devices of a fabric, and which devices show one number; pure.

A number that two devices show identifies neither of them, so the forecast leaves it out. A slice and the device that it is a part
of are one device here: both are in one card.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from drawbar.fabric import contract, recognition, witnesses
from drawbar.fabric.witnesses import Kind

Key = tuple[Kind, str]

# As few characters as a column has room for.
_SHORT: Mapping[Kind, str] = MappingProxyType(
    {
        Kind.PCIE_DSN: "dsn",
        Kind.GPU_UUID: "uuid",
        Kind.GPU_UNIQUE_ID: "unique-id",
        Kind.BOARD_SERIAL: "board",
        Kind.VPD_SERIAL: "vpd",
        Kind.PART_NUMBER: "part",
        Kind.NVME_SERIAL: "nvme",
        Kind.NVME_NQN: "nqn",
        Kind.EUI64: "eui64",
        Kind.NGUID: "nguid",
        Kind.MAC: "mac",
        Kind.NODE_GUID: "guid",
        Kind.SERIAL: "serial",
        Kind.VENDOR: "vendor",
    }
)


def forecasts(
    devices: Iterable[contract.Device], hosts: Iterable[contract.Host]
) -> Mapping[str, recognition.Forecast]:
    """Return by the id of each device how its node is expected to recognise it."""
    listed = tuple(devices)
    has_slot = any(port.slot_hint is not None for host in hosts for port in host.ports)
    shared = find_shared(listed)
    return {
        device.id: recognition.forecast(_without(device, shared.keys()), has_slot=has_slot)
        for device in listed
    }


def find_shared(devices: Iterable[contract.Device]) -> Mapping[Key, tuple[str, ...]]:
    """Return the numbers that several devices show, each with the ids of these devices."""
    holders: dict[Key, dict[str, str]] = {}
    for device in devices:
        card = device.slice_of.origin_id if device.slice_of is not None else device.id
        for key in _keys(device):
            holders.setdefault(key, {}).setdefault(card, device.id)
    return {key: tuple(ids.values()) for key, ids in holders.items() if len(ids) > 1}


def shorten(kinds: Iterable[str]) -> str:
    """Return the kinds of a device's identifiers in few characters, each once with its count: `uuid board mac*2`."""
    listed = list(kinds)
    counts = {kind: listed.count(kind) for kind in listed}
    return " ".join(
        f"{_SHORT[Kind(kind)]}*{count}" if count > 1 else _SHORT[Kind(kind)] for kind, count in counts.items()
    )


def _without(device: contract.Device, shared: Iterable[Key]) -> contract.Device:
    """Return the device without numbers that others show as well."""
    left_out = set(shared)
    numbers = tuple(each for each in device.identifiers if (each.kind, each.value) not in left_out)
    is_shared = (Kind.SERIAL, _serial(device)) in left_out
    return replace(device, identifiers=numbers, serial=None if is_shared else device.serial)


def _keys(device: contract.Device) -> frozenset[Key]:
    numbers = {(each.kind, each.value) for each in device.identifiers if each.kind is not Kind.PART_NUMBER}
    serial = _serial(device)
    return frozenset(numbers | {(Kind.SERIAL, serial)} if serial else numbers)


def _serial(device: contract.Device) -> str:
    return witnesses.normal(Kind.SERIAL, device.serial) if device.serial else ""
