"""The parts of a fabric's offers that are not its manager's devices, for the rest of the controller."""

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
        adapter: the adapter that provides them, as last connected if it carves; None if the fabric's parts are its
            devices.
    """

    adapter: RealisingAdapter | None = None

    @property
    def exist(self) -> bool:
        """Return whether there are such parts."""
        return self.adapter is not None

    @property
    def are_chosen(self) -> bool:
        """Return whether the fabric chooses the device itself, so that its parts stand for any device of a model."""
        return self.adapter is not None and self.adapter.chooses

    @property
    def are_carved(self) -> bool:
        """Return whether claims can be given memory chunks of its devices."""
        return self.adapter is not None and not self.adapter.chooses

    @property
    def visible_parts(self) -> tuple[contract.Device, ...]:
        """Return all parts, and the devices that are not shown as parts."""
        return self.adapter.visible_parts if self.adapter is not None else ()

    def find_device(self, name: str) -> contract.Device | None:
        """Return the device behind a part, which the fabric chose or carved, or None if there is none."""
        return self.adapter.contents.get(name) if self.adapter is not None else None

    def chunk(self, name: str, memory_bytes: int, origin: contract.Device | None) -> contract.Device | None:
        """Return a memory chunk without an attachment, as the device that its attachment makes of it, or None if impossible."""
        if self.adapter is None or not self.are_carved:
            return None
        made = memory_chunk.find_chunk(name, self.adapter.listed_devices)
        if made is not None:
            return memory_chunk.as_share(made, name)
        return memory_chunk.unmade(name, memory_bytes, origin) if origin is not None else None

    def made_bytes(self, device: contract.Device, mark: str | None) -> int:
        """Return the bytes of a device's memory in chunks with this mark."""
        return (
            memory_chunk.made_bytes(device.id, mark, self.adapter.listed_devices)
            if self.adapter is not None
            else 0
        )

    def withdrawn(self, expected: Collection[str]) -> frozenset[str]:
        """Return those of the expected parts that are gone, not only missing from a listing."""
        return self.adapter.withdrawn(expected) if self.adapter is not None else frozenset()

    def find_reserved_ids(self, listed: Iterable[contract.Device]) -> tuple[str, ...]:
        """Return the ids of the manager's devices that look like names of chunks; they are not shown."""
        if self.adapter is not None:
            return self.adapter.reserved
        return tuple(device.id for device in listed if names.is_share(device.id))

    def update_holdings(self, held: holdings.Holdings, *, arranges: bool) -> None:
        """Take in the cluster's present holdings."""
        if self.adapter is not None:
            self.adapter.update_holdings(held, arranges=arranges)

    def disconnect(self) -> None:
        """Forget the parts that stand for any device of a model."""
        if self.are_chosen:
            self.adapter = None
