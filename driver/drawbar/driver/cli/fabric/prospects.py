"""Forecasts of how nodes will recognise the devices of a fabric; pure.

A number of two devices identifies neither of them. So the forecast leaves it out, as the controller does.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from drawbar.driver.controller.fabrics import numbers
from drawbar.fabric import contract, recognition
from drawbar.fabric.witnesses import Kind

# Short names that fit into a column.
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
    """Return, by the id of each device, how its node is expected to recognise it."""
    devices = tuple(devices)
    listed = numbers.Numbers.from_devices(devices)
    has_slot = any(port.slot_hint is not None for host in hosts for port in host.ports)
    return {
        device.id: recognition.forecast(
            numbers.remove_identifiers(device, listed.find_shared(device)), has_slot=has_slot
        )
        for device in devices
    }


def shorten(kinds: Iterable[str]) -> str:
    """Return the kinds of a device's identifiers in few characters, each once with its count: `uuid board mac*2`."""
    listed = list(kinds)
    counts = {kind: listed.count(kind) for kind in listed}
    return " ".join(
        f"{_SHORT[Kind(kind)]}*{count}" if count > 1 else _SHORT[Kind(kind)] for kind, count in counts.items()
    )
