"""The table of the kinds of offers, with one row and one module for each; pure.

If a fabric manager does not provide the parts of a kind itself, the kind also has a row in `realising.table`.
"""

from collections.abc import Callable, Collection

import msgspec

from drawbar.driver.api import fabrics
from drawbar.driver.controller.offers import exact, group, memory_chunk
from drawbar.driver.controller.offers.offer import Arrangement, Stock


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of offer.

    Attributes:
        arrange: returns the offers of a fabric's stock, without the names that earlier kinds offer or withhold.
        groups: returns whether a Fabric asks for offers of several parts of this kind; None for a kind with one part.
    """

    arrange: Callable[[Stock, Collection[str]], Arrangement]
    groups: Callable[[fabrics.FabricSpec], bool] | None = None


KINDS = (
    Kind(arrange=group.offer, groups=group.has_composites),
    Kind(arrange=memory_chunk.offer),
    # This includes any device of a model: a manager that chooses the device shows a part for each.
    Kind(arrange=exact.offer),
)
_GROUPS = tuple(kind.groups for kind in KINDS if kind.groups is not None)


def groups(spec: fabrics.FabricSpec) -> bool:
    """Return whether a Fabric asks for offers of several parts."""
    return any(asks(spec) for asks in _GROUPS)


def arrange(stock: Stock) -> Arrangement:
    """Return the offers of a fabric's stock; a device is in the offer of one kind at most."""
    arranged = Arrangement()
    for kind in KINDS:
        taken = arranged.offers.keys() | arranged.withheld
        arranged = arranged.merge_arrangement(kind.arrange(stock, taken))
    return arranged
