"""Fabrics: one fabric manager each, and the policy for its devices.

Source: `deploy/drawbar/definitions/fabrics.yaml`.
"""

import enum
from typing import TYPE_CHECKING

import msgspec

from drawbar.driver.api import attachments, drivers, meta
from drawbar.fabric import budget
from drawbar.fabric.classes import OFFERED_CLASSES

API_VERSION = "drawbar.dev/v1alpha1"
KIND = "Fabric"

# A Fabric stays until its last device is detached, since the detach needs it.
FINALIZER = "drawbar.dev/attachments"
# An administrator's statement that the manager never comes back; the value names the consequence.
GIVE_UP_ANNOTATION = "drawbar.dev/give-up"
GIVE_UP = "devices-stay-connected"

# Condition types of the status.
CONNECTED = "Connected"
DEGRADED = "Degraded"
FEATURES_DROPPED = "FeaturesDropped"
HOSTS_MAPPED = "HostsMapped"
PUBLISHED = "Published"
READY = "Ready"
WRITABLE = "Writable"
BAD_IF_TRUE = frozenset({DEGRADED, FEATURES_DROPPED})
"""The other conditions are bad unless they are True."""
CONDITIONS = frozenset({CONNECTED, DEGRADED, FEATURES_DROPPED, HOSTS_MAPPED, PUBLISHED, READY, WRITABLE})


class HostMapping(meta.Struct, frozen=True):
    """A fabric's host and its node."""

    host: str
    node: str


class ModelRule(meta.Struct, frozen=True):
    """The rule for one model on one node.

    Attributes:
        model: from the fabric manager.
        max_per_node: the most devices of it; None for any number.
        min_per_node: the number that stays attached to a node after use, idle or not.
        not_with: models that may not be on the same node.
    """

    model: str
    max_per_node: int | None = None
    min_per_node: int = 0
    not_with: tuple[str, ...] = ()


class Reservation(meta.Struct, frozen=True):
    """Devices that are reserved for immediate allocation, and not offered to the scheduler.

    Attributes:
        devices: their ids.
        models: all of these models.
    """

    devices: tuple[str, ...] = ()
    models: tuple[str, ...] = ()

    def holds(self, device_id: str, model: str) -> bool:
        """Return whether a device is reserved."""
        return device_id in self.devices or model in self.models


class _CleanPolicy(meta.Struct, frozen=True):
    """The treatment of traces of a device's users, by class of device; None is the default of the class."""

    def way(self, device_class: str) -> attachments.Clean | None:
        """Return it for one of `drawbar.fabric.classes.DeviceClass`."""
        way: attachments.Clean | None = getattr(self, device_class.replace("-", "_"), None)
        return way


if TYPE_CHECKING:
    CleanPolicy = _CleanPolicy
else:
    CleanPolicy = msgspec.defstruct(
        "CleanPolicy",
        [(listed.replace("-", "_"), attachments.Clean | None, None) for listed in OFFERED_CLASSES],
        bases=(_CleanPolicy,),
        frozen=True,
    )


class Limits(meta.Struct, frozen=True):
    """The most that the fabric manager may list and stream, and that is published of it.

    Attributes:
        devices, hosts, listing_mebibytes, watch_events_per_second: see `drawbar.fabric.budget.Limits`.
        slices: ResourceSlices with devices; one for each pool.
    """

    devices: int = 4096
    hosts: int = 1024
    slices: int = 64
    listing_mebibytes: int = 24
    watch_events_per_second: int = 256

    @property
    def budget(self) -> budget.Limits:
        """Return the limits for the fabric's adapter."""
        return budget.Limits(
            devices=self.devices,
            hosts=self.hosts,
            listing_mebibytes=self.listing_mebibytes,
            watch_events_per_second=self.watch_events_per_second,
        )


class Policy(meta.Struct, frozen=True):
    """How patient to be; times in seconds.

    Attributes:
        probation_seconds: after the first failure of a device; twice as long after each further one that another namespace's
            claim had; also how long a device is not attached to a host after its manager refused that.
        keep_attached_seconds: how long a device without a claim stays on its node for the next one.
        models: the models and numbers that one node may have.
        immediate: the devices reserved for immediate allocation.
        unreachable_grace_seconds: how long the manager may be silent before its free devices are not given out.
        node_gone_seconds: how long a Node object has to be gone until its devices are detached without its report.
        clean: the treatment of traces of a device's users.
        evictions_per_second: how many pods may be evicted because of one taint; where the API server has that field.
        limits: the most that the manager may list and stream.
        attaches_per_namespace_per_minute: attaches that begin for the claims of one namespace.
        erases_per_device_per_day: erasures of a device; beyond them it rests, since each wears it.
    """

    attach_timeout_seconds: int = 180
    probation_seconds: int = 300
    keep_attached_seconds: int = 0
    unreachable_grace_seconds: int = 60
    node_gone_seconds: int = 60
    evictions_per_second: int = 10
    attaches_per_namespace_per_minute: int = 120
    erases_per_device_per_day: int = 50
    models: tuple[ModelRule, ...] = ()
    immediate: Reservation = Reservation()
    clean: CleanPolicy = CleanPolicy()
    limits: Limits = Limits()


class Composite(meta.Struct, frozen=True):
    """Devices that are allocated together as one DRA device.

    Attributes:
        name: of the DRA device.
        devices: their ids.
    """

    name: str
    devices: tuple[str, ...]


class Within(enum.StrEnum):
    """The common place of all devices of a composite."""

    ENCLOSURE = "enclosure"
    SWITCH = "switch"
    """That of one enclosure."""


class Leftover(enum.StrEnum):
    """The use of a rule's remaining devices that make no complete composite."""

    WITHHELD = "withheld"
    ALONE = "alone"


class CompositePart(meta.Struct, frozen=True):
    """The devices of one model in each composite of a rule.

    Attributes:
        device_class: one of `drawbar.fabric.classes.DeviceClass`; empty for any.
        model: from the fabric manager; empty for any, but only one in each composite.
        count: their number.
    """

    device_class: str = msgspec.field(default="", name="class")
    model: str = ""
    count: int = 1

    def takes(self, device_class: str, model: str) -> bool:
        """Return whether a device of that class and model may be one of them."""
        return self.device_class in ("", device_class) and self.model in ("", model)


class CompositeRule(meta.Struct, frozen=True):
    """Composites that are formed from the available devices.

    Attributes:
        name: the prefix of their names.
        within: the common place of their devices.
        devices: the parts of each of them.
        leftover: the use of the remaining devices.
    """

    name: str
    within: Within
    devices: tuple[CompositePart, ...]
    leftover: Leftover = Leftover.WITHHELD


class SecretReference(meta.Struct, frozen=True):
    """A Secret in the controller's own namespace."""

    name: str


class Tls(meta.Struct, frozen=True):
    """How the fabric manager's certificate is judged, where the adapter speaks TLS.

    Attributes:
        verify: it must be valid; without, anybody may be the manager.
        server_name: the name in the certificate, where it is not that of the endpoint.
    """

    verify: bool = True
    server_name: str = ""


class Offer(meta.Struct, frozen=True):
    """The part of the manager's devices that this cluster offers: those that meet every filter that is set.

    Attributes:
        enclosures: the chassis that hold them.
        models: as the fabric manager reports them.
        classes: each one of `drawbar.fabric.classes.DeviceClass`.
        devices: their ids.
        max_per_model: the most devices of each model; None for any number.
    """

    enclosures: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    max_per_model: int | None = None

    @property
    def is_everything(self) -> bool:
        """Return whether no filter is set."""
        return self == Offer()

    def has_device(self, device_id: str, device_class: str, model: str, enclosure: str) -> bool:
        """Return whether a device meets every filter except the number."""
        return all(
            not wanted or value in wanted
            for wanted, value in (
                (self.devices, device_id),
                (self.classes, device_class),
                (self.models, model),
                (self.enclosures, enclosure),
            )
        )


class FabricSpec(meta.Struct, frozen=True):
    """How to reach the fabric manager and how its hosts map to nodes.

    `controller.hosts` decides which node a host is. `driver` names the driver that serves the Fabric.

    Attributes:
        trust_host_names: no machine can write the name of its host, so a host is the node of its name.
    """

    adapter: str
    endpoint: str
    driver: str = drivers.DEFAULT
    parameters: dict[str, str] = {}
    credentials_secret_ref: SecretReference | None = None
    tls: Tls = Tls()
    timeout_seconds: int = 30
    hosts: tuple[HostMapping, ...] = ()
    node_label: str = ""
    node_annotation: str = ""
    trust_host_names: bool = False
    offer: Offer = Offer()
    policy: Policy = Policy()
    composites: tuple[Composite, ...] = ()
    composite_rules: tuple[CompositeRule, ...] = ()


class IncompatiblePair(meta.Struct, frozen=True):
    """A device that the fabric manager refused to attach to a host as incompatible.

    Attributes:
        device: its name in the pool.
        host: the fabric's id of the host.
        message: the manager's words.
        refused_at: the time of the refusal.
    """

    device: str
    host: str
    message: str = ""
    refused_at: str = ""


class ReachGroup(meta.Struct, frozen=True):
    """A reachability group: its devices can go to its hosts.

    Attributes:
        id: from the fabric manager's adapter.
        devices: the number of its devices.
        hosts: the number of its hosts.
        nodes: the number of its hosts that are nodes of this cluster.
    """

    id: str
    devices: int = 0
    hosts: int = 0
    nodes: int = 0


class FabricStatus(meta.Struct, frozen=True):
    """The controller's report.

    Attributes:
        mapped_endpoint: the endpoint of the fabric manager of `mapped_hosts`.
        mapped_hosts: the node of each host; a mapping stays, also when another controller takes over.
        unclean: ids of devices that left a node without its report and may hold a user's data to erase; the next node
            does that first.
        incompatible: pairs that are not attempted now.
        not_offered: the number of devices beyond the offer.
        reach_groups: the reachability of devices and hosts, in a fabric where it differs.
    """

    conditions: tuple[meta.Condition, ...] = ()
    devices: int = 0
    not_offered: int = 0
    attached: int = 0
    hosts: int = 0
    mapped_endpoint: str = ""
    mapped_hosts: tuple[HostMapping, ...] = ()
    unclean: tuple[str, ...] = ()
    incompatible: tuple[IncompatiblePair, ...] = ()
    reach_groups: tuple[ReachGroup, ...] = ()


class Fabric(meta.Struct, frozen=True):
    """One fabric manager."""

    metadata: meta.ObjectMeta
    spec: FabricSpec
    status: FabricStatus = FabricStatus()

    @property
    def deleting(self) -> bool:
        """Return whether the Fabric is being deleted; it remains until nothing is attached through it."""
        return self.metadata.deletion_timestamp is not None

    @property
    def given_up(self) -> bool:
        """Return whether attachments are released without a detach while the manager is unreachable."""
        return self.deleting and self.metadata.annotations.get(GIVE_UP_ANNOTATION) == GIVE_UP
