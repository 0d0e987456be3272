"""The kinds of change on a node, and the watches of each reconciler of the node daemon; pure.

A reconciler that is woken observes everything again, so a needless wake-up costs time and nothing else.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from drawbar.driver.watching import watch

ALL = "all"
"""The key of the reconcilers that look at everything that they wait for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachmentChange:
    """An attachment on this node, of any driver, came, changed or went.

    Attributes:
        own: it is of this daemon's driver.
        card: it came or went, or the identification of its card is different (`local.residents.marks`).
    """

    name: str
    own: bool
    card: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareChange:
    """The kernel shows something new.

    Attributes:
        functions: addresses of those that changed, came or went.
        attachments: all of this daemon's driver.
    """

    functions: frozenset[str]
    attachments: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderChange:
    """A claim let go of a device.

    Attributes:
        pool: of the device.
        device: its name.
        attachments: of the device.
    """

    pool: str
    device: str
    attachments: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictChange:
    """The health of a device is another; `attachments` are those of the device, `local`: it lives in this node."""

    attachments: tuple[str, ...]
    local: bool


@dataclass(frozen=True, slots=True)
class CleaningChange:
    """The cleaning of a device that lives in this node has begun, failed, or ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighbourChange:
    """Another driver of this node offers something else; `attachments` are all of this daemon's driver."""

    attachments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DemandChange:
    """A device that lives in this node has become ready for a claim, or failed, or is not blamed any more."""


def _names(change: HardwareChange | HolderChange | VerdictChange | NeighbourChange) -> Iterable[str]:
    return change.attachments


def _all(_change: object) -> tuple[str]:
    return (ALL,)


ATTACHMENTS = (
    watch("own attachment: itself", AttachmentChange, lambda c: (c.name,), when=lambda c: c.own),
    # The card of an attachment is found among all cards.
    watch("hardware: every attachment", HardwareChange, _names),
    watch("neighbour: every attachment", NeighbourChange, _names),
    watch("holder: the device's attachment", HolderChange, _names),
    watch("verdict: the device's attachment", VerdictChange, _names),
)
"""Maps to names of attachments."""

HEALTH = (
    # A device that was not there may be the one that came.
    watch("hardware: health", HardwareChange, lambda c: (c.functions,)),
)
"""Maps to sets of the functions that changed; the devices that are not there are examined, too."""

WAITING_CLAIMS = (
    watch("own attachment: waiting claims", AttachmentChange, _all, when=lambda c: c.own),
    watch("hardware: waiting claims", HardwareChange, _all),
    watch("cleaning: waiting claims", CleaningChange, _all),
    watch("demand: waiting claims", DemandChange, _all),
)
"""Of the calls of Prepare that wait for a device."""

LOCAL_POOL = (
    # A device that came over the fabric of any driver is not the node's own. Most changes are about health and progress.
    watch("attachment: local pool", AttachmentChange, _all, when=lambda c: c.card),
    watch("hardware: local pool", HardwareChange, _all),
    watch("cleaning: local pool", CleaningChange, _all),
    watch("demand: local pool", DemandChange, _all),
    # A device that another driver offers is not offered as the node's own.
    watch("neighbour: local pool", NeighbourChange, _all),
    # A device of the node's own that is gone stays published while a claim holds it.
    watch("holder: local pool", HolderChange, _all),
    watch("verdict: local pool", VerdictChange, _all, when=lambda c: c.local),
)
"""Of the slices of the devices that live in this node."""

CLEANING = (
    watch("hardware: cleaning", HardwareChange, _all),
    watch("holder: cleaning", HolderChange, lambda c: ((c.pool, c.device),)),
)
"""Of the cleaning of these devices: maps to the pool and the name of the released device, or to all."""

DEMANDS = (
    watch("hardware: demands", HardwareChange, _all),
    watch("cleaning: demands", CleaningChange, _all),
)
"""Of the devices among them that are made ready for claims."""
