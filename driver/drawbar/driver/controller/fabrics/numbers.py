"""The identifiers of a fabric's devices, and the devices with one in common; pure.

A number of two devices identifies neither of them. A memory chunk and its source are one device; two chunks of a source
are two, for each is a card of its own. Part numbers belong to a model, and are left out. Each change of a device costs
a few look-ups, so that an attach need not compare all devices.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import Self

from drawbar.fabric import contract, witnesses

Key = tuple[witnesses.Kind, str]


class Numbers:
    """The identifiers of all devices; as large as these are."""

    def __init__(self) -> None:
        self._devices: dict[Key, dict[str, None]] = {}
        self._keys: dict[str, frozenset[Key]] = {}
        self._origins: dict[str, str] = {}

    @classmethod
    def from_devices(cls, devices: Iterable[contract.Device]) -> Self:
        """Return the identifiers of these devices."""
        made = cls()
        for device in devices:
            made.put(device)
        return made

    def put(self, device: contract.Device) -> None:
        """Note a new or changed device."""
        keys = _keys(device)
        if self._keys.get(device.id) == keys:
            return
        self.remove(device)
        self._keys[device.id] = keys
        if device.slice_of is not None:
            self._origins[device.id] = device.slice_of.origin_id
        for key in keys:
            self._devices.setdefault(key, {})[device.id] = None

    def remove(self, device: contract.Device) -> None:
        """Forget a device."""
        self._origins.pop(device.id, None)
        for key in self._keys.pop(device.id, ()):
            left = self._devices[key]
            left.pop(device.id, None)
            if not left:
                del self._devices[key]

    def find_shared(self, device: contract.Device) -> frozenset[Key]:
        """Return the identifiers that another device also has."""
        origin = device.slice_of.origin_id if device.slice_of is not None else None
        return frozenset(key for key in _keys(device) if self._has_another(key, device.id, origin))

    def holders(self) -> Mapping[Key, tuple[str, ...]]:
        """Return the identifiers of several devices, each with the ids of these devices."""
        named = (
            (key, tuple(each for each in ids if self._has_another(key, each, self._origins.get(each))))
            for key, ids in self._devices.items()
            if len(ids) > 1
        )
        return {key: ids for key, ids in named if ids}

    def _has_another(self, key: Key, device_id: str, origin_id: str | None) -> bool:
        return any(
            each not in (device_id, origin_id) and self._origins.get(each) != device_id
            for each in self._devices.get(key, ())
        )


def remove_identifiers(device: contract.Device, keys: Collection[Key]) -> contract.Device:
    """Return the device without these identifiers."""
    if not keys:
        return device
    kept = tuple(each for each in device.identifiers if (each.kind, each.value) not in keys)
    serial = None if (witnesses.Kind.SERIAL, _serial(device)) in keys else device.serial
    return dataclasses.replace(device, identifiers=kept, serial=serial)


def _keys(device: contract.Device) -> frozenset[Key]:
    serial = _serial(device)
    kinds = (each for each in device.identifiers if each.kind is not witnesses.Kind.PART_NUMBER)
    keys = {(each.kind, each.value) for each in kinds}
    return frozenset(keys | {(witnesses.Kind.SERIAL, serial)} if serial else keys)


def _serial(device: contract.Device) -> str:
    return witnesses.normal(witnesses.Kind.SERIAL, device.serial) if device.serial else ""
