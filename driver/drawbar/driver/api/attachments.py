"""DeviceAttachments: the intent and the record of one device on one node.

The name is derived from the fabric and the device's stable id, so the API server refuses a second attachment of one
device. Source: `deploy/drawbar/definitions/deviceattachments.yaml`.
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
"""In place of a Fabric's name: the device is in a local pool."""
FINDINGS_MAX = 16
"""The most findings in a node's report on a device."""

# The phase until the fabric has connected the device, as the CRD has it.
PENDING = "Pending"
# Condition types of the status.
ATTACHED = "Attached"
DETACHED = "Detached"
VISIBLE = "Visible"
RELEASED = "Released"
EXCLUSIVE = "Exclusive"
# The node's report on the health of an unhealthy device.
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
    """The initialisation of the device: a program, or the kernel driver of a DFL card, which loads a bitstream.

    Attributes:
        hook: name of a file in the node daemon's directory of hooks; empty for the driver.
        timeout_seconds: the longest time.
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
        timeout_seconds: the longest time.
    """

    hook: str
    timeout_seconds: int = parameters.HOOK_SECONDS


class Versions(meta.Struct, frozen=True):
    """The lowest versions for a visible device, as in `parameters.Versions`; empty for any."""

    driver: str = ""
    firmware: str = ""


class ClaimReference(meta.Struct, frozen=True):
    """The claim of an attached device.

    Attributes:
        requests: the claim's requests for this device.
        devices: the number of the claim's devices of this driver; a node that knows as many need not read the claim.
            0 if the node has to read it.
        memory_mode: the use of the device's volatile memory, as in `parameters.Memory.mode`; empty for the default.
        memory_interleave: whether it is one region with that of the other members of its composite.
        memory_granularity: of that region, in bytes; 0 for the kernel's choice.
        initialise: the claim's initialisation, in addition to its class's; None for nothing.
        minimum_versions: of its driver and firmware.
        drain: the hook that ends other uses of the device after the claim; None for nothing.
        clean_up: the hook that cleans the device after the claim, in addition to its class's; None for nothing.
        virtual_functions: the device's virtual functions.
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
"""Classes of devices that erasures do not wear out."""
"""Classes of device that keep their users' data, and are erased unless their Fabric has another policy."""


class Clean(enum.Enum):
    """The treatment of a user's data on a device, before another user gets it or it leaves its node."""

    NONE = "none"
    """Nothing."""
    RESET = "reset"
    """Each function is reset, by the best method that it has."""
    ERASE = "erase"
    """The user's data are erased, and each function is reset."""


class DeviceIdentifier(meta.Struct, frozen=True):
    """One identifier of a device from the fabric manager.

    Attributes:
        kind: one of `drawbar.fabric.witnesses.Kind`.
        value: in the normal form of its kind.
        source: the manager's property, such as `Processor.UUID`; for people.
        shared: whether another device of the fabric has it too, so that it only narrows the choice.
    """

    kind: str
    value: str
    source: str = ""
    shared: bool = False


class Identity(meta.Struct, frozen=True):
    """The identifiers by which the node recognises the device when it arrives.

    Attributes:
        device_class: one of `drawbar.fabric.classes.DeviceClass`.
        serial: serial number of an undeclared kind, from the fabric.
        identifiers: those of declared kinds.
        pci_id: vendor and device as `vvvv:dddd`, lower-case hexadecimal; empty if the fabric does not know it.
        slot: the hot-plug slot of the host, if it is known beforehand; see `ConnectionRecord.slot`.
        sole_arrival: whether the node can read none of these identifiers, so that the only new card of the model is
            the device. Such devices are attached to a node one after the other, each once the node has listed its
            cards.
    """

    device_class: str
    serial: str = ""
    identifiers: tuple[DeviceIdentifier, ...] = ()
    pci_id: str = msgspec.field(default="", name="pciID")
    slot: str = ""
    sole_arrival: bool = False


class Composite(meta.Struct, frozen=True):
    """The composite of an attached device.

    Attributes:
        name: of the allocated DRA device.
        devices: the DRA names of all members.
    """

    name: str
    devices: tuple[str, ...]


class Share(meta.Struct, frozen=True):
    """A claim's share of a device: memory that is carved from the device and attached in its place.

    Attributes:
        device: the DRA name of the device.
        device_id: the fabric manager's id of the device.
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
        claim: the device's claim; None while the device is kept for the next one, or held by an operator.
        model: of the device, from the fabric.
        attributes: by name, from the fabric's adapter, for the files that containers read.
        clean: the treatment of its users' data; None for the class's default.
        unclean: whether it may arrive with an earlier user's data.
        composite: the allocated composite of several devices; None for the device itself.
        share: the allocated share of a device; `device` and `device_id` are then the share's own.
        idle_since: the release by its last claim, while it is kept attached for the next; else None.
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
        """Return `ClaimReference.initialise` of its claim; None without one."""
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
    """The attach behind the condition `Attached`; `started_at` is empty if another process requested it."""

    request_id: str = msgspec.field(name="requestID")
    attempt: int = 0
    started_at: str = ""


class ConnectionRecord(meta.Struct, frozen=True):
    """The connection of the device in the fabric.

    Attributes:
        port: the host's port, in the fabric's terms.
        slot: the hot-plug slot behind the port, from the fabric; the node relies on its kernel.
    """

    port: str = ""
    slot: str = ""


class DeviceRecord(meta.Struct, frozen=True):
    """The attached device of a fabric that chooses it.

    Attributes:
        id: the fabric manager's stable id of it.
        serial: as in `Identity.serial`.
        identifiers: as in `Identity.identifiers`.
        pci_id: as in `Identity.pci_id`.
    """

    id: str
    serial: str = ""
    identifiers: tuple[DeviceIdentifier, ...] = ()
    pci_id: str = msgspec.field(default="", name="pciID")


class NodeFinding(meta.Struct, frozen=True):
    """A fault of the device seen by the node, with the effect of its health policy.

    Attributes:
        name: of the finding, such as `link-narrow`; the key of the taint without the driver's name.
        value: distinguishes its states, such as `x4-of-x16`; may be empty.
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
        fabric_source: the fabric manager's property with the number.
        node_source: the node's source of the same number.
        fingerprint: place, model and serial number of the card; another fingerprint means another card.
    """

    kind: str
    fabric_source: str = ""
    node_source: str = ""
    fingerprint: str = ""

    def __str__(self) -> str:
        if not self.fabric_source and not self.node_source:
            return self.kind
        fabric, node = (f" ({source})" if source else "" for source in (self.fabric_source, self.node_source))
        return f"{self.kind}, the same at the fabric manager{fabric} and on the node{node}"


class Baseline(meta.Struct, frozen=True):
    """The node's acknowledgement that it has listed its cards, before the fabric is asked to attach the device.

    Attributes:
        boot_id: of the node's kernel.
    """

    boot_id: str = msgspec.field(default="", name="bootID")


class NodeReport(meta.Struct, frozen=True):
    """The report of the node daemon.

    Attributes:
        pci_address: of the device's first function.
        arrival: of that function, as the kernel numbers it in one boot; 0 if unknown.
        kernel_driver: of the device's first function; empty if none is bound.
        boot_id: of the reporting kernel.
        slot: the device's hot-plug slot; empty if the port has none.
        recognised_by: the deciding witness; None until the device is recognised.
        health: `Healthy`, `Unhealthy` or `Unknown`; see `unhealthy`.
        health_message: the reason, in one sentence.
        findings: worst first; without findings, `health` describes the device.
        claim_uid: the claim that it was last made ready for; empty once no trace of its use is left on the device.
        allocation_timestamp: of that claim at that time.
        drain: of that claim at that time; the next claim may name another or none.
        clean_up: likewise.
    """

    pci_address: str = ""
    arrival: int = 0
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
    """The reason why the attachment fails."""

    reason: str
    message: str
    retryable: bool = False


class ContradictionRecord(meta.Struct, frozen=True):
    """A connection that the fabric manager no longer shows, for a device that its node has seen.

    Attributes:
        since: the first report of another state by the manager.
        host_id: the device's host in that report; empty while it is shown as free.
    """

    since: str
    host_id: str = msgspec.field(default="", name="hostID")


class AttachmentStatus(meta.Struct, frozen=True):
    """The record.

    Attributes:
        refusal: the fabric manager's latest refusal of the attach, while that is retried.
    """

    phase: str = PENDING
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
