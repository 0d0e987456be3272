"""The URIs of a Redfish service, and the names of its devices."""

from collections.abc import Mapping
from types import MappingProxyType

from drawbar.mocks.redfish.configuration import Configuration, Device, Enclosure
from drawbar.mocks.redfish.tree import ROOT

FABRIC = f"{ROOT}/Fabrics/PCIe"
ENDPOINTS = f"{FABRIC}/Endpoints"
ZONES = f"{FABRIC}/Zones"
CONNECTIONS = f"{FABRIC}/Connections"
SYSTEMS = f"{ROOT}/Systems"
SWITCHES = f"{FABRIC}/Switches"
BLOCKS = f"{ROOT}/CompositionService/ResourceBlocks"
RESOURCE_ZONES = f"{ROOT}/CompositionService/ResourceZones"
DOMAIN = "1"
SESSIONS = f"{ROOT}/SessionService/Sessions"
TASKS = f"{ROOT}/TaskService/Tasks"
CAPABILITIES = f"{ROOT}/CompositionService/ConstrainedCapabilities"
EVENTS = f"{ROOT}/EventService/SSE"
OK: Mapping[str, str] = MappingProxyType({"State": "Enabled", "Health": "OK"})


def device_name(enclosure: Enclosure, device: Device, configuration: Configuration) -> str:
    """Return how the adapter `redfish` names the device."""
    if configuration.is_appliance:
        return f"{enclosure.id}.{DOMAIN}.{device.id}"
    return f"{FABRIC.rpartition('/')[2]}.{device.id}" if configuration.has_fabric else device.id


def chunk_uri(enclosure_id: str, device_id: str, configuration: Configuration) -> str:
    """Return the URI of the memory chunk that a device is."""
    owner = "Systems" if configuration.is_appliance else "Chassis"
    return f"{ROOT}/{owner}/{enclosure_id}/MemoryDomains/{DOMAIN}/MemoryChunks/{device_id}"


def block(device_id: str) -> str:
    """Return the URI of a device's resource block."""
    return f"{BLOCKS}/{device_id}"


def endpoint(name: str) -> str:
    """Return the URI of the endpoint of a host or device."""
    return f"{ENDPOINTS}/{name}"
