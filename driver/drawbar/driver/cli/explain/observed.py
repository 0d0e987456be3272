"""The state of the cluster around one object, as values.

Source: core `v1` Pod, `resource.k8s.io/v1` ResourceClaim and DeviceClass.
"""

import datetime
import enum

import msgspec

from drawbar.driver.api import core, meta
from drawbar.driver.api.slices import Device
from drawbar.driver.cli.doctor.findings import Unread
from drawbar.driver.cli.status import observed as status
from drawbar.driver.cli.status import tree


class Cel(meta.Struct, frozen=True):
    """An expression that selects devices."""

    expression: str = ""


class Selector(meta.Struct, frozen=True):
    """A selector of a request or class."""

    cel: Cel = Cel()


class Toleration(meta.Struct, frozen=True):
    """A taint that a request tolerates; an empty key or effect stands for all."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def covers(self, taint: tree.Taint) -> bool:
        """Return whether the toleration covers the taint."""
        if (self.key and self.key != taint.key) or (self.effect and self.effect != taint.effect):
            return False
        return self.operator == "Exists" or bool(self.key and self.value == taint.value)


class Alternative(meta.Struct, frozen=True):
    """Devices that a request wants, or would accept."""

    device_class_name: str = ""
    selectors: tuple[Selector, ...] = ()
    allocation_mode: str = "ExactCount"
    count: int = 1
    admin_access: bool = False
    tolerations: tuple[Toleration, ...] = ()


class Request(meta.Struct, frozen=True):
    """A request of a claim; it has either `exactly` or `first_available`."""

    name: str = ""
    exactly: Alternative | None = None
    first_available: tuple[Alternative, ...] = ()

    @property
    def alternatives(self) -> tuple[Alternative, ...]:
        """Return the alternatives of the request, the preferred one first."""
        return (self.exactly,) if self.exactly is not None else self.first_available


class Requests(meta.Struct, frozen=True):
    """The requests of a claim."""

    requests: tuple[Request, ...] = ()


class ClaimSpec(meta.Struct, frozen=True):
    """The part of a claim's spec that is explained."""

    devices: Requests = Requests()


class Claim(meta.Struct, frozen=True):
    """A claim with its requests."""

    metadata: meta.ObjectMeta
    spec: ClaimSpec = ClaimSpec()


class ClassSpec(meta.Struct, frozen=True):
    """The common properties of a class's devices."""

    selectors: tuple[Selector, ...] = ()


class DeviceClass(meta.Struct, frozen=True):
    """A DeviceClass."""

    metadata: meta.ObjectMeta
    spec: ClassSpec = ClassSpec()


class Waiting(meta.Struct, frozen=True):
    """The reason why a container does not run."""

    reason: str = ""
    message: str = ""


class ContainerState(meta.Struct, frozen=True):
    """The state of a container."""

    waiting: Waiting | None = None


class ContainerStatus(meta.Struct, frozen=True):
    """A container of a pod."""

    name: str = ""
    state: ContainerState = ContainerState()


class PodSpec(status.PodClaims, frozen=True):
    """The part of a pod's spec that is explained."""

    node_name: str = ""


class PodStatus(status.PodClaims, frozen=True):
    """The part of a pod's status that is explained."""

    phase: str = ""
    conditions: tuple[meta.Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(meta.Struct, frozen=True):
    """A pod."""

    metadata: meta.ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


def list_claims(pod: Pod) -> tuple[status.PodClaim, ...]:
    """Return the claims that a pod names, each with its ResourceClaim's name, also if a template made that."""
    made = {claim.name: claim.resource_claim_name for claim in pod.status.resource_claim_statuses}
    return tuple(
        msgspec.structs.replace(
            claim, resource_claim_name=claim.resource_claim_name or made.get(claim.name, "")
        )
        for claim in pod.spec.resource_claims
    )


class Rank(enum.IntEnum):
    """How far a request is from its devices."""

    FREE = 0
    IN_USE = 1
    TOO_FEW = 2
    NONE_MATCH = 3
    FAULT = 4
    NO_CLASS = 5


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The candidates for an alternative of a request.

    Attributes:
        request: the request's name.
        class_name: the name of the DeviceClass.
        has_class: whether the class exists.
        matching: the devices that match class and selectors, with those in use.
        fault: the reason why the selectors cannot be evaluated; empty if they can.
        is_class_at_fault: whether that selector is the class's.
        count: the number of devices requested.
        is_shared: whether devices in use count as free, as for an administrator's access.
        tolerations: the tolerated taints.
    """

    request: str
    class_name: str
    has_class: bool = True
    matching: tuple[tree.Device, ...] = ()
    fault: str = ""
    is_class_at_fault: bool = False
    count: int = 1
    is_shared: bool = False
    tolerations: tuple[Toleration, ...] = ()

    @property
    def free(self) -> tuple[tree.Device, ...]:
        """Return the matching devices that the scheduler could allocate now."""
        return tuple(
            device
            for device in self.matching
            if (self.is_shared or device.state in (tree.FREE, "Idle")) and self._is_tolerated(device)
        )

    def rank(self) -> Rank:
        """Return how far the alternative is from its devices."""
        if not self.has_class:
            return Rank.NO_CLASS
        if self.fault:
            return Rank.FAULT
        if not self.matching:
            return Rank.NONE_MATCH
        if len(self.matching) < self.count:
            return Rank.TOO_FEW
        return Rank.FREE if len(self.free) >= self.count else Rank.IN_USE

    def _is_tolerated(self, device: tree.Device) -> bool:
        return all(
            taint.effect == "None" or any(each.covers(taint) for each in self.tolerations)
            for taint in device.taints
        )


class World(msgspec.Struct, frozen=True, kw_only=True):
    """The object to explain, and the state around it.

    Attributes:
        kind: one of `objects.KINDS`.
        name: the object's name.
        now: the time by this machine's clock.
        cluster: the driver's fabrics, attachments, slices and claims.
        devices: the devices of the object, or the device itself.
        pod: the pod, for `pod`.
        claims: the claims with their requests, for `pod` and `claim`.
        choices: the candidates by name of a claim without an allocation.
        nodes: the relevant nodes by name; None for a missing one.
        daemons: the node daemon's pod by name of its node.
        has_daemons: whether any pod of the node daemon is seen.
        events: the Events about relevant objects, the newest first.
        unread: the state that could not be read.
    """

    kind: str
    name: str
    now: datetime.datetime
    cluster: status.Cluster
    devices: tuple[tree.Device, ...] = ()
    pod: Pod | None = None
    claims: tuple[Claim, ...] = ()
    choices: dict[str, tuple[Choice, ...]]
    nodes: dict[str, core.Node | None]
    daemons: dict[str, core.Pod]
    has_daemons: bool = True
    events: tuple[status.Event, ...] = ()
    unread: tuple[Unread, ...] = ()


def index_devices(cluster: status.Cluster) -> dict[tuple[str, str], Device]:
    """Return the published devices by pool and name."""
    return {
        (entry.spec.pool.name, device.name): device
        for entry in cluster.slices
        if entry.spec.driver == cluster.driver
        for device in entry.spec.devices
    }
