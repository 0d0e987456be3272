"""What a Fabric is to name so that a device, an enclosure or a node is in maintenance or back from it; pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from drawbar.driver import errors
from drawbar.driver.api import fabrics
from drawbar.driver.cli.doctor import findings
from drawbar.driver.cli.status import observed, tree
from drawbar.driver.controller import names

ALL = "*"
"""In a Fabric's spec.maintenance: each of its devices."""


class Nothing(errors.DrawbarError):
    """There is nothing of that name, or it cannot be in maintenance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What is meant.

    Attributes:
        kind: `device`, `enclosure` or `node`.
        name: of the device (with or without its pool, or its id), `FABRIC/ENCLOSURE`, or of the node.
    """

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What one Fabric is to name more, or no longer.

    Attributes:
        fabric: its name.
        devices: names of devices as in its slices.
        nodes: names of nodes.
    """

    fabric: str
    devices: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A change of Fabrics, and the devices that it is about.

    Attributes:
        on: whether maintenance begins.
        changes: by fabric; empty where everything is as it should be.
        devices: those that are concerned.
    """

    on: bool
    changes: tuple[Change, ...]
    devices: tuple[tree.Device, ...]

    @property
    def in_use(self) -> tuple[tree.Device, ...]:
        """The devices that a claim has."""
        return tuple(device for device in self.devices if device.claims)


def plan(cluster: observed.Cluster, labels: frozenset[str], target: Target, *, on: bool) -> Plan:
    """Return the changes for a target.

    Args:
        cluster: everything that there is.
        labels: those of the node, where one is meant.
        target: what is meant.
        on: whether maintenance begins.

    Raises:
        Nothing: see there.
    """
    shown = tree.build(cluster)
    ours = {
        fabric.metadata.name: fabric for fabric in cluster.fabrics if fabric.spec.driver == cluster.driver
    }
    if target.kind == "node":
        devices = tuple(
            device for device in shown.devices if device.node == target.name and device.attachment
        )
        wanted = _reaching(ours.values(), labels, target.name, devices, on=on)
        listed = [Change(fabric=name, nodes=frozenset({target.name})) for name in wanted]
    else:
        placed = _placed(shown, target)
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
        if not on and change.devices and ALL in ours[change.fabric].spec.maintenance:
            raise Nothing(
                f"Fabric {change.fabric} has {ALL} in its spec.maintenance, so each of its devices is in maintenance; take that out first: "
                f"kubectl edit fabric {change.fabric}"
            )
    return Plan(
        on=on,
        changes=tuple(change for change in listed if _differs(ours[change.fabric], change, devices, on=on)),
        devices=devices,
    )


def _placed(shown: tree.Tree, target: Target) -> list[tuple[str, tree.Device]]:
    """Return the devices that are meant, each with its fabric."""
    placed = [
        (fabric.name, enclosure.name, device)
        for fabric in shown.fabrics
        for enclosure in fabric.enclosures
        for device in enclosure.devices
    ]
    if target.kind == "enclosure":
        chosen = [
            (fabric, device)
            for fabric, enclosure, device in placed
            if f"{fabric}/{enclosure}".rstrip("/") == target.name
        ]
        if not chosen:
            enclosures = sorted({f"{fabric}/{enclosure}".rstrip("/") for fabric, enclosure, _ in placed})
            raise Nothing(
                f"there is no enclosure {target.name} with a device; there is {findings.listed(enclosures) or 'none'}"
            )
        return chosen
    chosen = [
        (fabric, device)
        for fabric, _, device in placed
        if target.name in (device.name, f"{device.pool}/{device.name}", device.id)
    ]
    if len(chosen) > 1:
        names_of = findings.listed([f"{device.pool}/{device.name}" for _, device in chosen])
        raise Nothing(f"there are several devices {target.name}: give one of {names_of}")
    if not chosen:
        for local in shown.local:
            if any(target.name in (device.name, f"{device.pool}/{device.name}") for device in local.devices):
                raise Nothing(
                    f"{target.name} is a device of node {local.node} itself, of no fabric; use drawbar taint add with --pool and --device"
                )
        raise Nothing(f"no fabric has a device {target.name}; drawbar status --all lists them")
    return chosen


def _reaching(
    ours: Iterable[fabrics.Fabric],
    labels: frozenset[str],
    node: str,
    devices: Iterable[tree.Device],
    *,
    on: bool,
) -> list[str]:
    """Return the Fabrics that may attach a device to the node, or that name it."""
    attached = {device.pool.partition("/")[0] for device in devices}
    wanted = []
    for fabric in ours:
        name = fabric.metadata.name
        is_named = node in fabric.spec.maintenance_nodes
        is_host = names.node_label(name) in labels or name in attached
        is_host = is_host or any(mapping.node == node for mapping in fabric.spec.hosts)
        if is_named or (on and is_host):
            wanted.append(name)
    if on and not wanted:
        raise Nothing(
            f"no fabric reaches node {node}, so no device would go there; drawbar explain node/{node} has the reason"
        )
    return sorted(wanted)


def _differs(fabric: fabrics.Fabric, change: Change, devices: Iterable[tree.Device], *, on: bool) -> bool:
    named = _named(fabric, devices)
    if on:
        return bool(
            change.devices - named
            if ALL not in fabric.spec.maintenance and change.devices
            else change.nodes - set(fabric.spec.maintenance_nodes)
        )
    return bool(change.devices & named or change.nodes & set(fabric.spec.maintenance_nodes))


def _named(fabric: fabrics.Fabric, devices: Iterable[tree.Device]) -> set[str]:
    """Return the names of the devices that the Fabric names, be it by name or by id."""
    entries = set(fabric.spec.maintenance)
    return {device.name for device in devices if entries & {device.name, device.id}}


def spec(
    fabric: fabrics.Fabric, change: Change, devices: Iterable[tree.Device], *, on: bool
) -> dict[str, Any]:
    """Return what of the Fabric's spec is to be written."""
    of_change = [device for device in devices if device.name in change.devices]
    if on:
        entries = {*fabric.spec.maintenance, *(change.devices - _named(fabric, of_change))}
        nodes = {*fabric.spec.maintenance_nodes, *change.nodes}
    else:
        out = {entry for device in of_change for entry in (device.name, device.id)}
        entries = set(fabric.spec.maintenance) - out
        nodes = set(fabric.spec.maintenance_nodes) - change.nodes
    return {"maintenance": sorted(entries), "maintenanceNodes": sorted(nodes)}


def consequences(planned: Plan, target: Target) -> tuple[str, ...]:
    """Return what the change means, in sentences."""
    if not planned.on:
        kind = "devices go there again" if target.kind == "node" else "claims are given it again"
        return (f"{target}: {kind}",)
    users = sorted(
        {f"{claim.namespace}/{claim.name}" for device in planned.in_use for claim in device.claims}
    )
    pods = {
        (claim.namespace, pod) for device in planned.in_use for claim in device.claims for pod in claim.pods
    }
    count = len(planned.devices)
    if target.kind == "node":
        lines = [
            f"{target}: no further device of {findings.listed([c.fabric for c in planned.changes])} goes there"
        ]
        kept = "it" if count == 1 else "them"
        if count:
            lines.append(f"{count} attached there now: who has {kept} keeps {kept}")
    else:
        what = "it" if target.kind == "device" else f"any of its {count} devices"
        lines = [f"{target}: no further claim is given {what}"]
    if users:
        lines.append(
            f"in use by {findings.listed(users)} (pods: {len(pods)}), which keep what they have; drawbar taint evicts their pods"
        )
    return tuple(lines)


def holds(planned: Plan, cluster: observed.Cluster, key: str) -> bool:
    """Return whether slices show the change: each device tainted or withdrawn, or free of the taint.

    Args:
        planned: the change.
        cluster: as it is now.
        key: of the taint.
    """
    wanted = {(device.pool, device.name) for device in planned.devices}
    shown = {(device.pool, device.name): device for device in tree.build(cluster).devices if device.published}
    tainted = {place for place, device in shown.items() if any(taint.key == key for taint in device.taints)}
    if planned.on:
        return all(place in tainted or place not in shown for place in wanted)
    return not wanted & tainted
