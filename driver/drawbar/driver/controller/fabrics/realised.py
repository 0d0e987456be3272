"""The parts of a fabric's offers that are not its manager's devices, for everything else in the controller."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from drawbar.driver.controller import names
from drawbar.driver.controller.offers import holdings, memory_chunk
from drawbar.driver.controller.offers.realising.adapter import RealisingAdapter
from drawbar.fabric import contract


@dataclass(slots=True)
class Parts:
    """The parts of one fabric.

    Attributes:
        adapter: that brings them about; None for a fabric whose parts are its devices. Of one that carves, as last connected.
    """

    adapter: RealisingAdapter | None = None

    @property
    def exist(self) -> bool:
        """Whether there are such parts."""
        return self.adapter is not None

    @property
    def are_chosen(self) -> bool:
        """Whether the fabric chooses the device itself, so that its devices are parts that stand for any of a model."""
        return self.adapter is not None and self.adapter.chooses

    @property
    def are_carved(self) -> bool:
        """Whether claims can be given memory chunks of its devices."""
        return self.adapter is not None and not self.adapter.chooses

    @property
    def shown(self) -> tuple[contract.Device, ...]:
        """All parts, and the devices that are none."""
        return self.adapter.shown if self.adapter is not None else ()

    def occupant(self, name: str) -> contract.Device | None:
        """Return the device that a part is, which the fabric chose or carved; None where there is none."""
        return self.adapter.occupants.get(name) if self.adapter is not None else None

    def chunk(self, name: str, memory_bytes: int, origin: contract.Device | None) -> contract.Device | None:
        """Return a memory chunk that has no attachment, as the device that it becomes with one; None where that cannot be."""
        if self.adapter is None or not self.are_carved:
            return None
        made = memory_chunk.made_for(name, self.adapter.listed)
        if made is not None:
            return memory_chunk.as_share(made, name)
        return memory_chunk.unmade(name, memory_bytes, origin) if origin is not None else None

    def made_bytes(self, device: contract.Device, mark: str | None) -> int:
        """Return the memory of a device that is in chunks with this mark."""
        return (
            memory_chunk.made_bytes(device.id, mark, self.adapter.listed) if self.adapter is not None else 0
        )

    def withdrawn(self, expected: Collection[str]) -> frozenset[str]:
        """Return those of the expected parts that are gone, and not only missing from a listing."""
        return self.adapter.withdrawn(expected) if self.adapter is not None else frozenset()

    def reserved(self, listed: Iterable[contract.Device]) -> tuple[str, ...]:
        """Return the ids of the manager's devices that look like names of chunks; they are not shown."""
        if self.adapter is not None:
            return self.adapter.reserved
        return tuple(device.id for device in listed if names.is_share(device.id))

    def hold(self, held: holdings.Holdings, *, arranges: bool) -> None:
        """Take over what the cluster holds now."""
        if self.adapter is not None:
            self.adapter.hold(held, arranges=arranges)

    def disconnect(self) -> None:
        """Forget the parts that stand for any device of a model."""
        if self.are_chosen:
            self.adapter = None
