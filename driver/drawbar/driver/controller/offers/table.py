"""The table of the kinds of offers: one row, and one module, for each."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from drawbar.driver.api import fabrics
from drawbar.driver.controller.offers import any_of_model, exact, group, memory_chunk
from drawbar.driver.controller.offers.offer import Arrangement, Stock
from drawbar.driver.controller.offers.realising.adapter import RealisingAdapter
from drawbar.driver.controller.offers.realising.any_of_model import AnyOfModel
from drawbar.driver.controller.offers.realising.memory_chunk import MemoryChunks
from drawbar.fabric import contract


def _never(*_facts: object) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of offer.

    Attributes:
        arrange: returns what is offered of a fabric's stock, given the names of what earlier kinds offer or withhold.
        groups: returns whether a Fabric asks for offers of several parts of this kind.
        is_realised: returns whether a manager with these capabilities needs the adapter, given our mark.
        adapter: by which a manager brings the parts about; None where each part is a device that it attaches as it is.
    """

    arrange: Callable[[Stock, Collection[str]], Arrangement]
    groups: Callable[[fabrics.FabricSpec], bool] = _never
    is_realised: Callable[[contract.Capabilities, str | None], bool] = _never
    adapter: type[RealisingAdapter] | None = None


KINDS = (
    Kind(arrange=group.offer, groups=group.is_wanted),
    Kind(arrange=memory_chunk.offer, is_realised=memory_chunk.is_needed, adapter=MemoryChunks),
    # A manager that chooses the device shows parts that are offered as any device is.
    Kind(arrange=exact.offer, is_realised=any_of_model.is_needed, adapter=AnyOfModel),
)


def choose(can: contract.Capabilities, mark: str | None) -> type[RealisingAdapter] | None:
    """Return the adapter for the parts of a fabric; None where each part is a device that is attached as it is."""
    return next((kind.adapter for kind in KINDS if kind.adapter and kind.is_realised(can, mark)), None)


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
