"""The kinds of change on a node, and the watches of each reconciler of the node daemon; pure.

A reconciler observes everything again when it is woken, so a needless wake-up costs only time.
"""

from collections.abc import Iterable

import msgspec

from drawbar.driver.watching import watch

ALL = "all"
"""The key of the reconcilers that look at all their objects."""


class AttachmentChange(msgspec.Struct, frozen=True, kw_only=True):
    """The appearance, change or removal of an attachment on this node, of any driver.

    Attributes:
        name: the attachment's name.
        own: whether the attachment belongs to this daemon's driver.
        card: whether the attachment appeared or went, or its card is identified differently (`local.residents.marks`).
    """

    name: str
    own: bool
    card: bool


class HardwareChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of the node's hardware in the kernel's view.

    Attributes:
        functions: the addresses of the functions that changed, appeared or went.
        attachments: the names of the affected attachments (`Context.is_affected`).
    """

    functions: frozenset[str]
    attachments: tuple[str, ...]


class HolderChange(msgspec.Struct, frozen=True, kw_only=True):
    """The release of a device by a claim.

    Attributes:
        pool: the device's pool.
        device: the device's name.
        attachments: the names of the device's attachments.
    """

    pool: str
    device: str
    attachments: tuple[str, ...]


class VerdictChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a device's health.

    Attributes:
        attachments: the names of the device's attachments.
        local: whether the device belongs to the node's own pool.
    """

    attachments: tuple[str, ...]
    local: bool


class CleaningChange(msgspec.Struct, frozen=True):
    """The beginning, failure or end of the cleaning of one of the node's own devices."""


class NeighbourChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of another driver's offers on this node.

    Attributes:
        attachments: the names of all attachments of this daemon's driver.
    """

    attachments: tuple[str, ...]


class DemandChange(msgspec.Struct, frozen=True):
    """A change of one of the node's own devices: it became ready for a claim, failed, or ended its probation."""


def _names(change: HardwareChange | HolderChange | VerdictChange | NeighbourChange) -> Iterable[str]:
    return change.attachments


def _all(_change: object) -> tuple[str]:
    return (ALL,)


ATTACHMENTS = (
    watch("own attachment: itself", AttachmentChange, lambda c: (c.name,), when=lambda c: c.own),
    watch("hardware: affected attachments", HardwareChange, _names),
    watch("neighbour: every attachment", NeighbourChange, _names),
    watch("holder: the device's attachment", HolderChange, _names),
    watch("verdict: the device's attachment", VerdictChange, _names),
)
"""The watches of the work on attachments. They map to names of attachments."""

HEALTH = (
    # A new function may belong to an absent device.
    watch("hardware: health", HardwareChange, lambda c: (c.functions,)),
)
"""The watches of the health monitor. They map to sets of changed functions; absent devices are examined, too."""

WAITING_CLAIMS = (
    watch("own attachment: waiting claims", AttachmentChange, _all, when=lambda c: c.own),
    watch("hardware: waiting claims", HardwareChange, _all),
    watch("cleaning: waiting claims", CleaningChange, _all),
    watch("demand: waiting claims", DemandChange, _all),
)
"""The watches of the Prepare calls that wait for a device."""

LOCAL_POOL = (
    # A device from any driver's fabric is not the node's own. Most changes concern health and progress, and are left out.
    watch("attachment: local pool", AttachmentChange, _all, when=lambda c: c.card),
    watch("hardware: local pool", HardwareChange, _all),
    watch("cleaning: local pool", CleaningChange, _all),
    watch("demand: local pool", DemandChange, _all),
    # A device offered by another driver is not offered as the node's own.
    watch("neighbour: local pool", NeighbourChange, _all),
    # An absent device of the node's own stays published while a claim holds it.
    watch("holder: local pool", HolderChange, _all),
    watch("verdict: local pool", VerdictChange, _all, when=lambda c: c.local),
)
"""The watches of the slices of the node's own devices."""

CLEANING = (
    watch("hardware: cleaning", HardwareChange, _all),
    watch("holder: cleaning", HolderChange, lambda c: ((c.pool, c.device),)),
)
"""The watches of the cleaning of the node's own devices. They map to pool and name of a released device, or to all."""

DEMANDS = (
    watch("hardware: demands", HardwareChange, _all),
    watch("cleaning: demands", CleaningChange, _all),
)
"""The watches of the work that makes the node's own devices ready for claims."""
