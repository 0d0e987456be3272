"""What the fabrics have for claims: their free devices, ports and rules, from the mirrors; nothing here waits or writes."""

import datetime
from collections import Counter
from collections.abc import Iterator

from drawbar.driver.api import attachments, fabrics, slices
from drawbar.driver.controller import names, policies
from drawbar.driver.controller.allocation import matching
from drawbar.driver.controller.attachments import index
from drawbar.driver.controller.cluster import Cluster
from drawbar.driver.controller.fabrics import session
from drawbar.fabric import contract


def inventory(cluster: Cluster) -> matching.Inventory:
    """All fabrics that were listed once, with their devices as they are shown."""
    reached: dict[str, matching.Fabric] = {}
    found: dict[names.DeviceKey, matching.Device] = {}
    for opened in cluster.sessions:
        fabric = cluster.fabrics.get(opened.name)
        if fabric is None or fabric.deleting or not opened.listed:
            continue
        reached[opened.name] = fabric_of(fabric, opened, cluster.placed, cluster.clock())
        for pool, shown in _shown(cluster, opened.name):
            key = names.DeviceKey(fabric=opened.name, device=shown.name)
            told = opened.device(shown.name)
            free = told is not None and told.connection is None
            found[key] = matching.Device(
                key=key,
                pool=pool,
                shown=shown,
                free=free and cluster.attachments.get(key.attachment) is None,
            )
    return matching.Inventory(fabrics=reached, devices=found)


def _shown(cluster: Cluster, fabric: str) -> Iterator[tuple[str, slices.Device]]:
    for one in cluster.pools.of(fabric):
        for device in one.spec.devices:
            yield one.spec.pool.name, device


def fabric_of(
    fabric: fabrics.Fabric, opened: session.Session, placed: index.Index, now: datetime.datetime
) -> matching.Fabric:
    """What a fabric can do for the nodes that it reaches, but for those whose host is at fault."""
    policy = fabric.spec.policy
    blamed = opened.faults.blamed(datetime.timedelta(seconds=policy.probation_seconds), now)
    reached = {node: host for node, host in opened.nodes.host_of.items() if host not in blamed}
    told = {host.id: host for host in opened.hosts}
    coming = Counter(
        one.spec.node_name
        for one in placed.of(opened.name)
        if not one.holds(attachments.ATTACHED) and not _has_port(told.get(one.spec.host_id), one)
    )
    return matching.Fabric(
        name=opened.name,
        hosts=reached,
        ports={node: _left(told.get(host), coming[node]) for node, host in reached.items()},
        rules=policy.models,
        models=policies.models_by_node(placed.of(opened.name)) if policy.models else {},
    )


def _has_port(host: contract.Host | None, attachment: attachments.DeviceAttachment) -> bool:
    """Whether the fabric counts a port as the device's already."""
    return host is not None and any(port.device_id == attachment.spec.device_id for port in host.ports)


def _left(host: contract.Host | None, coming: int) -> int | None:
    """None for a fabric that tells no ports: it has no limit that we know of."""
    if host is None or not host.ports:
        return None
    return sum(port.state is contract.PortState.FREE for port in host.ports) - coming
