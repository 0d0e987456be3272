"""Network interfaces.

An interface that is up, with an address, does not count as a user: an attached NIC is configured by the host's own
network service as soon as it appears, and no process would ever take that down. Open device files (RDMA, vfio) count.

An interface moves into the container, and comes back to the host by itself when the pod's network namespace goes.
"""

from dataclasses import dataclass

from drawbar.driver.node.classes import generic
from drawbar.driver.node.inventory import model
from drawbar.fabric.classes import DeviceClass


@dataclass(frozen=True, slots=True, kw_only=True)
class Nic(generic.Generic):
    """See `generic.Generic`."""

    device_class: DeviceClass = DeviceClass.NIC
    class_codes: tuple[str, ...] = ("02",)
    needs_driver: bool = True

    def interfaces(self, card: model.Card) -> tuple[str, ...]:
        """Return all of them; without a driver a network card has none yet."""
        return generic.own_interfaces(card)
