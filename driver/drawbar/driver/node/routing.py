"""What a change on this node wakes: one table, each row of which is pure.

A row names a kind of change, when it matters, and what it wakes. The daemon gathers the facts that the rows need, and
wakes what `route` returns. What is woken observes everything anew, so a needless wake-up costs time and nothing else.
"""

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from drawbar.driver import routes


@dataclass(frozen=True, slots=True)
class Reconcile:
    """Reconcile the attachment of this name."""

    name: str


@dataclass(frozen=True, slots=True)
class Examine:
    """Read the health of the devices that have these functions, and of those that are not there."""

    addresses: frozenset[str]


class Part(enum.Enum):
    """What looks at everything that it waits for."""

    WAITING_CLAIMS = enum.auto()
    """Calls of Prepare that wait for a device."""
    LOCAL_POOL = enum.auto()
    """The slices of the devices that live in this node."""
    CLEANING = enum.auto()
    """The cleaning of these devices."""
    DEMANDS = enum.auto()
    """The devices of these that are made ready for claims."""


Wake = Reconcile | Examine | Part


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachmentChange:
    """An attachment on this node, of any driver, came, changed or went.

    Attributes:
        own: it is of this daemon's driver.
        card: it came or went, or what tells which card it means is another (`local.residents.marks`).
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
    """A claim let go of a device; `attachments` are those of the device."""

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


def _each(change: HardwareChange | HolderChange | VerdictChange | NeighbourChange) -> Iterable[Wake]:
    return map(Reconcile, change.attachments)


ROWS = (
    # What came over any driver's fabric is not the node's own. Most changes are about health and progress.
    routes.row(
        "attachment: local pool",
        AttachmentChange,
        lambda change: change.card,
        lambda _: (Part.LOCAL_POOL,),
    ),
    routes.row(
        "own attachment: itself, waiting claims",
        AttachmentChange,
        lambda change: change.own,
        lambda change: (Reconcile(change.name), Part.WAITING_CLAIMS),
    ),
    # Which card an attachment means is found among all cards.
    routes.row("hardware: every attachment", HardwareChange, lambda change: bool(change.attachments), _each),
    routes.row(
        "hardware: waiting claims, local pool, cleaning, demands",
        HardwareChange,
        routes.always,
        lambda _: (Part.WAITING_CLAIMS, Part.LOCAL_POOL, Part.CLEANING, Part.DEMANDS),
    ),
    routes.row(
        "cleaning: waiting claims, local pool, demands",
        CleaningChange,
        routes.always,
        lambda _: (Part.WAITING_CLAIMS, Part.LOCAL_POOL, Part.DEMANDS),
    ),
    routes.row(
        "demand: waiting claims, local pool",
        DemandChange,
        routes.always,
        lambda _: (Part.WAITING_CLAIMS, Part.LOCAL_POOL),
    ),
    # What another driver offers is not offered as the node's own, and an attached device is reported.
    routes.row("neighbour: local pool", NeighbourChange, routes.always, lambda _: (Part.LOCAL_POOL,)),
    routes.row(
        "neighbour: every attachment", NeighbourChange, lambda change: bool(change.attachments), _each
    ),
    # Whatever it was, a device that is not there may be what came.
    routes.row(
        "hardware: health", HardwareChange, routes.always, lambda change: (Examine(change.functions),)
    ),
    routes.row(
        "holder: the device's attachment", HolderChange, lambda change: bool(change.attachments), _each
    ),
    # A device of the node's own that is gone stays published while a claim holds it.
    routes.row("holder: local pool", HolderChange, routes.always, lambda _: (Part.LOCAL_POOL,)),
    routes.row(
        "verdict: the device's attachment", VerdictChange, lambda change: bool(change.attachments), _each
    ),
    routes.row(
        "verdict: local pool", VerdictChange, lambda change: change.local, lambda _: (Part.LOCAL_POOL,)
    ),
)


Change = (
    AttachmentChange
    | HardwareChange
    | HolderChange
    | VerdictChange
    | CleaningChange
    | NeighbourChange
    | DemandChange
)


_ROWS = routes.by_change(ROWS)


def route(change: Change) -> tuple[Wake, ...]:
    """Return what a change wakes, each once, in order of the table."""
    about = (row for row in _ROWS[type(change)] if row.when(change))
    return tuple(dict.fromkeys(wake for row in about for wake in row.wakes(change)))
