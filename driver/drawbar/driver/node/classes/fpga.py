"""FPGAs. A bitstream is loaded by a hook or the kernel driver of a DFL card (`attachments.loading`).

The kernel's `fpga_manager` files only report.
"""

from collections.abc import Iterable

from drawbar.driver.node.classes import generic
from drawbar.driver.node.classes.users import Host
from drawbar.driver.node.inventory import model
from drawbar.fabric.classes import DeviceClass

# Documentation/ABI/testing/sysfs-class-fpga-manager; the failed ones end in "error".
LOADING = frozenset({"firmware request", "write init", "write", "write complete", "parse header"})


def find_load_failure(managers: Iterable[model.FpgaManager]) -> str | None:
    """Return the kernel's report of an incomplete or failed load, as a clause, or None if it reports none."""
    for manager in managers:
        if manager.state is not None and (manager.state in LOADING or manager.state.endswith("error")):
            return f"{manager.name} of the card shows {manager.state!r}"
    return None


class Fpga(generic.Generic, frozen=True, kw_only=True):
    """See `generic.Generic`."""

    device_class: DeviceClass = DeviceClass.FPGA
    needs_driver: bool = True

    def current_users(self, host: Host, card: model.Card) -> tuple[str, ...]:
        """Return the processes with open device files, and each load in progress."""
        loading = tuple(
            f"a bitstream is being loaded ({manager.state}), {manager.name}"
            for function in card.functions
            for manager in function.fpga_managers
            if manager.state in LOADING
        )
        return (*loading, *generic.Generic.current_users(self, host, card))
