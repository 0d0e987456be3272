"""Network interfaces.

An interface with an address that is up does not count as a user. The host's own network service configures an attached
NIC at once, and no process would ever take it down. Open device files (RDMA, vfio) count.

An interface moves into the container. It returns to the host by itself when the pod's network namespace ends.
"""

from drawbar.driver.node.classes import generic
from drawbar.driver.node.inventory import model
from drawbar.fabric.classes import DeviceClass


class Nic(generic.Generic, frozen=True, kw_only=True):
    """See `generic.Generic`."""

    device_class: DeviceClass = DeviceClass.NIC
    class_codes: tuple[str, ...] = ("02",)
    needs_driver: bool = True

    def interfaces(self, card: model.Card) -> tuple[str, ...]:
        """Return the interfaces of all functions; a network card without a driver has none yet."""
        return generic.own_interfaces(card)
