"""The status of a Fabric; pure."""

import datetime
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from drawbar.driver.api import fabrics, meta
from drawbar.driver.catalogue import reasons
from drawbar.driver.controller import hosts

GIVING_UP = (
    f"the annotation {fabrics.GIVE_UP_ANNOTATION} has no effect: it takes the value {fabrics.GIVE_UP}, on a Fabric that is being "
    "deleted. DeviceAttachments then go without a detach, and their devices stay connected; disconnect them at the fabric manager"
)
NO_FIELDS_LOST = "the API server keeps every field of the published devices"


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """The connection to the fabric manager, in the words of its condition."""

    connected: bool
    reason: str
    message: str


class View(msgspec.Struct, frozen=True, kw_only=True):
    """The input of a fabric's status.

    Attributes:
        connection: the connection to its manager.
        nodes: the map of its hosts to nodes; None before its first listing.
        devices: the number of listed devices.
        hosts: the number of listed hosts.
        troubles: a sentence for each trouble.
        unpublished: the reason why the API server does not take its pools; empty if it does, None before the first try.
        usable_nodes: the number of nodes that can be given devices; None before the first look.
        is_all_tainted: whether each published device has a taint that keeps further claims away.
        reserved: the number of its devices for immediate allocation.
        missing: whether some unlisted devices or hosts keep their earlier state.
        contradicted: whether the manager does not show the connections of some attached devices.
        exceeded: whether the manager lists or streams more than a limit allows.
        refused: the writes that the API server refuses, in its words; empty if it takes all.
        incompatible: the pairs of devices and hosts that are not tried now, since the manager refused them.
        not_offered: the number of its devices outside of the offer.
        reach_groups: the reachability groups, if some devices cannot go to all hosts.
    """

    connection: Connection
    nodes: hosts.NodeMap | None
    devices: int
    hosts: int
    troubles: tuple[str, ...] = ()
    unpublished: str | None = None
    usable_nodes: int | None = None
    is_all_tainted: bool = False
    reserved: int = 0
    missing: bool = False
    contradicted: bool = False
    exceeded: bool = False
    refused: str = ""
    incompatible: tuple[fabrics.IncompatiblePair, ...] = ()
    not_offered: int = 0
    reach_groups: tuple[fabrics.ReachGroup, ...] = ()


def status(
    fabric: fabrics.Fabric,
    view: View,
    *,
    dropped_fields: Collection[str],
    attached: int,
    now: datetime.datetime,
) -> fabrics.FabricStatus:
    """Return the wanted status; unchanged conditions keep their transition time."""
    statements = [
        (
            fabrics.CONNECTED,
            view.connection.connected,
            view.connection.reason,
            view.connection.message,
        ),
        _describe_degraded(view),
        _describe_dropped(dropped_fields),
        _writable(view.refused),
    ]
    if view.nodes is not None:
        statements.append(_describe_mapping(view.nodes, view.hosts))
    if fabric.deleting:
        statements.append(_describe_deletion(attached, given_up=fabric.given_up))
    elif view.nodes is not None and view.unpublished is not None:
        statements.append(_describe_publication(view, view.unpublished, dropped_fields))
    statements.append(_ready(statements, view))
    return fabrics.FabricStatus(
        conditions=tuple(
            meta.transition(
                fabric.status.conditions,
                kind,
                status=holds,
                reason=reason,
                message=message,
                now=meta.timestamp(now),
            )
            for kind, holds, reason, message in statements
        ),
        devices=view.devices,
        not_offered=view.not_offered,
        attached=attached,
        hosts=view.hosts,
        mapped_endpoint=fabric.status.mapped_endpoint if view.nodes is None else fabric.spec.endpoint,
        mapped_hosts=fabric.status.mapped_hosts
        if view.nodes is None
        else hosts.to_status(view.nodes.remembered),
        unclean=fabric.status.unclean,
        incompatible=view.incompatible,
        reach_groups=fabric.status.reach_groups if view.nodes is None else view.reach_groups,
    )


def document(fabric: fabrics.Fabric, desired: fabrics.FabricStatus) -> dict[str, Any]:
    """Return the object for a server-side apply to the status, without `unclean`, which is written at a detach."""
    return {
        "apiVersion": fabrics.API_VERSION,
        "kind": fabrics.KIND,
        "metadata": {"name": fabric.metadata.name, "uid": fabric.metadata.uid},
        "status": {
            "conditions": [msgspec.to_builtins(condition) for condition in desired.conditions],
            "devices": desired.devices,
            "attached": desired.attached,
            "hosts": desired.hosts,
            "notOffered": desired.not_offered,
            "incompatible": [msgspec.to_builtins(pair) for pair in desired.incompatible],
            "reachGroups": [msgspec.to_builtins(group) for group in desired.reach_groups],
            "mappedEndpoint": desired.mapped_endpoint,
            "mappedHosts": msgspec.to_builtins(desired.mapped_hosts),
        },
    }


def _describe_degraded(view: View) -> tuple[str, bool, str, str]:
    if not view.troubles and not view.connection.connected:
        message = "the fabric manager is not connected, so it is not known whether anything is at fault"
        return fabrics.DEGRADED, False, reasons.NOT_CONNECTED, message
    if not view.troubles:
        return fabrics.DEGRADED, False, reasons.HEALTHY, "nothing is known to be at fault"
    reason = reasons.TROUBLES
    if view.exceeded:
        reason = reasons.LIMIT_EXCEEDED
    elif view.missing:
        reason = reasons.DEVICES_MISSING
    elif view.contradicted:
        reason = reasons.CONNECTIONS_NOT_SHOWN
    return fabrics.DEGRADED, True, reason, "; ".join(view.troubles)[:1024]


def _describe_dropped(fields: Collection[str]) -> tuple[str, bool, str, str]:
    if not fields:
        return fabrics.FEATURES_DROPPED, False, reasons.ALL_KEPT, NO_FIELDS_LOST
    so = (
        "a device that should be tainted is withdrawn"
        if _only_taints(fields)
        else ("unattached devices are not published")
    )
    message = (
        f"the API server drops {', '.join(sorted(fields))} of ResourceSlices, so {so}; enable the feature gates "
        "DRADeviceBindingConditions and DRADeviceTaints, or use Kubernetes 1.36 or later"
    )
    return fabrics.FEATURES_DROPPED, True, reasons.FIELDS_DROPPED, message


def _only_taints(fields: Collection[str]) -> bool:
    """Return whether devices can be published nevertheless: their binding conditions are kept."""
    return set(fields) <= {"taints"}


def _writable(refused: str) -> tuple[str, bool, str, str]:
    if refused:
        return fabrics.WRITABLE, False, reasons.REFUSED, refused
    return fabrics.WRITABLE, True, reasons.ACCEPTED, "the API server refuses none of the controller's writes"


def _describe_mapping(nodes: hosts.NodeMap, count: int) -> tuple[str, bool, str, str]:
    if nodes.problems:
        return fabrics.HOSTS_MAPPED, False, reasons.HOSTS_NOT_MAPPED, "; ".join(nodes.problems)[:1024]
    if not nodes.host_of:
        message = f"none of the {count} hosts is a node of this cluster; map them in spec.hosts"
        return fabrics.HOSTS_MAPPED, False, reasons.HOSTS_NOT_MAPPED, message
    message = f"{len(nodes.host_of)} of {count} hosts are nodes"
    return fabrics.HOSTS_MAPPED, True, reasons.HOSTS_MAPPED, message


def _describe_publication(
    view: View, refused: str, dropped_fields: Collection[str]
) -> tuple[str, bool, str, str]:
    if refused:
        return fabrics.PUBLISHED, False, reasons.REFUSED, refused
    if not _only_taints(dropped_fields):
        return fabrics.PUBLISHED, False, reasons.FIELDS_DROPPED, "see the condition FeaturesDropped"
    message = (
        f"{max(view.devices - view.reserved - view.not_offered, 0)} devices are offered to the scheduler"
    )
    if view.reserved:
        message += f", {view.reserved} are reserved for immediate allocation"
    if view.not_offered:
        message += f", {view.not_offered} are beyond spec.offer"
    return fabrics.PUBLISHED, True, reasons.PUBLISHED, message


def _ready(statements: Sequence[tuple[str, bool, str, str]], view: View) -> tuple[str, bool, str, str]:
    """Return whether a claim can be given a device, with the reason of the first condition that prevents it."""
    by_kind = {statement[0]: statement for statement in statements}
    for kind in (fabrics.CONNECTED, fabrics.HOSTS_MAPPED, fabrics.PUBLISHED):
        if kind not in by_kind:
            return fabrics.READY, False, reasons.CONNECTING, f"the condition {kind} is not known yet"
        _, holds, reason, message = by_kind[kind]
        if not holds:
            return fabrics.READY, False, reason, message
    if view.usable_nodes == 0:
        message = "each node of the fabric is avoided, in maintenance, down or without a node daemon, so no claim is given a device"
        return fabrics.READY, False, reasons.NO_USABLE_NODE, message
    if view.is_all_tainted:
        message = "each published device has a taint that keeps further claims away"
        return fabrics.READY, False, reasons.NO_USABLE_DEVICE, message
    return fabrics.READY, True, reasons.READY, "claims can be given its devices"


def _describe_deletion(attached: int, *, given_up: bool) -> tuple[str, bool, str, str]:
    if given_up:
        message = (
            f"given up: while the manager is not reached, the DeviceAttachments ({attached} attached) go without a detach "
            "once their nodes have released the devices; connected devices stay connected at the fabric"
        )
        return fabrics.PUBLISHED, False, reasons.GIVEN_UP, message
    message = f"the Fabric is being deleted; it goes when its {attached} attached devices are back"
    return fabrics.PUBLISHED, False, reasons.DELETING, message
