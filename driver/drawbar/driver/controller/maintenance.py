"""The Maintenances by their Fabric, and the status of each; the judgement is pure."""

import datetime
from collections.abc import Collection
from typing import Any

import msgspec

from drawbar.driver import wording
from drawbar.driver.api import maintenances, meta
from drawbar.driver.catalogue import reasons

NAMED_IN_MESSAGE = 5


class Index:
    """The Maintenances of this driver by the name of their Fabric."""

    def __init__(self) -> None:
        self._by_fabric: dict[str, dict[str, maintenances.Maintenance]] = {}
        self._scopes: dict[str, maintenances.Scope] = {}
        self._published: dict[str, maintenances.Scope] = {}

    def change(self, old: maintenances.Maintenance | None, new: maintenances.Maintenance | None) -> None:
        """Take in a change of a Maintenance."""
        for item in (old, new):
            if item is None:
                continue
            of_fabric = self._by_fabric.setdefault(item.spec.fabric, {})
            if item is new:
                of_fabric[item.metadata.name] = item
            else:
                of_fabric.pop(item.metadata.name, None)
            if not of_fabric:
                del self._by_fabric[item.spec.fabric]
            self._scopes.pop(item.spec.fabric, None)

    def scope(self, fabric: str) -> maintenances.Scope:
        """Return the devices and nodes of the Fabric that are in maintenance."""
        if fabric not in self._by_fabric:
            return maintenances.Scope()
        if fabric not in self._scopes:
            self._scopes[fabric] = maintenances.unite(self._by_fabric[fabric].values())
        return self._scopes[fabric]

    def publish(self, fabric: str, scope: maintenances.Scope) -> None:
        """Note that the Fabric's pools show these entries."""
        if scope == maintenances.Scope():
            self._published.pop(fabric, None)
        else:
            self._published[fabric] = scope

    def is_published(self, item: maintenances.Maintenance) -> bool:
        """Return whether its Fabric's pools show the Maintenance."""
        scope = self._published.get(item.spec.fabric, maintenances.Scope())
        return scope.devices.issuperset(item.spec.devices) and scope.nodes.issuperset(item.spec.nodes)

    def names(self, fabric: str) -> tuple[str, ...]:
        """Return the names of the Fabric's Maintenances."""
        return tuple(self._by_fabric.get(fabric, ()))


class ListedNames(msgspec.Struct, frozen=True, kw_only=True):
    """The names that entries of a Fabric's Maintenances may have.

    Attributes:
        devices: ids and DRA names.
        nodes: the Nodes that are hosts of the Fabric.
    """

    devices: Collection[str]
    nodes: Collection[str]


def status(
    item: maintenances.Maintenance,
    listed: ListedNames | None,
    *,
    has_fabric: bool,
    now: datetime.datetime,
) -> maintenances.MaintenanceStatus:
    """Return the wanted status; an unchanged condition keeps its transition time.

    Args:
        item: the Maintenance.
        listed: the possible names in its entries; None before the Fabric's first listing.
        has_fabric: whether there is a Fabric of that name.
        now: the time of day.
    """
    holds, reason, message = judge(item.spec, listed, has_fabric=has_fabric)
    condition = meta.transition(
        item.status.conditions,
        maintenances.APPLIED,
        status=holds,
        reason=reason,
        message=message,
        now=meta.timestamp(now),
    )
    return maintenances.MaintenanceStatus(conditions=(condition,))


def judge(
    spec: maintenances.MaintenanceSpec, listed: ListedNames | None, *, has_fabric: bool
) -> tuple[bool, str, str]:
    """Return whether an entry of the spec is in effect, with the reason and the message of the condition."""
    fabric = f"Fabric {spec.fabric}"
    if not has_fabric:
        return (
            False,
            reasons.NO_FABRIC,
            f"there is no {fabric} of driver {spec.driver}; kubectl get fabrics lists them",
        )
    if listed is None:
        return False, reasons.FABRIC_NOT_LISTED, f"{fabric} was not listed yet; see its condition Connected"
    missing = [
        f"device {entry}" for entry in spec.devices if entry not in {maintenances.ALL, *listed.devices}
    ]
    missing += [f"node {entry}" for entry in spec.nodes if entry not in listed.nodes]
    count = len(spec.devices) + len(spec.nodes)
    if not missing:
        return (
            True,
            reasons.APPLIED,
            f"all {count} entries are in maintenance" if count > 1 else "it is in maintenance",
        )
    named = wording.join_some(missing, NAMED_IN_MESSAGE)
    remedy = (
        "correct the names (drawbar status --all lists devices), or wait until the fabric manager lists them"
    )
    if len(missing) == count:
        return False, reasons.NOTHING_MATCHES, f"{fabric} has no {named}; {remedy}"
    return (
        True,
        reasons.PARTLY_APPLIED,
        f"{fabric} has no {named}, and the other entries are in maintenance; {remedy}",
    )


def document(item: maintenances.Maintenance, desired: maintenances.MaintenanceStatus) -> dict[str, Any]:
    """Return the object for a server-side apply to the status."""
    return {
        "apiVersion": maintenances.API_VERSION,
        "kind": maintenances.KIND,
        "metadata": {"name": item.metadata.name, "uid": item.metadata.uid},
        "status": {"conditions": [msgspec.to_builtins(condition) for condition in desired.conditions]},
    }
