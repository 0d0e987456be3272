"""The table of the adapters that provide parts: one row for each kind of offer whose parts are not a manager's devices."""

from collections.abc import Callable

from drawbar.driver.controller.offers import any_of_model, memory_chunk
from drawbar.driver.controller.offers.realising.adapter import RealisingAdapter
from drawbar.driver.controller.offers.realising.any_of_model import AnyOfModel
from drawbar.driver.controller.offers.realising.memory_chunk import MemoryChunks
from drawbar.fabric import contract

IsNeeded = Callable[[contract.Capabilities, str | None], bool]
"""A function that returns whether a manager with these capabilities needs the adapter, given our mark."""
ADAPTERS: tuple[tuple[IsNeeded, type[RealisingAdapter]], ...] = (
    (any_of_model.is_needed, AnyOfModel),
    (memory_chunk.is_needed, MemoryChunks),
)


def choose(can: contract.Capabilities, mark: str | None) -> type[RealisingAdapter] | None:
    """Return the adapter for the parts of a fabric, or None if each part is a plain device."""
    return next((adapter for is_needed, adapter in ADAPTERS if is_needed(can, mark)), None)
