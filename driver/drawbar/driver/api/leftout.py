"""The devices of a node that its daemon leaves to others, published with its pool; pure.

They are in an annotation of the node's first ResourceSlice, for the verbs that read the cluster. They are also in a
file next to the record of prepared claims, for the daemon's next start and for commands on the node.
"""

import enum
from collections.abc import Iterable

import msgspec

from drawbar.driver.api import meta

ANNOTATION = "drawbar.dev/left-out"
DEVICES_MAX = 64
"""The most devices in the annotation; the metric counts all."""
REASON_CHARS = 240


class Why(enum.StrEnum):
    """The other user of the device."""

    DRIVER = "driver"
    """Another driver's ResourceSlice offers it."""
    PLUGIN = "plugin"
    """A device plugin has registered a resource for cards of this kind."""
    PROCESS = "process"
    """A process of the host has a file of it open."""


class LeftOut(meta.Struct, frozen=True):
    """A device that is not offered.

    Attributes:
        device: its would-be name.
        why: one of `Why`; another text from a newer daemon.
        reason: in one sentence.
    """

    device: str
    why: str = ""
    reason: str = ""


def encode(listed: Iterable[LeftOut], most: int = DEVICES_MAX) -> str:
    """Return the annotation, or with another `most` the file; empty without devices."""
    cut = [
        msgspec.structs.replace(each, reason=each.reason[:REASON_CHARS])
        for each in sorted(listed, key=lambda each: each.device)[:most]
    ]
    return msgspec.json.encode(cut).decode() if cut else ""


def decode(text: str | bytes, most: int = DEVICES_MAX) -> tuple[LeftOut, ...]:
    """Return the devices of an annotation or a file; none where the text is not ours."""
    try:
        return msgspec.json.decode(text, type=tuple[LeftOut, ...])[:most] if text else ()
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return ()
