"""What was read of the cluster to explain one object of it, as values.

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
    """Devices that a request wants, or would take."""

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
        """What would do for it, the preferred one first."""
        return (self.exactly,) if self.exactly is not None else self.first_available


class Requests(meta.Struct, frozen=True):
    """The requests of a claim."""

    requests: tuple[Request, ...] = ()


class ClaimSpec(meta.Struct, frozen=True):
    """The part of a claim's spec that is explained."""

    devices: Requests = Requests()


class Claim(meta.Struct, frozen=True):
    """A claim with what it asks for."""

    metadata: meta.ObjectMeta
    spec: ClaimSpec = ClaimSpec()


class ClassSpec(meta.Struct, frozen=True):
    """What devices of a class have in common."""

    selectors: tuple[Selector, ...] = ()


class DeviceClass(meta.Struct, frozen=True):
    """A DeviceClass."""

    metadata: meta.ObjectMeta
    spec: ClassSpec = ClassSpec()


class Waiting(meta.Struct, frozen=True):
    """Why a container does not run."""

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
        """Its names of the claims, each with that of its ResourceClaim, which is empty until there is one."""
        made = {claim.name: claim.resource_claim_name for claim in self.status.resource_claim_statuses}
        return tuple(
            (claim.name, claim.resource_claim_name or made.get(claim.name, ""))
            for claim in self.spec.resource_claims
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which devices a request could have had.

    Attributes:
        request: its name.
        class_name: of the DeviceClass.
        has_class: whether there is such a class.
        matching: the devices that meet class and selectors, taken ones included.
        fault: why the selectors cannot be evaluated; empty if they can.
        count: how many the request wants.
    """

    request: str
    class_name: str
    has_class: bool = True
    matching: tuple[tree.Device, ...] = ()
    fault: str = ""
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What is explained, and what was read for it.

    Attributes:
        kind: one of `objects.KINDS`.
        name: of the object.
        now: by the clock of this machine.
        cluster: fabrics, attachments, slices and claims of the driver.
        devices: those that the object is, or has.
        pod: for `pod`.
        claims: for `pod` and `claim`, by name what they ask for.
        choices: by name of a claim without an allocation.
        nodes: those that matter, by name; None for one that does not exist.
        daemons: by name of a node its pod of the node daemon.
        has_daemons: whether any pod of the node daemon is seen.
        events: about the objects that matter, the newest first.
        unread: what could not be read.
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


def shown(cluster: status.Cluster) -> dict[tuple[str, str], Device]:
    """Return the published devices by pool and name."""
    return {
        (entry.spec.pool.name, device.name): device
        for entry in cluster.slices
        if entry.spec.driver == cluster.driver
        for device in entry.spec.devices
    }
