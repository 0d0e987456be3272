"""Facts about devices and claims for the observers' changes, read from the cluster."""

from collections.abc import Iterable

from drawbar.driver.controller import attachment_index, claims, names
from drawbar.driver.controller.cluster import Cluster
from drawbar.driver.controller.offers import table
from drawbar.fabric import contract


def list_known_devices(cluster: Cluster) -> tuple[names.DeviceKey, ...]:
    """Return the devices that are attached or have a claim, each once."""
    attached = map(attachment_index.device_key, cluster.attachments)
    return tuple(dict.fromkeys((*attached, *parts(cluster, cluster.allocated.devices()))))


def parts(cluster: Cluster, allocated: Iterable[names.DeviceKey]) -> tuple[names.DeviceKey, ...]:
    """Return the claims' devices, with the members in place of each composite."""
    return tuple(part for key in allocated for part in cluster.members(key) or (key,))


def has_composites(cluster: Cluster, fabric_name: str) -> bool:
    """Return whether a Fabric has composites, or has published some earlier."""
    fabric = cluster.fabrics.get(fabric_name)
    wanted = fabric is not None and table.groups(fabric.spec)
    return wanted or cluster.pools.has_composites(fabric_name)


def has_moved(cluster: Cluster, key: names.DeviceKey, *allocations: claims.ResultByDevice) -> bool:
    """Return whether the device was allocated from a pool other than its present one."""
    device, session = _device(cluster, key), cluster.sessions.get(key.fabric)
    if device is None or session is None:
        return False
    reach, is_refused = names.reach_key(device.reach_groups), session.pairs.has(key.device)
    home = names.pool(key.fabric, device.enclosure, reach=reach)
    return any(
        not (pool == home or pool.startswith(f"{home}/"))
        or names.reach_of(pool) != reach
        or bool(names.refusal_of(pool)) != is_refused
        for pool in {results[key].pool for results in allocations if key in results}
    )


def shows_owner(cluster: Cluster, key: names.DeviceKey) -> bool:
    """Return whether the pool depends on a device's owner: it is connected or reserved, or only some devices are offered."""
    session, device = cluster.sessions.get(key.fabric), _device(cluster, key)
    if session is None or device is None:
        return False
    return (
        device.connection is not None
        or not session.spec.offer.is_everything
        or session.spec.policy.immediate.holds(device.id, device.model)
    )


def _device(cluster: Cluster, key: names.DeviceKey) -> contract.Device | None:
    session = cluster.sessions.get(key.fabric)
    return session.device(key.device) if session is not None else None
