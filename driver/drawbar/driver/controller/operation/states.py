"""How many devices of a fabric are in which state, decided purely.

A device is in exactly one state, the first of these that is true of it:

| state | means |
|---|---|
| `attached` | it has a DeviceAttachment: a claim's, an idle one's, or an operator's |
| `withdrawn` | the fabric lists it, and it is not published |
| `foreign` | somebody else attached it |
| `tainted` | it is free, and a taint keeps the scheduler away |
| `free` | it can be given out |
"""

import datetime
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from drawbar.driver.api import attachments, meta, slices
from drawbar.driver.controller import outcomes
from drawbar.driver.controller.pools import causes
from drawbar.driver.slices import encoding

ATTACHED = "attached"
WITHDRAWN = "withdrawn"
FOREIGN = "foreign"
TAINTED = "tainted"
FREE = "free"
STATES = (FREE, ATTACHED, TAINTED, FOREIGN, WITHDRAWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What the slices of a fabric say; it changes only when they do.

    Attributes:
        published: names of all devices in them.
        foreign: names of those that somebody else attached.
        tainted: names of the others that the scheduler keeps away from.
    """

    published: frozenset[str]
    foreign: frozenset[str]
    tainted: frozenset[str]


def offer(driver: str, published: Iterable[slices.ResourceSlice]) -> Offer:
    """What a fabric's slices say, in whichever form the taints stand."""
    known = encoding.decode(published)
    kept = {name for name, found in known.items() if encoding.keeps_away(found)}
    in_use = f"{driver}/{causes.IN_USE}"
    foreign = frozenset(
        name for name in kept if any(one.key == in_use and not one.value for one in known[name])
    )
    return Offer(published=frozenset(known), foreign=foreign, tainted=frozenset(kept) - foreign)


def devices(offered: Offer, listed: Collection[str], attached: Collection[str]) -> dict[str, int]:
    """The number of devices by state.

    Args:
        offered: what is published.
        listed: names of the devices that the fabric has; empty while it never told.
        attached: names of the devices that have a DeviceAttachment.
    """
    foreign, tainted = offered.foreign.difference(attached), offered.tainted.difference(attached)
    free = len(offered.published.difference(attached)) - len(foreign) - len(tainted)
    hidden = set(listed).difference(offered.published).difference(attached)
    numbers = (free, len(attached), len(tainted), len(foreign), len(hidden))
    return dict(zip(STATES, numbers, strict=True))


def phases(found: Iterable[attachments.DeviceAttachment]) -> dict[str, float]:
    """How many attachments are in each phase; all phases are there, so that a series never ends."""
    numbers = dict.fromkeys((*outcomes.PHASES, outcomes.OTHER), 0.0)
    for one in found:
        numbers[outcomes.phase(one)] += 1.0
    return numbers


def oldest(found: Iterable[attachments.DeviceAttachment], now: datetime.datetime) -> Mapping[str, float]:
    """For how many seconds the attachment that takes longest has been on its way, by direction; 0.0 if none is.

    One way begins with the allocation, the other with the wish to detach. A failed attach is over.
    """
    ages = {"attach": 0.0, "detach": 0.0}
    for one in found:
        if one.deleting:
            way, since = "detach", one.metadata.deletion_timestamp
        elif one.holds(attachments.ATTACHED) or one.status.error is not None:
            continue
        else:
            way, since = "attach", one.spec.allocation_timestamp
        if since:
            ages[way] = max(ages[way], (now - meta.moment(since)).total_seconds())
    return ages
