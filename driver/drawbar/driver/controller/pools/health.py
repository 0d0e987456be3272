"""A fabric manager's reports of its devices, damped against frequent changes; pure.

An unhealthy device shows as such at once. It shows as healthy again only after a while, which grows with each change
([damping]). The same holds for a silent manager.
"""

import dataclasses
from collections.abc import Iterable

from drawbar.driver.controller import damping
from drawbar.fabric import contract

_CRITICAL, _WARNING, _SILENT = contract.Health.CRITICAL, contract.Health.WARNING, "silent"


class Health:
    """The health of one fabric and its devices. Bounded by the devices that are unhealthy, or were recently."""

    def __init__(self) -> None:
        # By a device's id, and its level of health.
        self._damper: damping.Damper[tuple[str, str]] = damping.Damper()

    def damp_devices(self, devices: Iterable[contract.Device], now: float) -> tuple[contract.Device, ...]:
        """Return the devices with their damped health."""
        listed = tuple(devices)
        ids = {device.id for device in listed}
        self._damper.retain(lambda key: key[1] == _SILENT or key[0] in ids)
        return tuple(self._damp_device(device, now) for device in listed)

    def measure_silence(self, silent_seconds: float, grace_seconds: float, now: float) -> float:
        """Return the seconds of the manager's silence; at least the grace while it is back too recently."""
        is_silent = 0 < silent_seconds >= grace_seconds
        if self._damper.look(("", _SILENT), good=not is_silent, now=now):
            return silent_seconds
        return max(silent_seconds, grace_seconds, damping.LOOK_AGAIN_SECONDS)

    def compute_delay(self, now: float) -> float | None:
        """Return the seconds until a recovery is shown, or None if none is held back."""
        held = self._damper.find_held_back(now).values()
        return max(damping.LOOK_AGAIN_SECONDS, min(held)) if held else None

    def _damp_device(self, device: contract.Device, now: float) -> contract.Device:
        for worst, good in (
            (_CRITICAL, device.health is not _CRITICAL),
            (_WARNING, device.health not in (_CRITICAL, _WARNING)),
        ):
            if good and (device.id, worst.value) not in self._damper:
                continue
            if not self._damper.look((device.id, worst.value), good=good, now=now):
                return device if device.health is worst else dataclasses.replace(device, health=worst)
        return device
