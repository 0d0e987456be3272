"""Drawbar's DeviceAttachments as the doubles read them: the parts that say which device is where.

Source: `deploy/drawbar/crds/deviceattachments.yaml`.
"""

import hashlib

import msgspec

from drawbar.mocks.kube import meta

DRIVER = "drawbar.dev"
"""The name of Drawbar's driver."""
NODE_LABEL = f"{DRIVER}/node"
LABEL_VALUE_CHARS = 63

ATTACHED = "Attached"
VISIBLE = "Visible"
RELEASED = "Released"


def node_label(node: str) -> str:
    """Return the value of `NODE_LABEL`: the node's name, or a hash of a name that is longer than a label's value."""
    if len(node) <= LABEL_VALUE_CHARS:
        return node
    return f"sha256-{hashlib.sha256(node.encode()).hexdigest()[:32]}"


class Identifier(meta.Struct, frozen=True):
    """An identifier of a kind in `drawbar.fabric.witnesses.Kind`."""

    kind: str
    value: str


class Identity(meta.Struct, frozen=True):
    """The class, and the numbers by which a node recognises the device."""

    device_class: str
    serial: str = ""
    identifiers: tuple[Identifier, ...] = ()
    pci_id: str = msgspec.field(default="", name="pciID")


class Claim(meta.Struct, frozen=True):
    """The claim of the device."""

    uid: str


class Spec(meta.Struct, frozen=True):
    """The intent."""

    device_id: str = msgspec.field(name="deviceID")
    pool: str
    device: str
    node_name: str
    host_id: str = msgspec.field(name="hostID")
    identity: Identity
    claim: Claim | None = None


class Operation(meta.Struct, frozen=True):
    """The fabric's operation behind the condition `Attached`."""

    request_id: str = msgspec.field(name="requestID")


class Connection(meta.Struct, frozen=True):
    """The host's port, and the slot behind it."""

    port: str = ""
    slot: str = ""


class Chosen(meta.Struct, frozen=True):
    """The device of a fabric that chooses it."""

    id: str
    serial: str = ""
    identifiers: tuple[Identifier, ...] = ()
    pci_id: str = msgspec.field(default="", name="pciID")


class Status(meta.Struct, frozen=True):
    """The record."""

    conditions: tuple[meta.Condition, ...] = ()
    connection: Connection | None = None
    operation: Operation | None = None
    device: Chosen | None = None


class DeviceAttachment(meta.Struct, frozen=True):
    """One device on one node."""

    metadata: meta.ObjectMeta
    spec: Spec
    status: Status = Status()

    def holds(self, condition_type: str) -> bool:
        """Return true if that condition is True."""
        return meta.is_true(self.status.conditions, condition_type)

    @property
    def identity(self) -> Identity:
        """Return the identity of the device, which a fabric may have chosen."""
        chosen = self.status.device
        if chosen is None:
            return self.spec.identity
        return msgspec.structs.replace(
            self.spec.identity, serial=chosen.serial, identifiers=chosen.identifiers, pci_id=chosen.pci_id
        )

    @property
    def device_id(self) -> str:
        """Return the fabric's id of the device, which a fabric may have chosen."""
        return self.status.device.id if self.status.device is not None else self.spec.device_id
