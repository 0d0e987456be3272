"""Which reserved devices are free, and which nodes they can go to; looks only at what is known already."""

import datetime
from collections.abc import Iterator, Set
from dataclasses import replace

from drawbar.driver.api import claims, demands, fabrics, nodes
from drawbar.driver.controller import names, policies
from drawbar.driver.controller.allocation import inventory as fabric_inventory
from drawbar.driver.controller.allocation import matching
from drawbar.driver.controller.cluster import Cluster
from drawbar.driver.controller.fabrics import session
from drawbar.driver.controller.pools import devices
from drawbar.driver.controller.pools import plan as pool_plan
from drawbar.fabric import contract


def inventory(cluster: Cluster, offered: Set[names.DeviceKey]) -> matching.Inventory:
    """The reserved devices of all Fabrics.

    Args:
        cluster: where to look.
        offered: devices that the scheduler was shown a moment ago, so that it may be giving them to somebody.
    """
    found: dict[names.DeviceKey, matching.Device] = {}
    reached: dict[str, matching.Fabric] = {}
    for fabric, opened in _reserving(cluster):
        does = fabric_inventory.fabric_of(fabric, opened, cluster.placed, cluster.clock())
        # A classic claim is attached before it is allocated; this one would be bound to wait.
        reached[opened.name] = does if opened.silent_since is None else replace(does, hosts={})
        places = devices.homes(
            opened.name,
            opened.devices,
            cluster.pools.of(opened.name),
            devices.Rules(
                restricted=policies.restricted(fabric.spec.policy.models),
                given=pool_plan.given(cluster.placed.of(opened.name)),
            ),
        )
        resting = _resting(cluster, fabric, opened)
        for told in opened.devices:
            key = names.DeviceKey(fabric=opened.name, device=names.label(told.id))
            if fabric.spec.policy.immediate.holds(told.id, told.model):
                found[key] = matching.Device(
                    key=key,
                    pool=places[key.device],
                    shown=devices.published(cluster.driver, opened.name, told, ()),
                    free=key not in offered
                    and key.device not in resting
                    and _is_free(cluster, fabric, told, key),
                )
    return matching.Inventory(fabrics=reached, devices=found)


def shown(cluster: Cluster) -> frozenset[names.DeviceKey]:
    """Reserved devices that are published now: the scheduler had given them away, or is not yet told that they went."""
    return frozenset(
        names.DeviceKey(fabric=opened.name, device=device.name)
        for fabric, opened in _reserving(cluster)
        for reserved in (pool_plan.reserved(fabric.spec.policy.immediate, opened.devices),)
        for one in cluster.pools.of(opened.name)
        for device in one.spec.devices
        if device.name in reserved
    )


def places(
    cluster: Cluster, claim: demands.Claim, avoided: frozenset[str], found: matching.Inventory
) -> tuple[str, ...]:
    """The nodes that come into question, the best first.

    The one that the claim names; else those without taints, without failures of this claim, and with the fewest devices.
    """
    wish = claim.metadata.annotations.get(claims.NODE_ANNOTATION)
    reached = {name for one in found.fabrics.values() for name in one.hosts}
    known = {node.metadata.name: node for node in cluster.nodes if node.metadata.name in reached}
    usable = [node for name, node in known.items() if _is_usable(node) and wish in (None, "", name)]

    def merit(node: nodes.Node) -> tuple[bool, bool, int, str]:
        name = node.metadata.name
        return bool(node.spec.taints), name in avoided, sum(1 for _ in cluster.placed.on(name)), name

    return tuple(node.metadata.name for node in sorted(usable, key=merit))


def _is_usable(node: nodes.Node) -> bool:
    """Whether pods can come to the node."""
    return not node.out_of_service and not node.spec.unschedulable


def _reserving(cluster: Cluster) -> Iterator[tuple[fabrics.Fabric, session.Session]]:
    """The Fabrics with a reservation whose managers answer."""
    for opened in cluster.sessions:
        fabric = cluster.fabrics.get(opened.name)
        if fabric is None or fabric.deleting or not opened.listed:
            continue
        wanted = fabric.spec.policy.immediate
        if wanted.devices or wanted.models:
            yield fabric, opened


def _is_free(cluster: Cluster, fabric: fabrics.Fabric, told: contract.Device, key: names.DeviceKey) -> bool:
    return (
        told.connection is None
        and told.health is not contract.Health.CRITICAL
        and not {told.id, key.device, "*"} & set(fabric.spec.maintenance)
        and cluster.attachments.get(key.attachment) is None
        and not cluster.allocated.of(key)
    )


def _resting(cluster: Cluster, fabric: fabrics.Fabric, opened: session.Session) -> frozenset[str]:
    probation = datetime.timedelta(seconds=fabric.spec.policy.probation_seconds)
    now = cluster.clock()
    return opened.faults.resting(probation, opened.faults.blamed(probation, now), now)
