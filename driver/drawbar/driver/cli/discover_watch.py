"""Follows hot-plug events and tells what they change, one function at a time.

An event makes Drawbar read the one function it is about, never all of them; only after an overflow is
everything read again, and then the differences are told.
"""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path

from drawbar.driver.node import uevents
from drawbar.driver.node.discovery import reader
from drawbar.driver.node.inventory import index, model, pci


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What an event did to a function.

    Attributes:
        action: the event's action, or `add` or `remove` for what was found after an overflow.
        subsystem: whose event it was: `pci` for the function itself, `nvme`, `drm`, ... for its children.
        address: the function.
        function: the function as it is now; as it was known before, if it is gone.
        device: the last component of the device's path, e.g. `nvme0n1`.
    """

    action: str
    subsystem: str
    address: str
    function: model.PciFunction | None
    device: str


class Watch:
    """What is known of the functions, kept up to date by events."""

    def __init__(self, sysfs: Path, found: index.Inventory) -> None:
        self._sysfs = sysfs
        self._known = {function.address: function for function in found.functions}

    def take(self, event: uevents.Uevent | uevents.Overflow) -> list[Change]:
        """What this event changed; empty if it is about no PCI function."""
        if isinstance(event, uevents.Overflow):
            return self._reread()
        address = address_of(event.devpath)
        if address is None:
            return []
        return [
            Change(
                action=event.action,
                subsystem=event.subsystem,
                address=address,
                function=self._function(address, gone=event.action == "remove" and event.subsystem == "pci"),
                device=event.devpath.rpartition("/")[2],
            )
        ]

    def _function(self, address: str, *, gone: bool) -> model.PciFunction | None:
        """The function as it is, or as it was last seen.

        Events are heard after the fact: when the first child's removal is heard, the whole function may
        be gone already, and what was known of it is still needed for the events that follow.
        """
        if gone:
            return self._known.pop(address, None)
        now = reader.read_function(self._sysfs, address)
        if now is not None:
            self._known[address] = now
        return self._known.get(address)

    def _reread(self) -> list[Change]:
        before = self._known
        self._known = {function.address: function for function in reader.read(self._sysfs).functions}
        return [*_differences("remove", before, self._known), *_differences("add", self._known, before)]


def address_of(devpath: str) -> str | None:
    """The PCI function that a device is, or hangs below; None for others."""
    parts = reversed(devpath.split("/"))
    return next((part for part in parts if pci.ADDRESS.fullmatch(part)), None)


def _differences(
    action: str, these: Mapping[str, model.PciFunction], those: Mapping[str, model.PciFunction]
) -> list[Change]:
    return [
        Change(action=action, subsystem="pci", address=address, function=function, device=address)
        for address, function in these.items()
        if address not in those
    ]


async def follow(sysfs: Path, source: str, ready: Callable[[], None], tell: Callable[[Change], None]) -> None:
    """Calls `tell` for every change until the source ends; `ready` once no change can be missed any more.

    Raises:
        SysfsError: there is no readable tree.
        UeventError: the source cannot be opened, or broke.
    """
    async with uevents.listening(source) as subscription:
        watch = Watch(sysfs, reader.read(sysfs))
        ready()
        async for event in subscription.events():
            for change in watch.take(event):
                tell(change)
