"""The contract with a fabric manager: what it holds, what is asked of it, what it tells, and the port itself."""

from drawbar.fabric.contract.adapter import AdapterConfig, FabricAdapter
from drawbar.fabric.contract.changes import (
    BOOKMARK_SECONDS,
    Bookmark,
    DeviceChanged,
    DeviceGone,
    HostChanged,
    OperationChanged,
    Resync,
    WatchEvent,
)
from drawbar.fabric.contract.credentials import Credentials, Tls
from drawbar.fabric.contract.inventory import (
    COMPUTE_CAPABILITY,
    OFFERED_CLASSES,
    Connection,
    Device,
    DeviceClass,
    Health,
    Host,
    Inventory,
    Port,
    PortState,
)
from drawbar.fabric.contract.operations import (
    STRING_BYTES,
    AttachRequest,
    Capabilities,
    DetachRequest,
    Operation,
    OperationError,
    OperationKind,
    SerializationScope,
)

__all__ = [
    "AdapterConfig",
    "Credentials",
    "Tls",
    "FabricAdapter",
    "COMPUTE_CAPABILITY",
    "DeviceClass",
    "OFFERED_CLASSES",
    "Health",
    "Host",
    "Port",
    "PortState",
    "Device",
    "Connection",
    "Inventory",
    "AttachRequest",
    "DetachRequest",
    "Operation",
    "OperationKind",
    "OperationError",
    "Capabilities",
    "SerializationScope",
    "STRING_BYTES",
    "WatchEvent",
    "DeviceChanged",
    "DeviceGone",
    "HostChanged",
    "OperationChanged",
    "Bookmark",
    "Resync",
    "BOOKMARK_SECONDS",
]
