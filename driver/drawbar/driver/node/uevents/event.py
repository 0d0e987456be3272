"""The kernel's uevents and their wire format.

A uevent is one datagram, `ACTION@DEVPATH`, a NUL, then `KEY=VALUE` pairs each ended by a NUL
(lib/kobject_uevent.c). The order of `SEQNUM` is the order in which things happened.
"""

import dataclasses
from collections.abc import Mapping

_UDEV_MAGIC = b"libudev\0"  # messages of the udev daemon, which share the netlink family


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Uevent:
    """One event.

    Attributes:
        action: `add`, `remove`, `change`, `bind`, `unbind`, `move`, `online` or `offline`.
        devpath: the device's directory below the sysfs root, with a leading slash.
        subsystem: e.g. `pci`, `nvme`, `cxl`; empty if the kernel named none.
        properties: every KEY=VALUE pair, `ACTION`, `DEVPATH`, `SUBSYSTEM` and `SEQNUM` included.
        seqnum: the kernel's sequence number, 0 if there was none.
    """

    action: str
    devpath: str
    subsystem: str
    properties: Mapping[str, str]
    seqnum: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Overflow:
    """Events were lost: what is known about devices may be stale, so read everything again."""


def parse(datagram: bytes) -> Uevent | None:
    """The event in a datagram, or None if it holds none.

    Nothing that a sender can write raises: unknown keys are kept, broken pairs skipped, bytes that are
    not UTF-8 replaced.
    """
    if datagram.startswith(_UDEV_MAGIC):
        return None
    head, *pairs = datagram.decode("utf-8", "replace").split("\0")
    properties = {
        key: value for pair in pairs for key, found, value in [pair.partition("=")] if key and found
    }
    action, separator, devpath = head.partition("@")
    if not separator:
        return None
    return from_properties(properties, action=action, devpath=devpath)


def from_properties(properties: Mapping[str, str], *, action: str, devpath: str) -> Uevent | None:
    """An event from its pairs; None unless it names an action and a device."""
    action = properties.get("ACTION", action)
    devpath = properties.get("DEVPATH", devpath)
    if not action or not devpath.startswith("/"):
        return None
    seqnum = properties.get("SEQNUM", "")
    return Uevent(
        action=action,
        devpath=devpath,
        subsystem=properties.get("SUBSYSTEM", ""),
        properties=properties,
        seqnum=int(seqnum) if seqnum.isascii() and seqnum.isdecimal() else 0,
    )
