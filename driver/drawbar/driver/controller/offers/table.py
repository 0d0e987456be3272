"""The table of the kinds of offers: one row, and one module, for each; pure.

Where a fabric manager does not bring the parts of a kind about by itself, the kind has a row in `realising.table` as well.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from drawbar.driver.api import fabrics
from drawbar.driver.controller.offers import exact, group, memory_chunk
from drawbar.driver.controller.offers.offer import Arrangement, Stock


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of offer.

    Attributes:
        arrange: returns what is offered of a fabric's stock, given the names of what earlier kinds offer or withhold.
        groups: returns whether a Fabric asks for offers of several parts of this kind.
    """

    arrange: Callable[[Stock, Collection[str]], Arrangement]
    groups: Callable[[fabrics.FabricSpec], bool] = lambda _spec: False


KINDS = (
    Kind(arrange=group.offer, groups=group.is_wanted),
    Kind(arrange=memory_chunk.offer),
    # Any device of a model, too: a manager that chooses the device shows a part for each.
    Kind(arrange=exact.offer),
)


def groups(spec: fabrics.FabricSpec) -> bool:
    """Return whether a Fabric asks for offers of several parts."""
    return any(kind.groups(spec) for kind in KINDS)


def arrange(stock: Stock) -> Arrangement:
    """Return everything that is offered of a fabric's stock; a device is in the offer of one kind at most."""
    arranged = Arrangement()
    for kind in KINDS:
        taken = arranged.offers.keys() | arranged.withheld
        arranged = arranged.with_more(kind.arrange(stock, taken))
    return arranged
