"""The claims that hold devices on this node: the recorded claims, and those in preparation."""

import itertools
from collections.abc import Iterable

from drawbar.driver.node.preparation import records, store


class Holders:
    """The holders of devices.

    Attributes:
        store: the record of the prepared claims.
    """

    def __init__(self, recorded: store.Store) -> None:
        self.store = recorded
        # By claim in preparation: pool and name of its devices; empty until all of them are ready.
        self._underway: dict[str, set[tuple[str, str]]] = {}

    def find(self, pool: str, device: str) -> str | None:
        """Return the UID of the claim that holds the device or is about to get it, or None."""
        claim = records.holder(self.store.claims, pool, device)
        if claim is not None:
            return claim.uid
        return next((uid for uid, devices in self._underway.items() if (pool, device) in devices), None)

    def list_devices(self) -> frozenset[tuple[str, str]]:
        """Return pool and name of each held device; the pool is empty in an older record."""
        recorded = (
            (device.pool, device.device)
            for claim in self.store.claims.values()
            for device in claim.devices
            if device.holds(device.pool, device.device)
        )
        return frozenset(itertools.chain(recorded, *self._underway.values()))

    def begin(self, uid: str) -> None:
        """Note that the preparation of a claim begins."""
        self._underway[uid] = set()

    def give(self, uid: str, devices: Iterable[tuple[str, str]]) -> None:
        """Note that a claim in preparation is about to get these devices."""
        self._underway[uid].update(devices)

    def end(self, uid: str) -> set[tuple[str, str]]:
        """Note that the preparation of a claim ended; return its expected devices that no claim holds."""
        return {device for device in self._underway.pop(uid) if self.find(*device) is None}
