"""Maintenances: devices without further claims, and nodes without further devices.

A Maintenance is an object of its own and no field of the Fabric, so that a technician needs no right on Fabrics. All
Maintenances of a Fabric apply together.

Source: `deploy/drawbar/definitions/maintenances.yaml`.
"""

from collections.abc import Iterable

import msgspec

from drawbar.driver.api import drivers, meta

API_VERSION = "drawbar.dev/v1alpha1"
KIND = "Maintenance"

# In `devices`: each device of the Fabric.
ALL = "*"
# The condition type of the status.
APPLIED = "Applied"


class MaintenanceSpec(meta.Struct, frozen=True):
    """The devices and nodes of one Fabric that are in maintenance.

    Attributes:
        devices: ids or DRA names of devices, or `ALL`.
        nodes: names of Nodes.
        reason: a text for people, such as the number of a ticket.
    """

    fabric: str
    driver: str = drivers.DEFAULT
    devices: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    reason: str = ""


class MaintenanceStatus(meta.Struct, frozen=True):
    """The controller's report."""

    conditions: tuple[meta.Condition, ...] = ()


class Maintenance(meta.Struct, frozen=True):
    """A piece of maintenance."""

    metadata: meta.ObjectMeta
    spec: MaintenanceSpec
    status: MaintenanceStatus = MaintenanceStatus()


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """All entries of the Maintenances of one Fabric."""

    devices: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()

    def has_device(self, *names: str) -> bool:
        """Return whether a device is in maintenance that has these names and ids."""
        return ALL in self.devices or not self.devices.isdisjoint(names)


def unite(listed: Iterable[Maintenance]) -> Scope:
    """Return the entries of all these Maintenances; one that is being deleted holds until it is gone."""
    specs = [item.spec for item in listed]
    return Scope(
        devices=frozenset(entry for spec in specs for entry in spec.devices),
        nodes=frozenset(entry for spec in specs for entry in spec.nodes),
    )


def select_by_fabric(listed: Iterable[Maintenance], fabric: str, driver: str) -> tuple[Maintenance, ...]:
    """Return the Maintenances of one Fabric of a driver."""
    return tuple(item for item in listed if (item.spec.fabric, item.spec.driver) == (fabric, driver))
