"""The nodes that can have each device of a fabric, as pools and node labels say it; pure.

Devices of the same reachability groups have pools of their own. Such a pool selects the nodes with a label for these
groups; exactly the nodes whose hosts reach the devices have it. A device without groups is offered to all nodes of its
fabric.

A pair that the fabric manager refused as incompatible says something only about these two. So the device moves to a
pool of the devices that the same hosts refused. The nodes of these hosts have a label that keeps them from it.

Invariants:

- a pool leaves out a host only if each of its devices was refused there, so refusals that a tenant provokes cost other
  tenants nothing but pairs that the manager refuses anyway;
- there are at most `REFUSING_POOLS_MAX` pools for refused devices, and none that another pool needs the room of; a
  device without such a pool stays in its pool, and a claim for a refused pair fails without a call to the manager;
- a node has at most `LABELS_MAX` labels for the groups of one fabric.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

import msgspec

from drawbar.driver import wording
from drawbar.driver.api import fabrics
from drawbar.driver.controller import names
from drawbar.fabric import contract

REFUSING_POOLS_MAX = 16
LABELS_MAX = 256
# The most sets of hosts that refused the same devices; each is a label of their nodes.
REFUSALS_LABELLED_MAX = 2 * REFUSING_POOLS_MAX
SHOWN_MAX = 64
NAMED_MAX = 5

Pair = tuple[str, str]
"""The names of a device and of a host."""


class NodeLabels(msgspec.Struct, frozen=True, kw_only=True):
    """The labels of a fabric's nodes.

    Attributes:
        reached: by node name, the labels of the groups that the node's host reaches.
        closed: by node name, the labels that keep it from devices that its host refused.
        crowded: nodes whose hosts reach more groups than a node can have labels.
    """

    reached: Mapping[str, frozenset[str]] = msgspec.field(default_factory=dict)
    closed: Mapping[str, frozenset[str]] = msgspec.field(default_factory=dict)
    crowded: tuple[str, ...] = ()


def refusing_hosts(
    pairs: Iterable[Pair], members: Mapping[str, Collection[str]] | None = None
) -> dict[str, frozenset[str]]:
    """Return, by the name of a device or composite, the hosts that it cannot go to now.

    Args:
        pairs: the refused pairs.
        members: by the name of a composite, its devices.
    """
    hosts: dict[str, set[str]] = {}
    for device, host in pairs:
        hosts.setdefault(device, set()).add(host)
    for composite, devices in (members or {}).items() if hosts else ():
        if of_members := set[str]().union(*(hosts.get(device, ()) for device in devices)):
            hosts[composite] = of_members
    return {device: frozenset(refused) for device, refused in hosts.items()}


def separate(
    refusing: Mapping[str, frozenset[str]],
    homes: Mapping[str, str],
    published: Collection[str],
    room: int,
) -> dict[str, frozenset[str]]:
    """Return the refused devices that get a pool of their own, each with the hosts that are kept from it.

    Args:
        refusing: the result of `refusing_hosts`.
        homes: by device name, the pool of similar devices that no host refused.
        published: the names of the present pools.
        room: the number of further pools that fit.
    """
    wanted = Counter(
        (homes[device], names.refusal_key(hosts)) for device, hosts in refusing.items() if device in homes
    )
    # The present pools come first, then those with the most devices.
    chosen = sorted(
        wanted, key=lambda pool: (f"{pool[0]}/refused.{pool[1]}" not in published, -wanted[pool], pool)
    )[: max(0, min(room, REFUSING_POOLS_MAX))]
    kept = frozenset(chosen)
    return {
        device: hosts
        for device, hosts in refusing.items()
        if device in homes and (homes[device], names.refusal_key(hosts)) in kept
    }


def node_labels(
    fabric: str,
    device_groups: Iterable[frozenset[str]],
    hosts: Iterable[contract.Host],
    node_of: Mapping[str, str],
    *,
    refusing: Collection[frozenset[str]] = (),
    published: Collection[str] = (),
) -> NodeLabels:
    """Return the labels of a fabric's nodes.

    Args:
        fabric: the fabric's name.
        device_groups: the reachability groups of each device or composite.
        hosts: the fabric's hosts.
        node_of: by host id, its node.
        refusing: by the name of each device or composite, the hosts that refused it.
        published: the names of the present pools.
    """
    sets = {groups for groups in device_groups if groups}
    labels = {groups: names.reach_label(fabric, names.reach_key(groups)) for groups in sets}
    by_group: dict[str, set[str]] = {}
    for groups, label in labels.items():
        for group in groups:
            by_group.setdefault(group, set()).add(label)
    every = sorted(labels.values())
    reached, crowded = {}, []
    for host in hosts:
        node = node_of.get(host.id)
        if node is None or not labels:
            continue
        own = sorted(set[str]().union(*(by_group.get(group, ()) for group in host.reach_groups)))
        own = own if host.reach_groups else every
        if len(own) > LABELS_MAX:
            crowded.append(node)
        if own:
            reached[node] = frozenset(own[:LABELS_MAX])
    return NodeLabels(
        reached=reached,
        closed=_index_closed_labels(fabric, node_of, refusing, published),
        crowded=tuple(sorted(crowded)),
    )


def _index_closed_labels(
    fabric: str,
    node_of: Mapping[str, str],
    refusing: Collection[frozenset[str]],
    published: Collection[str],
) -> dict[str, frozenset[str]]:
    """Return, by node name, the labels of the pools that it is kept from; of too many, first those of present pools."""
    counts = Counter(refusing)
    shown = {names.refusal_of(pool) for pool in published}
    ranked = sorted(
        counts, key=lambda hosts: (names.refusal_key(hosts) not in shown, -counts[hosts], sorted(hosts))
    )
    closed: dict[str, set[str]] = {}
    for hosts in ranked[:REFUSALS_LABELLED_MAX]:
        label = names.refusal_label(fabric, hosts)
        for node in (node_of[host] for host in hosts if host in node_of):
            closed.setdefault(node, set()).add(label)
    return {node: frozenset(labels) for node, labels in closed.items()}


def find_unreached(
    devices: Mapping[names.DeviceKey, frozenset[str]],
    hosts: Mapping[str, contract.Host],
    host_of: Mapping[str, str],
) -> dict[str, frozenset[names.DeviceKey]]:
    """Return, by node name, the devices that the node's host does not reach.

    Args:
        devices: the devices' reachability groups.
        hosts: the fabric's hosts by id.
        host_of: by node name, the id of its host.
    """
    grouped = {key: groups for key, groups in devices.items() if groups}
    by_groups: dict[frozenset[str], frozenset[names.DeviceKey]] = {}
    result = {}
    for node, host_id in host_of.items() if grouped else ():
        host = hosts.get(host_id)
        own = host.reach_groups if host is not None else frozenset[str]()
        if own not in by_groups:
            by_groups[own] = frozenset(
                key for key, groups in grouped.items() if not contract.reaches(groups, own)
            )
        if by_groups[own]:
            result[node] = by_groups[own]
    return result


def summarise(
    devices: Iterable[contract.Device], hosts: Iterable[contract.Host], node_of: Mapping[str, str]
) -> tuple[fabrics.ReachGroup, ...]:
    """Return the groups for the Fabric's status, sorted by their id, at most `SHOWN_MAX`."""
    numbers = Counter(group for device in devices for group in device.reach_groups)
    listed: dict[str, list[str]] = {group: [] for group in numbers}
    for host in hosts:
        for group in host.reach_groups & listed.keys():
            listed[group].append(host.id)
    return tuple(
        fabrics.ReachGroup(
            id=group,
            devices=numbers[group],
            hosts=len(listed[group]),
            nodes=sum(host in node_of for host in listed[group]),
        )
        for group in sorted(numbers)[:SHOWN_MAX]
    )


def find_stranded(devices: Iterable[contract.Device], hosts: Iterable[contract.Host]) -> str:
    """Return a sentence about the devices that no host reaches; empty if there are none."""
    hosts = tuple(hosts)
    if not hosts or any(not host.reach_groups for host in hosts):
        return ""
    of_hosts = frozenset[str]().union(*(host.reach_groups for host in hosts))
    alone = sorted(
        device.id for device in devices if device.reach_groups and of_hosts.isdisjoint(device.reach_groups)
    )
    if not alone:
        return ""
    return (
        f"no host reaches {wording.join_some(alone, NAMED_MAX)}: no host is in their reachability groups; look at the cables, "
        "fabrics and zones at the fabric manager"
    )


def describe_crowded(nodes: Collection[str]) -> str:
    """Return a sentence about nodes with too few labels; empty if there are none."""
    if not nodes:
        return ""
    return (
        f"{wording.join_some(sorted(nodes), NAMED_MAX)} reach more than {LABELS_MAX} reachability groups and are offered those of "
        f"{LABELS_MAX} alone; have the fabric manager show fewer groups"
    )
