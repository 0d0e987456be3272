"""FPGAs. A bitstream is loaded by an administrator's hook (`attachments.hooks`), or into a DFL card by its kernel driver (`dfl`).

The kernel's `fpga_manager` files only report.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from drawbar.driver.node.classes import generic
from drawbar.driver.node.classes.users import Host
from drawbar.driver.node.inventory import model
from drawbar.fabric.classes import DeviceClass

# Documentation/ABI/testing/sysfs-class-fpga-manager; the failed ones end in "error".
LOADING = frozenset({"firmware request", "write init", "write", "write complete", "parse header"})
_VENDORS = frozenset(
    {
        0x10EE,  # Xilinx, AMD
        0x1172,  # Altera
        0x1204,  # Lattice
        0x1B59,  # Achronix
    }
)
# Intel's own FPGA cards share 0x8086 with everything else Intel makes (drivers/fpga/dfl-pci.c).
_INTEL_DEVICES = frozenset({0x09C4, 0x09C5, 0x0B2B, 0x0B2C, 0x0B30, 0x0B31, 0xBCBD, 0xBCC0, 0xBCCE, 0xBCCF})


def unloaded(managers: Iterable[model.FpgaManager]) -> str | None:
    """Return what the kernel reports where nothing, or not all, was loaded, in a clause; None where it reports no failure."""
    for manager in managers:
        if manager.state is not None and (manager.state in LOADING or manager.state.endswith("error")):
            return f"{manager.name} of the card shows {manager.state!r}"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fpga(generic.Generic):
    """See `generic.Generic`."""

    device_class: DeviceClass = DeviceClass.FPGA
    needs_driver: bool = True

    def is_model(self, vendor: int, device: int) -> bool:
        """Boards of those who make FPGAs, and Intel's by their ids."""
        return vendor in _VENDORS or (vendor == 0x8086 and device in _INTEL_DEVICES)

    def users(self, host: Host, card: model.Card) -> tuple[str, ...]:
        """Open device files, and whoever is loading a bitstream."""
        loading = tuple(
            f"a bitstream is being loaded ({manager.state}), {manager.name}"
            for function in card.functions
            for manager in function.fpga_managers
            if manager.state in LOADING
        )
        return (*loading, *generic.Generic.users(self, host, card))
