"""DeviceAttachments: the intent and the record of one device on one node.

The name is derived from the fabric and the device's stable id, so the API server refuses a second attachment of one
device. Source: `deploy/drawbar/crds/deviceattachments.yaml`.
"""

import enum
import hashlib

import msgspec

from drawbar.driver.api import meta, parameters, slices
from drawbar.fabric.classes import OFFERED_CLASSES

API_VERSION = "drawbar.dev/v1alpha1"
KIND = "DeviceAttachment"
FINALIZER = "drawbar.dev/detach"
NODE_LABEL = "drawbar.dev/node"
FORCE_ANNOTATION = "drawbar.dev/force-detach"
LABEL_VALUE_CHARS = 63
LOCAL = ""
"""In place of a Fabric's name: the device lives in its node, and the node alone has this value of it."""
FINDINGS_MAX = 16
"""How many findings a node reports of a device."""

# Condition types of the status.
ATTACHED = "Attached"
DETACHED = "Detached"
VISIBLE = "Visible"
RELEASED = "Released"
EXCLUSIVE = "Exclusive"
# What a node reports of the health of a device that it finds ill.
UNHEALTHY = "Unhealthy"


def name(fabric: str, device: str) -> str:
    """Return the only possible name of an attachment of this device.

    Args:
        fabric: name of the Fabric object, at most 63 characters (its CRD enforces it).
        device: the device's DRA name, a DNS label.
    """
    return f"{fabric}.{device}"


def node_label(node_name: str) -> str:
    """Return the value of `NODE_LABEL` for a node: its name, or a hash if the name exceeds a label's 63 characters."""
    if len(node_name) <= LABEL_VALUE_CHARS:
        return node_name
    return f"sha256-{hashlib.sha256(node_name.encode()).hexdigest()[:32]}"


class Initialisation(meta.Struct, frozen=True):
    """What makes the device ready: a program, or the kernel driver of a DFL card, which loads a bitstream.

    Attributes:
        hook: name of a file in the node daemon's directory of hooks; empty for the driver.
        timeout_seconds: how long it may take.
        bitstream: name of a file in the node daemon's directory of bitstreams; empty for none.
        sha256: of that file's content, 64 hexadecimal digits.
    """

    hook: str
    timeout_seconds: int = parameters.HOOK_SECONDS
    bitstream: str = ""
    sha256: str = ""


class Hook(meta.Struct, frozen=True):
    """A program that runs after the device's use.

    Attributes:
        hook: name of a file in the node daemon's directory of hooks.
        timeout_seconds: how long it may take.
    """

    hook: str
    timeout_seconds: int = parameters.HOOK_SECONDS


class Versions(meta.Struct, frozen=True):
    """The lowest versions with which the device is called visible, as `parameters.Versions`; empty for any."""

    driver: str = ""
    firmware: str = ""


class ClaimReference(meta.Struct, frozen=True):
    """The claim that a device is attached for.

    Attributes:
        requests: the claim's requests that got this device.
        devices: how many devices of this driver the claim has; a node that knows as many need not read the claim.
            0 where the node has to read it.
        memory_mode: what the node makes of the device's volatile memory, as `parameters.Memory.mode`; empty for the default.
        memory_interleave: it is one region with that of the other members of its composite.
        memory_granularity: of that region, in bytes; 0 for the kernel's choice.
        initialise: what makes the device ready for the claim, beside its class; None for nothing.
        minimum_versions: of its driver and firmware.
        drain: what makes others let go of the device after the claim; None for nothing.
        clean_up: what cleans the device after the claim, beside its class; None for nothing.
        virtual_functions: that the device gets.
    """

    namespace: str
    name: str
    uid: str
    requests: tuple[str, ...] = ()
    devices: int = 0
    memory_mode: str = ""
    memory_interleave: bool = False
    memory_granularity: int = 0
    initialise: Initialisation | None = None
    minimum_versions: Versions = Versions()
    drain: Hook | None = None
    clean_up: Hook | None = None
    virtual_functions: parameters.VirtualFunctions = parameters.VirtualFunctions()


ERASED_CLASSES = frozenset(listed for listed in OFFERED_CLASSES if listed.can_erase)
UNWEARING_CLASSES = frozenset({"cxl-memory"})
"""Of devices that no number of erasures wears out."""
"""Classes of device that keep their users' data, and are erased unless their Fabric has another policy."""


class Clean(enum.Enum):
    """What is done about what a user left on a device, before another one gets it or it leaves its node."""

    NONE = "none"
    """Nothing."""
    RESET = "reset"
    """Each function is reset, by the best method that it has."""
    ERASE = "erase"
    """The user's data are erased, and each function is reset."""


class DeviceIdentifier(meta.Struct, frozen=True):
    """One identifier of a device, as the fabric manager reports it.

    Attributes:
        kind: one of `drawbar.fabric.witnesses.Kind`.
        value: in the normal form of its kind.
        source: the manager's property, such as `Processor.UUID`; for people.
        shared: another device of the fabric has it too, so it only narrows.
    """

    kind: str
    value: str
    source: str = ""
    shared: bool = False


class Identity(meta.Struct, frozen=True):
    """The identifiers by which the node recognises the device when it arrives.

    Attributes:
        device_class: one of `drawbar.fabric.classes.DeviceClass`.
        serial: serial number of an undeclared kind, as the fabric reports it.
        identifiers: those of declared kinds.
        pci_id: vendor and device as `vvvv:dddd`, lower-case hexadecimal; empty when the fabric does not know.
        slot: the hot-plug slot of the host, where it is known beforehand; see `ConnectionRecord.slot`.
        sole_arrival: the node can read none of these identifiers, so the only card of its model that arrives is the device.
            Such devices are attached to a node one after the other, each once the node has listed its cards.
    """

    device_class: str
    serial: str = ""
    identifiers: tuple[DeviceIdentifier, ...] = ()
    pci_id: str = msgspec.field(default="", name="pciID")
    slot: str = ""
    sole_arrival: bool = False


class Composite(meta.Struct, frozen=True):
    """The composite as a member of which a device is attached.

    Attributes:
        name: of the DRA device that the claim was given.
        devices: the DRA names of all members.
    """

    name: str
    devices: tuple[str, ...]


class Share(meta.Struct, frozen=True):
    """The share of a device that a claim was given: its memory is carved from the device, and attached in its place.

    Attributes:
        device: the DRA name of the device.
        device_id: the fabric manager's id of it.
        share_id: of the allocation's result.
        memory_bytes: of the share.
    """

    device: str
    device_id: str = msgspec.field(name="deviceID")
    share_id: str = msgspec.field(name="shareID")
    memory_bytes: int


class AttachmentSpec(meta.Struct, frozen=True):
    """The intent. Only the claim may change.

    Attributes:
        claim: who has it; None while it is kept for the next one, or held by an operator.
        model: of the device, as the fabric reports it.
        attributes: by name those that the fabric's adapter gives it, for the files that containers read.
        clean: what is done about its users' traces; None for what its class does.
        unclean: it may have data of an earlier user when it arrives.
        composite: what the claim was given, where that is a composite of several devices; None for the device itself.
        share: what the claim was given, where that is a share of a device; `device` and `device_id` are its own then.
        idle_since: when its last claim let go of it, while it is kept attached for the next; None otherwise.
    """

    fabric: str
    device_id: str = msgspec.field(name="deviceID")
    driver: str
    pool: str
    device: str
    node_name: str
    host_id: str = msgspec.field(name="hostID")
    identity: Identity
    model: str = ""
    attributes: dict[str, slices.Attribute] = {}
    clean: Clean | None = None
    unclean: bool = False
    composite: Composite | None = None
    share: Share | None = None
    claim: ClaimReference | None = None
    allocation_timestamp: str | None = None
    idle_since: str | None = None

    @property
    def is_local(self) -> bool:
        """Return whether the device belongs to a local pool."""
        return self.fabric == LOCAL

    @property
    def erases(self) -> bool:
        """Return whether the data of the device's users must be erased."""
        by_class = self.identity.device_class in ERASED_CLASSES
        return self.clean is Clean.ERASE or (self.clean is None and by_class)

    @property
    def allocated(self) -> str:
        """Return the name of the allocated DRA device: the device, its composite, or the pool of its share."""
        if self.share is not None:
            return self.share.device
        return self.composite.name if self.composite is not None else self.device

    @property
    def share_id(self) -> str | None:
        """Return the id of the claim's share, or None if the device is not shared."""
        return self.share.share_id if self.share is not None else None

    @property
    def companions(self) -> tuple[str, ...]:
        """Return the names of the DeviceAttachments of the other members of its composite."""
        members = self.composite.devices if self.composite is not None else ()
        return tuple(name(self.fabric, member) for member in members if member != self.device)

    @property
    def initialise(self) -> Initialisation | None:
        """`ClaimReference.initialise` of its claim; None without one."""
        return self.claim.initialise if self.claim is not None else None

    @property
    def memory(self) -> parameters.Memory:
        """Return the claim's settings for the device's volatile memory."""
        claim = self.claim
        if claim is None:
            return parameters.Memory()
        return parameters.Memory(
            mode=claim.memory_mode or None,
            interleave=claim.memory_interleave or None,
            granularity=claim.memory_granularity or None,
        )


class OperationRecord(meta.Struct, frozen=True):
    """The attach whose outcome the condition `Attached` reports; `started_at` is empty where another process asked for it."""

    request_id: str = msgspec.field(name="requestID")
    attempt: int = 0
    started_at: str = ""


class ConnectionRecord(meta.Struct, frozen=True):
    """Where the fabric connected the device.

    Attributes:
        port: the host's port, as the fabric names it.
        slot: the hot-plug slot behind the port, as the fabric reports it; the node goes by its kernel.
    """

    port: str = ""
    slot: str = ""


class DeviceRecord(meta.Struct, frozen=True):
    """The device that came, of a fabric that chooses it.

    Attributes:
        id: the fabric manager's stable id of it.
        serial: as `Identity.serial`.
        identifiers: as `Identity.identifiers`.
        pci_id: as `Identity.pci_id`.
    """

    id: str
    serial: str = ""
    identifiers: tuple[DeviceIdentifier, ...] = ()
    pci_id: str = msgspec.field(default="", name="pciID")


class NodeFinding(meta.Struct, frozen=True):
    """Something that the node found wrong with the device, and what its health policy makes of it.

    Attributes:
        name: of the finding, such as `link-narrow`; the key of the taint without the driver's name.
        value: tells its states apart, such as `x4-of-x16`; may be empty.
        effect: of the taint: `None`, `NoSchedule` or `NoExecute`.
        message: one sentence.
    """

    name: str
    value: str = ""
    effect: str = "None"
    message: str = ""


class Recognition(meta.Struct, frozen=True):
    """The witness by which the node recognised the device.

    Attributes:
        kind: of the identifier, or `slot`, or `sole-arrival`.
        fabric_source: where the fabric manager shows the number.
        node_source: where the node read the same number.
        fingerprint: place, model and serial number of the card; a card with another one is not the card of before.
    """

    kind: str
    fabric_source: str = ""
    node_source: str = ""
    fingerprint: str = ""

    def __str__(self) -> str:
        sources = " = ".join(source for source in (self.fabric_source, self.node_source) if source)
        return f"{self.kind} ({sources})" if sources else self.kind


class Baseline(meta.Struct, frozen=True):
    """The node's acknowledgement that it has listed its cards, before the fabric is asked to attach the device.

    Attributes:
        boot_id: of the node's kernel.
    """

    boot_id: str = msgspec.field(default="", name="bootID")


class NodeReport(meta.Struct, frozen=True):
    """What the node daemon sees.

    Attributes:
        pci_address: of the device's first function.
        kernel_driver: of the device's first function; empty where none is bound.
        boot_id: of the kernel that saw it.
        slot: the hot-plug slot it sits in; empty where the port has none.
        recognised_by: the deciding witness; None until the device was recognised.
        health: `Healthy`, `Unhealthy` or `Unknown`; see `unhealthy`.
        health_message: why, in one sentence.
        findings: what was found, worst first; from a node daemon that reports none, `health` alone describes it.
        claim_uid: the claim that it was last made ready for; empty once no trace of its use is left on the device.
        allocation_timestamp: of that claim then.
        drain: of that claim then: the next claim, or none, may name another.
        clean_up: likewise.
    """

    pci_address: str = ""
    kernel_driver: str = ""
    boot_id: str = msgspec.field(default="", name="bootID")
    slot: str = ""
    recognised_by: Recognition | None = None
    health: str = ""
    health_message: str = ""
    findings: tuple[NodeFinding, ...] = ()
    claim_uid: str = msgspec.field(default="", name="claimUID")
    allocation_timestamp: str = ""
    drain: Hook | None = None
    clean_up: Hook | None = None

    @property
    def unhealthy(self) -> bool:
        """Return whether the node reports the device as unhealthy."""
        return self.health == UNHEALTHY


class Failure(meta.Struct, frozen=True):
    """Why the attachment does not come about."""

    reason: str
    message: str
    retryable: bool = False


class ContradictionRecord(meta.Struct, frozen=True):
    """A connection that the fabric manager no longer shows, of a device that its node has seen.

    Attributes:
        since: when the manager first showed another state.
        host_id: the host where it shows the device; empty while it shows the device as free.
    """

    since: str
    host_id: str = msgspec.field(default="", name="hostID")


class AttachmentStatus(meta.Struct, frozen=True):
    """The record.

    Attributes:
        refusal: the fabric manager's latest words against the attach, while that is tried again.
    """

    phase: str = ""
    conditions: tuple[meta.Condition, ...] = ()
    operation: OperationRecord | None = None
    connection: ConnectionRecord | None = None
    device: DeviceRecord | None = None
    contradiction: ContradictionRecord | None = None
    refusal: str = ""
    baseline: Baseline | None = None
    node: NodeReport | None = None
    error: Failure | None = None


class DeviceAttachment(meta.Struct, frozen=True):
    """One device on one node."""

    metadata: meta.ObjectMeta
    spec: AttachmentSpec
    status: AttachmentStatus = AttachmentStatus()

    def holds(self, condition_type: str) -> bool:
        """Return whether that condition of the status is True."""
        return meta.is_true(self.status.conditions, condition_type)

    @property
    def identity(self) -> Identity:
        """Return the identity for the node. If the fabric chooses the device, its status completes the identity."""
        device = self.status.device
        if device is None:
            return self.spec.identity
        return msgspec.structs.replace(
            self.spec.identity, serial=device.serial, identifiers=device.identifiers, pci_id=device.pci_id
        )

    @property
    def device_id(self) -> str:
        """Return the fabric manager's id of the device, or of its place until the fabric has chosen a device."""
        return self.status.device.id if self.status.device is not None else self.spec.device_id

    @property
    def deleting(self) -> bool:
        """Return whether the attachment is being deleted, which requests the detach."""
        return self.metadata.deletion_timestamp is not None

    @property
    def held_by_hand(self) -> bool:
        """Return whether an operator made the attachment, without a claim."""
        return self.spec.claim is None and self.spec.idle_since is None

    @property
    def lends(self) -> bool:
        """Return whether the node offers the virtual functions of the device individually."""
        claim = self.spec.claim
        return self.held_by_hand or (claim is not None and bool(claim.virtual_functions.offered))

    @property
    def is_used(self) -> bool:
        """Return whether the device may have been used since its node last cleaned it."""
        by_claim = self.status.node is not None and bool(self.status.node.claim_uid)
        return by_claim or self.held_by_hand or self.spec.unclean

    @property
    def has_traces(self) -> bool:
        """Return whether the device was used for another allocation than its current one, on any node."""
        node = self.status.node
        if node is None:
            return self.spec.unclean
        return bool(node.claim_uid) and (node.claim_uid, node.allocation_timestamp) != self.user

    @property
    def is_made_ready(self) -> bool:
        """Return whether the node has made the device ready for its allocation, in the boot of its report.

        It stays true if the device fails later. Without a claim, it is true for a device without traces of a use.
        """
        node = self.status.node
        return node is not None and (node.claim_uid, node.allocation_timestamp) == self.user

    @property
    def user(self) -> tuple[str, str]:
        """Return the claim's UID and allocation timestamp, as recorded by the node; empty strings without a claim."""
        claim = self.spec.claim
        return (claim.uid, self.spec.allocation_timestamp or "") if claim is not None else ("", "")

    @property
    def forced(self) -> bool:
        """Return whether an operator forces the detach, without the node's preparation."""
        return self.metadata.annotations.get(FORCE_ANNOTATION) == "true"

    def is_used_with(self, companion: "DeviceAttachment | None", condition_type: str) -> bool:
        """Return whether another member of its composite has the same allocation and holds that condition."""
        if companion is None or companion.deleting or not companion.holds(condition_type):
            return False
        if self.spec.claim is None or companion.spec.claim is None:
            return False
        if condition_type == VISIBLE and not companion.is_made_ready:
            return False
        return self.user == companion.user
