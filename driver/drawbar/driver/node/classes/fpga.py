"""FPGAs.

Which bitstream to load is told by opaque parameters of a class or claim, and `initialise` is where it belongs: after the
driver is bound, through the card's own `fpga_manager`, before the device is called ready. No parameters, no load.
"""

from dataclasses import dataclass

from drawbar.driver.node.classes import generic
from drawbar.driver.node.classes.users import Host
from drawbar.driver.node.inventory import model

# Documentation/ABI/testing/sysfs-class-fpga-manager; the failed ones end in "error".
_LOADING = frozenset({"firmware request", "write init", "write", "write complete", "parse header"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Fpga(generic.Generic):
    """See `operations.DeviceOperations`."""

    needs_driver: bool = True

    def users(self, host: Host, card: model.Card) -> tuple[str, ...]:
        """Open device files, and whoever is loading a bitstream."""
        loading = tuple(
            f"a bitstream is being loaded ({manager.state}), {manager.name}"
            for function in card.functions
            for manager in function.fpga_managers
            if manager.state in _LOADING
        )
        return (*loading, *generic.Generic.users(self, host, card))
