"""The identifiers of a fabric's devices, and which devices have one in common; pure.

A number that two devices have identifies neither of them. Each change of a device costs a few look-ups, so that an attach
need not compare all devices.
"""

from collections.abc import Iterable
from typing import Self

from drawbar.fabric import contract, witnesses

Key = tuple[witnesses.Kind, str]


class Numbers:
    """The identifiers of all devices; as large as these are."""

    def __init__(self) -> None:
        self._devices: dict[Key, set[str]] = {}
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
        """Note a device, or that it is different."""
        keys = _keys(device)
        if self._keys.get(device.id) == keys:
            return
        self.remove(device)
        self._keys[device.id] = keys
        if device.slice_of is not None:
            self._origins[device.id] = device.slice_of.origin_id
        for key in keys:
            self._devices.setdefault(key, set()).add(device.id)

    def remove(self, device: contract.Device) -> None:
        """Forget a device."""
        self._origins.pop(device.id, None)
        for key in self._keys.pop(device.id, ()):
            left = self._devices[key]
            left.discard(device.id)
            if not left:
                del self._devices[key]

    def shared(self, device: contract.Device) -> frozenset[Key]:
        """Return the identifiers that another device has, too. A slice and the device that it is carved from are one."""
        own = device.slice_of.origin_id if device.slice_of is not None else device.id
        return frozenset(
            key
            for key in _keys(device)
            if any(
                each not in (device.id, own) and self._origins.get(each) != device.id
                for each in self._devices.get(key, ())
            )
        )


def _keys(device: contract.Device) -> frozenset[Key]:
    serial = witnesses.normal(witnesses.Kind.SERIAL, device.serial) if device.serial else ""
    keys = {(each.kind, each.value) for each in device.identifiers}
    return frozenset(keys | {(witnesses.Kind.SERIAL, serial)} if serial else keys)
