"""The numbers by which a Redfish service shows a device, with the formats of some manufacturers; pure.

As real services do, it shows printed serial numbers, UUIDs, addresses and GCXLIDs, and never the PCIe Device Serial
Number as a SerialNumber. The host's mocked kernel derives its numbers from the same serial number
(`drawbar.mocks.identities`).

The formats are those of real trees in NVIDIA/libredfish, `tests/mockups`: Dell iDRAC, HPE iLO, Supermicro.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from drawbar.fabric.classes import DeviceClass
from drawbar.fabric.witnesses import Kind
from drawbar.mocks import identities
from drawbar.mocks.redfish.configuration import Device
from drawbar.mocks.redfish.tree import Body

Manners = Literal["", "dell", "hpe", "supermicro"]

_PADDED: Mapping[str, int] = MappingProxyType({"dell": 29, "hpe": 20})


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """The numbers of a device; empty if it has none of that kind.

    Attributes:
        printed: the serial number on its board, or of its drive.
        gpu_uuid: the UUID of a GPU.
        gcxlid: the GCXLID of CXL memory.
        mac: the permanent MAC address of a network card.
    """

    printed: str
    gpu_uuid: str = ""
    gcxlid: str = ""
    mac: str = ""


def serial(device: Device) -> str:
    """Return the serial number of a device, from which the others follow."""
    return device.serial or device.id.upper()


def numbers(device: Device) -> Numbers:
    """Return the numbers that the service shows."""
    made = {each.kind: each.value for each in identities.defaults(DeviceClass(device.kind), serial(device))}
    is_memory = device.kind == "cxl-memory"
    dsn = made.get(Kind.PCIE_DSN, "") if is_memory else ""
    return Numbers(
        printed=f"SN-{device.id.upper()}" if dsn else serial(device),
        gpu_uuid=made.get(Kind.GPU_UUID, ""),
        gcxlid=f"{dsn.upper()}:0000" if dsn else "",
        mac=made.get(Kind.MAC, "").upper(),
    )


def card(body: Body, kind: str, manners: Manners) -> Body:
    """Return a PCIe device as a maker's service shows it."""
    shown = dict(body)
    match manners:
        case "dell" if kind == "gpu":
            return shown | {"Model": None, "SerialNumber": None}
        case "dell" if kind == "nvme":
            # A piece of the label, whose whole text is the drive's PartNumber.
            return shown | {"SerialNumber": f"PHTBPKK16{shown['Id'].upper()[-5:]:0>5}"}
        case "supermicro":
            return shown | {"SerialNumber": "N/A"}
        case "dell" | "hpe" if "SerialNumber" in shown:
            return shown | {"SerialNumber": shown["SerialNumber"].ljust(_PADDED[manners])}
        case _:
            return shown


def function(body: Body, manners: Manners) -> Body:
    """Return PCI ids and the class code, of a function or of an endpoint's entity, as a maker's service shows them."""
    match manners:
        case "dell":
            return body | {"ClassCode": f"0x0000{body['ClassCode'][2:4]}"}
        case "hpe":
            ids = {name: str(int(body[name], 16)) for name in ("VendorId", "DeviceId")}
            return body | ids | {"ClassCode": str(int(body["ClassCode"][2:4], 16))}
        case "supermicro":
            return body | {"VendorId": "0x0000", "DeviceId": "0x0000", "ClassCode": "0x888888"}
        case _:
            return body
