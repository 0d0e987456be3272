"""Claims, scheduling contexts and classes of classic dynamic resource allocation, independent of the API version.

The two versions of Kubernetes 1.27 to 1.31 express the same in different fields; `classic_v1alpha2` and
`classic_v1alpha3` read them into these values and write the answers. All decisions are made on these values.
PodSchedulingContexts, and the pods behind them, are the same in both.

Source: KEP-3063; `resource.k8s.io/v1alpha2` and `v1alpha3`; core `v1` Pod, whose claims stood one level deeper
(`source`) before 1.31.
"""

import enum
from collections.abc import Mapping

import msgspec

from drawbar.driver.api import claims, handles, meta

CONSUMERS_MAX = 32
NODES_MAX = 128
_OVER = frozenset({"Succeeded", "Failed"})


def finalizer(driver: str) -> str:
    """Return the finalizer that keeps a claim while this driver has something attached for it."""
    return f"{driver}/allocation"


class Version(enum.StrEnum):
    """The API versions in which a driver's controller can allocate."""

    V1ALPHA2 = "v1alpha2"
    V1ALPHA3 = "v1alpha3"


class Name(msgspec.Struct, frozen=True, kw_only=True):
    """An object in a namespace."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class ParametersReference(msgspec.Struct, frozen=True, kw_only=True):
    """The place of the parameters of a v1alpha2 claim or class."""

    api_group: str
    kind: str
    name: str
    namespace: str


class DeviceRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One named request of a v1alpha3 claim.

    Attributes:
        class_name: the DeviceClass.
        selectors: CEL expressions, all of which must be true.
    """

    name: str
    class_name: str
    selectors: tuple[str, ...] = ()
    count: int = 1


class Opaque(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of ours in a v1alpha3 claim or class.

    Attributes:
        requests: the concerned requests; empty for all of them.
    """

    parameters: object
    requests: tuple[str, ...] = ()


class Allocation(msgspec.Struct, frozen=True, kw_only=True):
    """An allocation and its author.

    Attributes:
        driver: the driver of the allocating controller.
        handle: our handle; None if it is another driver's, or unreadable.
        node: the node of the allocation; None if several are allowed.
    """

    driver: str
    handle: handles.Handle | None
    node: str | None


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A claim for this driver's controller.

    Attributes:
        version: of its reading and writing.
        finalizer: of this driver's controller.
        controller: v1alpha3, the driver of the allocating controller.
        class_name: v1alpha2, the ResourceClass.
        owner_uids: of its owners, with which it is deleted: a pod, for a claim from a template.
        immediate: whether it is allocated at once, before a pod uses it.
        requests: v1alpha3.
        unsupported: clauses about requests that this controller cannot meet.
    """

    version: Version
    name: Name
    uid: str
    resource_version: str
    finalizer: str
    created: str = ""
    finalizers: tuple[str, ...] = ()
    deleting: bool = False
    owner_uids: tuple[str, ...] = ()
    controller: str = ""
    class_name: str = ""
    parameters: ParametersReference | None = None
    requests: tuple[DeviceRequest, ...] = ()
    config: tuple[Opaque, ...] = ()
    unsupported: tuple[str, ...] = ()
    immediate: bool = False
    allocation: Allocation | None = None
    reserved_for: tuple[claims.Consumer, ...] = ()
    deallocation_requested: bool = False

    @property
    def other_finalizers(self) -> tuple[str, ...]:
        """Return the finalizers of other components."""
        return tuple(name for name in self.finalizers if name != self.finalizer)

    @property
    def has_finalizer(self) -> bool:
        """Return whether our finalizer is on the claim."""
        return self.finalizer in self.finalizers

    @property
    def going(self) -> bool:
        """Return whether the claim's allocation must be released."""
        return self.deallocation_requested or (self.deleting and not self.reserved_for)


class Class(msgspec.Struct, frozen=True, kw_only=True):
    """A ResourceClass or a DeviceClass.

    Attributes:
        driver: v1alpha2, the driver of the allocating controller; empty with v1alpha3, where the claim has it.
        suitable_nodes: the only possible nodes; None for all.
        selectors: v1alpha3, CEL expressions.
    """

    name: str
    driver: str = ""
    parameters: ParametersReference | None = None
    suitable_nodes: claims.NodeSelector | None = None
    selectors: tuple[str, ...] = ()
    config: tuple[Opaque, ...] = ()


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """The scheduler's question to the drivers about one pod, and their answers.

    Attributes:
        name: the pod's.
        pod_uids: of its owners.
        entries: by the name in the pod's spec, the nodes on which the claim cannot be allocated, including other
            drivers' entries.
    """

    version: Version
    name: Name
    uid: str
    resource_version: str
    pod_uids: tuple[str, ...] = ()
    selected_node: str = ""
    potential_nodes: tuple[str, ...] = ()
    entries: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)


class Pod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that waits for claims.

    Attributes:
        claims: the name of each claim by the name in the pod's spec; None before its creation from a template.
        from_template: names in its spec whose claims must be the pod's own.
        over: whether it has terminated or is being deleted.
    """

    name: Name
    uid: str
    created: str = ""
    claims: Mapping[str, str | None] = msgspec.field(default_factory=dict)
    from_template: frozenset[str] = frozenset()
    over: bool = False


class ConfigMap(meta.Struct, frozen=True):
    """A core `v1` ConfigMap with parameters of classic claims and classes."""

    metadata: meta.ObjectMeta
    data: dict[str, str] = {}


class ContextSpec(meta.Struct, frozen=True):
    """The question of the scheduler."""

    selected_node: str = ""
    potential_nodes: tuple[str, ...] = ()


class SchedulingStatus(meta.Struct, frozen=True):
    """The nodes that are not suitable for one claim of the pod."""

    name: str
    unsuitable_nodes: tuple[str, ...] = ()


class ContextStatus(meta.Struct, frozen=True):
    """The answers of the drivers."""

    resource_claims: tuple[SchedulingStatus, ...] = ()


class PodSchedulingContext(meta.Struct, frozen=True):
    """A context as it is served."""

    metadata: meta.ObjectMeta
    spec: ContextSpec = ContextSpec()
    status: ContextStatus = ContextStatus()


class ClaimSource(meta.Struct, frozen=True):
    """The source of a pod's claim, before 1.31."""

    resource_claim_name: str | None = None


class PodClaim(meta.Struct, frozen=True):
    """A claim of a pod."""

    name: str
    resource_claim_name: str | None = None
    source: ClaimSource = ClaimSource()


class PodDocumentSpec(meta.Struct, frozen=True):
    """The needed part of the spec."""

    resource_claims: tuple[PodClaim, ...] = ()


class PodClaimStatus(meta.Struct, frozen=True):
    """The claim that was made from a template."""

    name: str
    resource_claim_name: str | None = None


class PodDocumentStatus(meta.Struct, frozen=True):
    """The needed part of the status."""

    phase: str = ""
    resource_claim_statuses: tuple[PodClaimStatus, ...] = ()


class PodDocument(meta.Struct, frozen=True):
    """A pod as it is served."""

    metadata: meta.ObjectMeta
    spec: PodDocumentSpec = PodDocumentSpec()
    status: PodDocumentStatus = PodDocumentStatus()


def context(document: PodSchedulingContext, version: Version) -> Context:
    """Read a context."""
    metadata = document.metadata
    return Context(
        version=version,
        name=Name(namespace=metadata.namespace, name=metadata.name),
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        pod_uids=tuple(owner.uid for owner in metadata.owner_references if owner.kind == "Pod"),
        selected_node=document.spec.selected_node,
        potential_nodes=document.spec.potential_nodes,
        entries={entry.name: entry.unsuitable_nodes for entry in document.status.resource_claims},
    )


def pod(document: PodDocument) -> Pod:
    """Read a pod; a claim from a template without a status has the name that 1.27 gave it."""
    metadata = document.metadata
    made = {entry.name: entry.resource_claim_name for entry in document.status.resource_claim_statuses}
    named: dict[str, str | None] = {}
    templates = set()
    for entry in document.spec.resource_claims:
        direct = entry.resource_claim_name or entry.source.resource_claim_name
        if direct:
            named[entry.name] = direct
            continue
        templates.add(entry.name)
        named[entry.name] = made.get(entry.name, f"{metadata.name}-{entry.name}")
    return Pod(
        name=Name(namespace=metadata.namespace, name=metadata.name),
        uid=metadata.uid,
        created=metadata.creation_timestamp or "",
        claims=named,
        from_template=frozenset(templates),
        over=metadata.deletion_timestamp is not None or document.status.phase in _OVER,
    )


def set_entries(context_: Context, entries: dict[str, tuple[str, ...]]) -> dict[str, list[dict[str, object]]]:
    """Return the status of a context with some entries set; those of other drivers stay as they are."""
    merged = dict(context_.entries) | entries
    return {
        "resourceClaims": [
            {"name": name, "unsuitableNodes": list(nodes)} if nodes else {"name": name}
            for name, nodes in merged.items()
        ]
    }
