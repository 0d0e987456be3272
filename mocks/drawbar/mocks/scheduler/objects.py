"""The allocator's input (slices, classes and requests) and output (allocations).

Source: Kubernetes API reference, `resource.k8s.io/v1`. Unused fields are skipped.
"""

from typing import Any

import msgspec

from drawbar.mocks.kube import meta

Struct = meta.Struct


class Requirement(Struct, frozen=True):
    """A condition on a label, or on the field `metadata.name`."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class Term(Struct, frozen=True):
    """Requirements that must all hold."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


class NodeSelector(Struct, frozen=True):
    """Terms; one of them must hold."""

    node_selector_terms: tuple[Term, ...] = ()


class Taint(Struct, frozen=True):
    """A mark against using a device."""

    key: str
    value: str = ""
    effect: str = ""
    time_added: str | None = None
    evictions_per_second: int | None = None


class Toleration(Struct, frozen=True):
    """A taint tolerated by a request or a pod."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class Device(Struct, frozen=True):
    """One device of a slice."""

    name: str
    attributes: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    capacity: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    allow_multiple_allocations: bool = False
    taints: tuple[Taint, ...] = ()
    binds_to_node: bool = False
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()


class Pool(Struct, frozen=True):
    """The pool of a slice."""

    name: str
    generation: int = 0
    resource_slice_count: int = 1


class SliceTaint(Struct, frozen=True):
    """A taint in a slice of its own, as proposed by KEP-5055."""

    device: str
    taint: Taint


class SliceSpec(Struct, frozen=True):
    """The content of a slice."""

    driver: str
    pool: Pool
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    devices: tuple[Device, ...] = ()
    taints: tuple[SliceTaint, ...] = ()


class Slice(Struct, frozen=True):
    """A ResourceSlice."""

    metadata: meta.ObjectMeta
    spec: SliceSpec


class Cel(Struct, frozen=True):
    """A CEL expression over `device`."""

    expression: str


class Selector(Struct, frozen=True):
    """A selector; CEL is the only form."""

    cel: Cel | None = None


class Configuration(Struct, frozen=True):
    """Opaque parameters for some requests (empty: for all)."""

    requests: tuple[str, ...] = ()
    opaque: dict[str, Any] | None = None


class ClassSpec(Struct, frozen=True):
    """The content of a device class."""

    selectors: tuple[Selector, ...] = ()
    config: tuple[Configuration, ...] = ()
    extended_resource_name: str = ""


class DeviceClass(Struct, frozen=True):
    """A DeviceClass."""

    metadata: meta.ObjectMeta
    spec: ClassSpec = ClassSpec()


class CapacityRequirements(Struct, frozen=True):
    """The requested amounts of a device, by capacity name."""

    requests: dict[str, Any] = msgspec.field(default_factory=dict)


class Ask(Struct, frozen=True):
    """One way to fulfil a request. `name` is set for the members of `firstAvailable`."""

    name: str = ""
    device_class_name: str = ""
    selectors: tuple[Selector, ...] = ()
    allocation_mode: str = "ExactCount"
    count: int = 1
    admin_access: bool = False
    tolerations: tuple[Toleration, ...] = ()
    capacity: CapacityRequirements = CapacityRequirements()


class Request(Struct, frozen=True):
    """A request of a claim: exactly one alternative, or the first available one of several."""

    name: str
    exactly: Ask | None = None
    first_available: tuple[Ask, ...] = ()


class Constraint(Struct, frozen=True):
    """A constraint: devices of the named requests (empty: of all) must have equal or distinct values of an attribute."""

    requests: tuple[str, ...] = ()
    match_attribute: str = ""
    distinct_attribute: str = ""


class ClaimDevices(Struct, frozen=True):
    """`spec.devices` of a claim."""

    requests: tuple[Request, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    config: tuple[Configuration, ...] = ()


class Result(Struct, frozen=True):
    """One allocated device."""

    request: str
    driver: str
    pool: str
    device: str
    admin_access: bool | None = None
    tolerations: tuple[Toleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    share_id: str | None = msgspec.field(default=None, name="shareID")
    consumed_capacity: dict[str, str] | None = None


class AllocatedConfiguration(Struct, frozen=True):
    """Opaque parameters and their source."""

    source: str
    requests: tuple[str, ...] = ()
    opaque: dict[str, Any] | None = None


class AllocatedDevices(Struct, frozen=True):
    """`status.allocation.devices`."""

    results: tuple[Result, ...] = ()
    config: tuple[AllocatedConfiguration, ...] = ()


class Allocation(Struct, frozen=True):
    """`status.allocation` without its timestamp."""

    devices: AllocatedDevices = AllocatedDevices()
    node_selector: NodeSelector | None = None
