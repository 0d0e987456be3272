"""The state of the cluster around one object, as values.

Source: core `v1` Pod, `resource.k8s.io/v1` ResourceClaim and DeviceClass.
"""

import datetime
from dataclasses import dataclass

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


class Alternative(meta.Struct, frozen=True):
    """Devices that a request wants, or would accept."""

    device_class_name: str = ""
    selectors: tuple[Selector, ...] = ()
    count: int = 1


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

    @property
    def claim_names(self) -> tuple[tuple[str, str], ...]:
        """Return the pod's names of its claims, each with the ResourceClaim's name, which is empty until there is one."""
        made = {claim.name: claim.resource_claim_name for claim in self.status.resource_claim_statuses}
        return tuple(
            (claim.name, claim.resource_claim_name or made.get(claim.name, ""))
            for claim in self.spec.resource_claims
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The candidates for a request.

    Attributes:
        request: the request's name.
        class_name: the name of the DeviceClass.
        has_class: whether the class exists.
        matching: the devices that match class and selectors, with those in use.
        fault: the reason why the selectors cannot be evaluated; empty if they can.
        count: the number of devices requested.
    """

    request: str
    class_name: str
    has_class: bool = True
    matching: tuple[tree.Device, ...] = ()
    fault: str = ""
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
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
