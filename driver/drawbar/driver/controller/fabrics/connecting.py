"""What a session needs of an adapter before it is connected."""

from collections.abc import Callable
from typing import Protocol

from drawbar.fabric import contract


class AdapterClass(Protocol):
    """An adapter's class, or something that stands in for one."""

    def validate(self, config: contract.AdapterConfig) -> None:
        """See `contract.FabricAdapter.validate`."""
        ...

    async def connect(self, config: contract.AdapterConfig) -> contract.FabricAdapter:
        """See `contract.FabricAdapter.connect`."""
        ...


AdapterOf = Callable[[str], AdapterClass]
"""The class of the adapter of that name; raises `fabric.errors.InvalidConfiguration` where there is none."""
