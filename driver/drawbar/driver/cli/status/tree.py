"""The tree of fabric, enclosure, device, node, claim and pod of a cluster, as values; pure.

`building` makes it, and `narrowing` takes a part of it.
"""

import msgspec

FREE, ALLOCATED, IN_USE, HELD = "Free", "Allocated", "InUse", "Held"
BEGIN = "the controller, to begin the attach"
"""The wait of a device in the state `Allocated`."""
# The states in which a device waits for nothing.
SETTLED = frozenset({FREE, IN_USE, HELD, "Ready", "Idle"})


class Node(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The base of the tree's entries; its JSON has each field."""


class Taint(Node, frozen=True):
    """A taint of the device.

    Attributes:
        rule: the DeviceTaintRule that sets it; empty if the driver publishes it.
    """

    key: str
    value: str
    effect: str
    rule: str = ""

    @property
    def label(self) -> str:
        """Return the key, with the value if it has one."""
        return f"{self.key}={self.value}" if self.value else self.key

    @property
    def text(self) -> str:
        """Return key, value and effect, as kubectl prints them."""
        return f"{self.label}:{self.effect}"


class Problem(Node, frozen=True):
    """A trouble and the next step; `severity` as in `doctor.findings.Severity`."""

    severity: str
    message: str
    remedy: str


class Claim(Node, frozen=True):
    """A claim.

    Attributes:
        state: `Pending`, `Allocated` or `Reserved`.
        since: the time of its allocation, else of its creation; RFC 3339.
        node: the node of its devices, if there is one.
        pods: the names of the pods that it is reserved for.
        waits_for: the missing step before its pods can start; empty if none is missing.
        severity: `warning` for a claim that waits for a device, `note` if no pod uses it, empty for an allocated one.
    """

    namespace: str
    name: str
    state: str
    since: str
    node: str
    pods: tuple[str, ...]
    waits_for: str
    severity: str = ""


class Device(Node, frozen=True):
    """A device.

    Attributes:
        pool: the pool of its slice.
        name: the name in its slice.
        id: the fabric manager's id; empty if unknown.
        device_class: see `fabric.contract.DeviceClass`.
        state: the phase of its DeviceAttachment; else `Free`, `Allocated` (the controller has not begun), `InUse` (a
            device of a node's own pool), or `Held` (ready, by hand).
        since: the known begin of that state; RFC 3339.
        waits_for: the next necessary step; empty if there is none.
        overdue_at: the time after which the wait is too long, RFC 3339; empty if the device waits for nothing.
        refusal: the reason of the condition `Attached` or `Detached` while the fabric manager refuses; empty without one.
        release_blocker: the reason why its node does not release it, as in the condition `Released`; empty without one.
        node: the present or future node.
        host: the fabric's present or future host.
        port: the host's port.
        slot: the slot behind that port.
        health: `Healthy`, `Unhealthy` or `Unknown` as the device's node reports it; empty without a report.
        health_message: the reason, in one sentence.
        attachment: the name of its DeviceAttachment.
        published: whether a slice has it.
        composite: the name of the composite that it is attached for. A composite itself has the state and attachment of
            the member with the least progress.
        attributes: the attributes of the fabric's adapter, by name.
    """

    pool: str
    name: str
    id: str = ""
    device_class: str = ""
    model: str = ""
    serial: str = ""
    state: str = FREE
    since: str = ""
    waits_for: str = ""
    overdue_at: str = ""
    refusal: str = ""
    release_blocker: str = ""
    node: str = ""
    host: str = ""
    port: str = ""
    slot: str = ""
    health: str = ""
    health_message: str = ""
    attachment: str = ""
    published: bool = False
    composite: str = ""
    attributes: dict[str, str | int | bool] = {}
    taints: tuple[Taint, ...] = ()
    claims: tuple[Claim, ...] = ()


class ReachGroup(Node, frozen=True):
    """Devices and their reachable hosts; see `api.fabrics.ReachGroup`."""

    id: str
    devices: int
    hosts: int
    nodes: int


class RefusedPair(Node, frozen=True):
    """A device and a host that the fabric manager refused to connect."""

    device: str
    host: str
    message: str
    refused_at: str


class Enclosure(Node, frozen=True):
    """The devices of one chassis; the name is empty for a fabric's only, unnamed chassis."""

    name: str
    devices: tuple[Device, ...]


class Fabric(Node, frozen=True):
    """A fabric.

    Attributes:
        state: `Connected` if each condition is good; else the reason why it is not connected, `NotPublished`,
            `NotWritable`, `Degraded`, `Blocked` if each device failed or is tainted, `Deleting`, or `Missing` if only
            its devices name it.
        since: the begin of the state; RFC 3339.
        message: the message of the state, unless it is `Connected`.
        problems: a finding for each bad condition.
        not_offered: the number of the manager's devices outside of `spec.offer`.
        reach_groups: the reachability groups of a fabric that cannot connect every device with every host.
        incompatible: the pairs that are not tried now.
    """

    name: str
    state: str
    since: str
    message: str
    enclosures: tuple[Enclosure, ...]
    not_offered: int = 0
    reach_groups: tuple[ReachGroup, ...] = ()
    incompatible: tuple[RefusedPair, ...] = ()
    problems: tuple[Problem, ...] = ()


class LeftOut(Node, frozen=True):
    """A device that the node leaves to another component, and the reason."""

    name: str
    reason: str


class Local(Node, frozen=True):
    """The devices of a node's own pools, and the devices that it leaves to other components."""

    node: str
    devices: tuple[Device, ...]
    left_out: tuple[LeftOut, ...] = ()


class Tree(Node, frozen=True):
    """The requested part of the cluster.

    Attributes:
        fabrics: the fabrics, by name.
        local: the nodes' own devices, by name of the node.
        claims: the claims requested by name, and the claims without a device.
        unread: one sentence for each reading that failed.
    """

    fabrics: tuple[Fabric, ...]
    local: tuple[Local, ...]
    claims: tuple[Claim, ...]
    unread: tuple[str, ...]

    @property
    def devices(self) -> tuple[Device, ...]:
        """Return all devices."""
        of_fabrics = (
            device
            for fabric in self.fabrics
            for enclosure in fabric.enclosures
            for device in enclosure.devices
        )
        return (*of_fabrics, *(device for local in self.local for device in local.devices))
