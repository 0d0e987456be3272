"""The fabrics' devices for claims, from the mirrors and the sessions; nothing here waits or writes."""

import datetime
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set

import msgspec

from drawbar.driver.api import attachments, fabrics
from drawbar.driver.controller import names, policies, reach
from drawbar.driver.controller.allocation import matching
from drawbar.driver.controller.cluster import Cluster
from drawbar.driver.controller.fabrics import session
from drawbar.driver.controller.offers import group, memory_chunk
from drawbar.driver.controller.pools import desired, devices, fabric_state
from drawbar.fabric import contract


def find_listed(cluster: Cluster) -> Iterator[tuple[fabrics.Fabric, session.Session]]:
    """Yield the Fabrics whose devices were listed at least once, with their sessions."""
    for opened in cluster.sessions:
        fabric = cluster.fabrics.get(opened.name)
        if fabric is not None and not fabric.deleting and opened.has_listing:
            yield fabric, opened


def fabric_of(cluster: Cluster, fabric: fabrics.Fabric, opened: session.Session) -> matching.Fabric:
    """Return the fabric's offer to its nodes, without nodes in maintenance or with a faulty host."""
    policy, placed, now = fabric.spec.policy, cluster.placed, cluster.clock()
    closed_nodes = cluster.maintenance.scope(opened.name).nodes
    probation = datetime.timedelta(seconds=policy.probation_seconds)
    blamed = opened.faults.find_faulty_hosts(probation, now)
    host_of = {
        node: host
        for node, host in opened.nodes.host_of.items()
        if host not in blamed and node not in closed_nodes
    }
    hosts = {host.id: host for host in opened.hosts}
    coming = Counter(
        attachment.spec.node_name
        for attachment in placed.in_fabric(opened.name)
        if not attachment.holds(attachments.ATTACHED)
        and not _has_port(hosts.get(attachment.spec.host_id), attachment)
    )
    return matching.Fabric(
        name=opened.name,
        hosts=host_of,
        ports={node: _free_ports(hosts.get(host), coming[node]) for node, host in host_of.items()},
        rules=policy.models,
        models=policies.models_by_node(placed.in_fabric(opened.name)) if policy.models else {},
        refused=_impossible(cluster, opened, host_of, hosts, opened.pairs.ends(probation, now)),
    )


def _impossible(
    cluster: Cluster,
    opened: session.Session,
    host_of: Mapping[str, str],
    hosts: Mapping[str, contract.Host],
    refused: Iterable[reach.Pair],
) -> dict[str, frozenset[names.DeviceKey]]:
    """Return, by node name, the devices and composites that its host does not reach, or that were refused there."""
    refused = tuple(refused)
    if not refused and not any(device.reach_groups for device in opened.devices):
        return {}
    arranged = cluster.composites(opened.name)
    members = arranged.members if arranged is not None else {}
    devices = {names.label(device.id): device for device in opened.devices}
    groups = {
        names.DeviceKey(fabric=opened.name, device=name): device.reach_groups
        for name, device in devices.items()
    }
    groups |= {
        names.DeviceKey(fabric=opened.name, device=name): group.compose(name, listed).reach_groups
        for name, of_composite in members.items()
        if (listed := [devices[member] for member in of_composite if member in devices])
    }
    unreached = reach.find_unreached(groups, hosts, host_of)
    by_host: dict[str, set[names.DeviceKey]] = {}
    for name, refusing in reach.refusing_hosts(refused, members).items():
        for host in refusing:
            by_host.setdefault(host, set()).add(names.DeviceKey(fabric=opened.name, device=name))
    return {
        node: unreached.get(node, frozenset()) | by_host.get(host, set())
        for node, host in host_of.items()
        if node in unreached or host in by_host
    }


def _has_port(host: contract.Host | None, attachment: attachments.DeviceAttachment) -> bool:
    """Return whether the fabric already assigns a port to the device."""
    return host is not None and any(port.device_id == attachment.spec.device_id for port in host.ports)


def _free_ports(host: contract.Host | None, coming: int) -> int | None:
    """Return the number of free ports, or None for a fabric that reports no ports: it sets no limit."""
    if host is None or not host.ports:
        return None
    return sum(port.state is contract.PortState.FREE for port in host.ports) - coming


def _list_reserving(cluster: Cluster) -> Iterator[tuple[fabrics.Fabric, session.Session]]:
    """Yield the Fabrics with a reservation whose managers have answered."""
    for fabric, opened in find_listed(cluster):
        reservation = fabric.spec.policy.immediate
        if reservation.devices or reservation.models:
            yield fabric, opened


def find_published_reserved(cluster: Cluster) -> frozenset[names.DeviceKey]:
    """Return the reserved devices that are still published: the scheduler has given them, or they will be withdrawn."""
    return frozenset(
        names.DeviceKey(fabric=opened.name, device=device.name)
        for fabric, opened in _list_reserving(cluster)
        for keys in (desired.find_reserved(fabric.spec.policy.immediate, opened.devices),)
        for published in cluster.pools.in_fabric(opened.name)
        for device in published.spec.devices
        if device.name in keys
    )


def find_reserved(cluster: Cluster, offered: Set[names.DeviceKey]) -> matching.Inventory:
    """Return the reserved devices of all Fabrics.

    Args:
        cluster: the observed cluster.
        offered: devices that were published a moment ago, so that the scheduler may be giving them to a claim.
    """
    now = cluster.clock()
    reserved_devices: dict[names.DeviceKey, matching.Device] = {}
    reached: dict[str, matching.Fabric] = {}
    for fabric, opened in _list_reserving(cluster):
        does = fabric_of(cluster, fabric, opened)
        # A classic claim is attached before it is allocated; a claim with this condition would wait.
        reached[opened.name] = (
            does if opened.manager.silent_since is None else msgspec.structs.replace(does, hosts={})
        )
        pools = devices.homes(
            opened.name,
            {names.label(device.id): device for device in opened.devices},
            cluster.pools.in_fabric(opened.name),
            devices.Rules(
                restricted=policies.find_restricted_models(fabric.spec.policy.models),
                attached_pools=fabric_state.find_attached_pools(cluster.placed.in_fabric(opened.name)),
            ),
        )
        probation = datetime.timedelta(seconds=fabric.spec.policy.probation_seconds)
        resting = opened.faults.find_resting(probation, now)
        carved, beyond = memory_chunk.find_carved(opened.devices), cluster.pools.find_not_offered(opened.name)
        for device in opened.devices:
            key = names.DeviceKey(fabric=opened.name, device=names.label(device.id))
            if fabric.spec.policy.immediate.holds(device.id, device.model):
                reserved_devices[key] = matching.Device(
                    key=key,
                    pool=pools[key.device],
                    shown=devices.build_device(cluster.driver, opened.name, device, ()),
                    free=key not in offered
                    and key.device not in resting
                    and key.device not in carved
                    and key.device not in beyond
                    and _is_free(cluster, fabric, device, key),
                )
    return matching.Inventory(fabrics=reached, devices=reserved_devices)


def _is_free(cluster: Cluster, fabric: fabrics.Fabric, device: contract.Device, key: names.DeviceKey) -> bool:
    return (
        device.connection is None
        and device.health is not contract.Health.CRITICAL
        and not cluster.maintenance.scope(fabric.metadata.name).has_device(device.id, key.device)
        and cluster.attachments.get(key.attachment) is None
        and not cluster.allocated.find_claims(key)
    )
