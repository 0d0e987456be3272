"""The devices that one driver publishes, and their selection by labels."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from drawbar.driver.api import healthpolicies, slices
from drawbar.driver.slices import encoding


class Device(NamedTuple):
    """A device of the cluster."""

    driver: str
    pool: str
    name: str

    def __str__(self) -> str:
        return "/".join(self)


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """A device as its driver publishes it.

    Attributes:
        attributes: those with a text, by name; the driver's own without its domain.
        tainted: whether the driver itself keeps claims away from it.
    """

    attributes: Mapping[str, str]
    tainted: bool


class Inventory(msgspec.Struct, frozen=True):
    """The devices that one driver publishes, in the newest generation of each pool."""

    driver: str
    devices: Mapping[Device, Published]
    _indexes: dict[str | None, dict[str, list[Device]]] = msgspec.field(default_factory=dict)

    def select(self, policy: healthpolicies.HealthPolicy, labels: Mapping[str, str]) -> Device | None:
        """Return the one device that the labels name, or None for none, or more than one."""
        by, value = policy.spec.device, labels.get(policy.spec.device.label)
        if not value:
            return None
        pool = labels.get(by.pool_label) if by.pool_label is not None else None
        if by.pool_label is not None and pool is None:
            return None
        candidates = [
            device
            for device in self._index_by(by.attribute).get(value, ())
            if (pool is None or device.pool == pool) and self.in_fabric(policy, device)
        ]
        return candidates[0] if len(candidates) == 1 else None

    def in_fabric(self, policy: healthpolicies.HealthPolicy, device: Device) -> bool:
        """Return whether the policy is about a published device."""
        published = self.devices.get(device)
        wanted = policy.spec.fabric
        return published is not None and (wanted is None or published.attributes.get("fabric") == wanted)

    def _index_by(self, attribute: str | None) -> Mapping[str, list[Device]]:
        index = self._indexes.get(attribute)
        if index is None:
            index = self._indexes[attribute] = {}
            for device, published in self.devices.items():
                name = device.name if attribute is None else published.attributes.get(attribute)
                if name is not None:
                    index.setdefault(name, []).append(device)
        return index


def list_published(driver: str, listed: Iterable[slices.ResourceSlice]) -> Inventory:
    """Return the devices that a driver publishes."""
    newest = slices.newest(item for item in listed if item.spec.driver == driver)
    tainted = {
        (item.spec.pool.name, entry.device)
        for item in newest
        for entry in item.spec.taints
        if encoding.keeps_away([entry.taint])
    }
    devices = {
        Device(driver, item.spec.pool.name, device.name): Published(
            attributes={
                name.removeprefix(f"{driver}/"): value.string
                for name, value in device.attributes.items()
                if value.string is not None
            },
            tainted=encoding.keeps_away(device.taints) or (item.spec.pool.name, device.name) in tainted,
        )
        for item in newest
        for device in item.spec.devices
    }
    return Inventory(driver, devices)
