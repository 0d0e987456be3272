"""The entries of Maintenances that begin or end the maintenance of a device, an enclosure or a node; pure.

The verb adds entries to one Maintenance of each Fabric, and removes them from all.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from drawbar.driver import errors
from drawbar.driver.api import drivers, fabrics, maintenances
from drawbar.driver.cli import objects
from drawbar.driver.cli.doctor import findings
from drawbar.driver.cli.status import building, observed, tree
from drawbar.driver.controller import names

REASON_HASH_CHARS = 10


class Nothing(errors.DrawbarError):
    """There is no object of that name, or it cannot be in maintenance."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """Entries to add to the Maintenances of one Fabric, or to remove from them.

    Attributes:
        fabric: the Fabric's name.
        devices: names of devices as in its slices.
        nodes: names of nodes.
    """

    fabric: str
    devices: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A change of Fabrics, and the devices concerned.

    Attributes:
        on: whether maintenance begins.
        changes: the changes by fabric; empty if there is nothing to change.
        reason: a text for people, if maintenance begins.
    """

    on: bool
    changes: tuple[Change, ...]
    devices: tuple[tree.Device, ...]
    driver: str = drivers.DEFAULT
    reason: str = ""

    @property
    def in_use(self) -> tuple[tree.Device, ...]:
        """Return the devices with a claim."""
        return tuple(device for device in self.devices if device.claims)


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """The write of one Maintenance.

    Attributes:
        name: the object's name.
        before: the present object; None to create it.
        spec: the new spec; None to delete the object, since it would have no entry.
    """

    name: str
    before: maintenances.Maintenance | None
    spec: maintenances.MaintenanceSpec | None


def plan(
    cluster: observed.Cluster, labels: frozenset[str], target: objects.Target, *, on: bool, reason: str = ""
) -> Plan:
    """Return the changes for a target.

    Args:
        cluster: the whole state of the cluster.
        labels: the labels of the target node, if it is a node.
        target: the device, enclosure or node.
        on: whether maintenance begins.
        reason: a text for people.

    Raises:
        Nothing: there is no such object, or it cannot be in maintenance.
    """
    scopes = {
        fabric.metadata.name: maintenances.unite(
            maintenances.select_by_fabric(cluster.maintenances, fabric.metadata.name, cluster.driver)
        )
        for fabric in cluster.fabrics
    }
    shown = building.build(cluster)
    ours = {
        fabric.metadata.name: fabric for fabric in cluster.fabrics if fabric.spec.driver == cluster.driver
    }
    if target.kind == "node":
        devices = tuple(
            device for device in shown.devices if device.node == target.name and device.attachment
        )
        wanted = _find_fabrics(ours.values(), scopes, labels, target.name, devices, on=on)
        listed = [Change(fabric=name, nodes=frozenset({target.name})) for name in wanted]
    else:
        placed = _find_devices(shown, target)
        devices = tuple(device for _, device in placed)
        by_fabric: dict[str, set[str]] = {}
        for fabric, device in placed:
            by_fabric.setdefault(fabric, set()).add(device.name)
        listed = [
            Change(fabric=fabric, devices=frozenset(members)) for fabric, members in sorted(by_fabric.items())
        ]
    for change in listed:
        if change.fabric not in ours:
            raise Nothing(f"there is no Fabric {change.fabric}; kubectl get fabrics lists them")
        if not on and change.devices and maintenances.ALL in scopes[change.fabric].devices:
            (first, *_) = (
                item.metadata.name
                for item in maintenances.select_by_fabric(cluster.maintenances, change.fabric, cluster.driver)
                if maintenances.ALL in item.spec.devices
            )
            raise Nothing(
                f"Maintenance {first} has {maintenances.ALL} in its spec.devices, so each device of Fabric {change.fabric} is in "
                f"maintenance; take that out first: kubectl edit maintenance {first}"
            )
    return Plan(
        on=on,
        changes=tuple(change for change in listed if _differs(scopes[change.fabric], change, devices, on=on)),
        devices=devices,
        driver=cluster.driver,
        reason=reason,
    )


def _find_devices(shown: tree.Tree, target: objects.Target) -> list[tuple[str, tree.Device]]:
    """Return the target's devices, each with its fabric.

    Raises:
        Nothing: there is no such device.
    """
    placed = [
        (fabric.name, enclosure.name, device)
        for fabric in shown.fabrics
        for enclosure in fabric.enclosures
        for device in enclosure.devices
    ]
    if target.kind in ("fabric", "enclosure"):
        chosen = [
            (fabric, device)
            for fabric, enclosure, device in placed
            if target.name == (fabric if target.kind == "fabric" else f"{fabric}/{enclosure}".rstrip("/"))
        ]
        if not chosen:
            others = sorted(
                {
                    fabric if target.kind == "fabric" else f"{fabric}/{enclosure}".rstrip("/")
                    for fabric, enclosure, _ in placed
                }
            )
            raise Nothing(
                f"there is no {target.kind} {target.name} with a device; there is {findings.join_names(others) or 'none'}"
            )
        return chosen
    if target.kind in ("claim", "pod"):
        chosen = [
            (fabric, device)
            for fabric, _, device in placed
            for claim in device.claims
            if claim.namespace == target.namespace
            and (claim.name == target.name if target.kind == "claim" else target.name in claim.pods)
        ]
        if not chosen:
            raise Nothing(f"no device of a fabric belongs to {target.kind} {target.namespace}/{target.name}")
        return chosen
    chosen = [
        (fabric, device)
        for fabric, _, device in placed
        if target.name in (device.name, f"{device.pool}/{device.name}", device.id, device.attachment)
    ]
    if len(chosen) > 1:
        names_of = findings.join_names([f"{device.pool}/{device.name}" for _, device in chosen])
        raise Nothing(f"there are several devices {target.name}: give one of {names_of}")
    if not chosen:
        for local in shown.local:
            if any(target.name in (device.name, f"{device.pool}/{device.name}") for device in local.devices):
                raise Nothing(
                    f"{target.name} is a device of node {local.node} itself, of no fabric; drawbar taint add NAME --pool {local.node} --device {target.name.rpartition('/')[2]} takes it out of service"
                )
        raise Nothing(f"no fabric has a device {target.name}; drawbar status --all lists them")
    return chosen


def _find_fabrics(
    ours: Iterable[fabrics.Fabric],
    scopes: Mapping[str, maintenances.Scope],
    labels: frozenset[str],
    node: str,
    devices: Iterable[tree.Device],
    *,
    on: bool,
) -> list[str]:
    """Return the Fabrics that may attach a device to the node, or that name the node."""
    attached = {device.pool.partition("/")[0] for device in devices}
    wanted = []
    for fabric in ours:
        name = fabric.metadata.name
        is_named = node in scopes[name].nodes
        is_host = names.node_label(name) in labels or name in attached
        is_host = is_host or any(mapping.node == node for mapping in fabric.spec.hosts)
        if is_named or (on and is_host):
            wanted.append(name)
    if on and not wanted:
        raise Nothing(
            f"no fabric reaches node {node}, so no device would go there; drawbar explain node/{node} has the reason"
        )
    return sorted(wanted)


def _differs(scope: maintenances.Scope, change: Change, devices: Iterable[tree.Device], *, on: bool) -> bool:
    named = {device.name for device in devices if scope.devices & {device.name, device.id}}
    if on:
        if change.devices and maintenances.ALL not in scope.devices:
            return bool(change.devices - named)
        return bool(change.nodes - scope.nodes)
    return bool(change.devices & named or change.nodes & scope.nodes)


def object_name(fabric: str, reason: str) -> str:
    """Return the name of the Maintenance for new entries: one for each Fabric and reason."""
    if not reason:
        return fabric
    return f"{fabric}-{hashlib.sha256(reason.encode()).hexdigest()[:REASON_HASH_CHARS]}"


def writes(planned: Plan, change: Change, listed: Iterable[maintenances.Maintenance]) -> tuple[Write, ...]:
    """Return the writes of a change.

    Args:
        planned: the plan of the change.
        change: the entries of one Fabric.
        listed: all present Maintenances.

    Raises:
        Nothing: the Maintenance for the new entries belongs to another Fabric.
    """
    by_name = {item.metadata.name: item for item in listed}
    of_fabric = maintenances.select_by_fabric(by_name.values(), change.fabric, planned.driver)
    of_change = [device for device in planned.devices if device.name in change.devices]
    if planned.on:
        return _additions(planned, change, of_change, of_fabric, by_name)
    out = {entry for device in of_change for entry in (device.name, device.id)}
    result = []
    for item in of_fabric:
        spec = msgspec.structs.replace(
            item.spec,
            devices=tuple(entry for entry in item.spec.devices if entry not in out),
            nodes=tuple(node for node in item.spec.nodes if node not in change.nodes),
        )
        if spec != item.spec:
            left = spec if spec.devices or spec.nodes else None
            result.append(Write(name=item.metadata.name, before=item, spec=left))
    return tuple(result)


def _additions(
    planned: Plan,
    change: Change,
    devices: Iterable[tree.Device],
    of_fabric: Iterable[maintenances.Maintenance],
    by_name: Mapping[str, maintenances.Maintenance],
) -> tuple[Write, ...]:
    scope = maintenances.unite(of_fabric)
    named = {device.name for device in devices if scope.has_device(device.name, device.id)}
    more, nodes = change.devices - named, change.nodes - scope.nodes
    if not more and not nodes:
        return ()
    name = object_name(change.fabric, planned.reason)
    before = by_name.get(name)
    spec = maintenances.MaintenanceSpec(fabric=change.fabric, driver=planned.driver, reason=planned.reason)
    if before is not None:
        if (before.spec.fabric, before.spec.driver) != (change.fabric, planned.driver):
            raise Nothing(
                f"the Maintenance {name} is of Fabric {before.spec.fabric}, so nothing can be added to it for Fabric "
                f"{change.fabric}; give it another name, or use --reason"
            )
        spec = before.spec
    spec = msgspec.structs.replace(
        spec, devices=tuple(sorted({*spec.devices, *more})), nodes=tuple(sorted({*spec.nodes, *nodes}))
    )
    return (Write(name=name, before=before, spec=spec),)


def document(write: Write) -> dict[str, Any]:
    """Return the object that a write creates, or its merge patch."""
    assert write.spec is not None
    if write.before is None:
        spec = msgspec.to_builtins(write.spec)
        return {
            "apiVersion": maintenances.API_VERSION,
            "kind": maintenances.KIND,
            "metadata": {"name": write.name},
            "spec": {key: value for key, value in spec.items() if value},
        }
    # The resource version keeps an entry that is written at the same moment.
    return {
        "metadata": {"resourceVersion": write.before.metadata.resource_version},
        "spec": {"devices": list(write.spec.devices), "nodes": list(write.spec.nodes)},
    }


def consequences(planned: Plan, target: objects.Target) -> tuple[str, ...]:
    """Return the consequences of the change, in sentences."""
    label = f"{target.kind} {target.name}"
    if not planned.on:
        kind = "devices go there again" if target.kind == "node" else "claims are given it again"
        return (f"{label}: {kind}",)
    users = sorted(
        {f"{claim.namespace}/{claim.name}" for device in planned.in_use for claim in device.claims}
    )
    pods = {
        (claim.namespace, pod) for device in planned.in_use for claim in device.claims for pod in claim.pods
    }
    count = len(planned.devices)
    if target.kind == "node":
        lines = [
            f"{label}: no further device of {findings.join_names([c.fabric for c in planned.changes])} goes there"
        ]
        kept = "it" if count == 1 else "them"
        if count:
            lines.append(f"{count} attached there now: who has {kept} keeps {kept}")
    else:
        what = "it" if target.kind in ("device", "attachment") else f"any of its {count} devices"
        lines = [f"{label}: no further claim is given {what}"]
    if users:
        lines.append(
            f"in use by {findings.join_names(users)} (pods: {len(pods)}), which keep what they have; drawbar taint evicts their pods"
        )
    return tuple(lines)


def holds(planned: Plan, cluster: observed.Cluster, key: str) -> bool:
    """Return whether slices show the change: each device tainted or withdrawn, or free of the taint.

    Args:
        planned: the change.
        cluster: the present state of the cluster.
        key: the key of the taint.
    """
    wanted = {(device.pool, device.name) for device in planned.devices}
    shown = {
        (device.pool, device.name): device for device in building.build(cluster).devices if device.published
    }
    tainted = {
        pool_and_name
        for pool_and_name, device in shown.items()
        if any(taint.key == key for taint in device.taints)
    }
    if planned.on:
        return all(pool_and_name in tainted or pool_and_name not in shown for pool_and_name in wanted)
    return not wanted & tainted
