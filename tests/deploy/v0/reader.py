"""What version 0.1.0 made of objects and of its checkpoint: its types and its rules, kept as they were.

Never changed. It stands for the program that reads, after a rollback, what the present one wrote: fields that it does
not know are nothing to it, those that it knows must be there and be of these types.
"""

import json
import zlib

import msgspec

VERSION = 1


class Struct(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    pass


class Metadata(Struct, frozen=True):
    name: str = ""
    labels: dict[str, str] = {}
    finalizers: tuple[str, ...] = ()


class Condition(Struct, frozen=True):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class ClaimReference(Struct, frozen=True):
    namespace: str
    name: str
    uid: str
    requests: tuple[str, ...] = ()
    devices: int = 0


class Identity(Struct, frozen=True):
    device_class: str
    serial: str = ""
    pci_id: str = msgspec.field(default="", name="pciID")
    slot: str = ""


class AttachmentSpec(Struct, frozen=True):
    fabric: str
    device_id: str = msgspec.field(name="deviceID")
    driver: str
    pool: str
    device: str
    node_name: str
    host_id: str = msgspec.field(name="hostID")
    identity: Identity
    model: str = ""
    claim: ClaimReference | None = None
    allocation_timestamp: str | None = None
    idle_since: str | None = None


class Operation(Struct, frozen=True):
    request_id: str = msgspec.field(name="requestID")
    attempt: int = 0
    started_at: str = ""


class Connection(Struct, frozen=True):
    port: str = ""
    slot: str = ""


class NodeReport(Struct, frozen=True):
    pci_address: str = ""
    kernel_driver: str = ""
    boot_id: str = msgspec.field(default="", name="bootID")
    slot: str = ""
    health: str = ""
    health_message: str = ""
    claim_uid: str = msgspec.field(default="", name="claimUID")
    allocation_timestamp: str = ""


class Failure(Struct, frozen=True):
    reason: str
    message: str
    retryable: bool = False


class AttachmentStatus(Struct, frozen=True):
    phase: str = ""
    conditions: tuple[Condition, ...] = ()
    operation: Operation | None = None
    connection: Connection | None = None
    node: NodeReport | None = None
    error: Failure | None = None


class DeviceAttachment(Struct, frozen=True):
    metadata: Metadata
    spec: AttachmentSpec
    status: AttachmentStatus = AttachmentStatus()


class FabricStatus(Struct, frozen=True):
    conditions: tuple[Condition, ...] = ()
    devices: int = 0
    attached: int = 0
    hosts: int = 0


class Device(Struct, frozen=True):
    pool: str
    device: str
    cdi_id: str = msgspec.field(name="cdiID")
    requests: tuple[str, ...] = ()
    share_id: str | None = msgspec.field(default=None, name="shareID")
    admin: bool = False
    serial: str = ""


class Claim(Struct, frozen=True):
    namespace: str
    name: str
    uid: str
    devices: tuple[Device, ...]
    state: str = "completed"


class Content(Struct, frozen=True):
    boot_id: str = msgspec.field(default="", name="bootID")
    claims: dict[str, Claim] = {}


def checkpoint(raw: bytes) -> Content:
    """The content of a file: of the last line that is whole."""
    for line in reversed(raw.rstrip(b"\n").splitlines()):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        assert found["version"] <= VERSION
        assert found.get("serial", 0) >= 0
        data = found["data"].encode()
        if zlib.crc32(data) == found["crc32"]:
            return msgspec.json.decode(data, type=Content)
    raise AssertionError("no line is whole")
