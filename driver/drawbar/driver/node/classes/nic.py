"""Network interfaces.

An interface that is up, with an address, does not count as a user: an attached NIC is configured by the host's own
network service as soon as it appears, and no process would ever take that down. Open device files (RDMA, vfio) count.

An interface moves into the container, and comes back to the host by itself when the pod's network namespace goes.
"""

from dataclasses import dataclass

import msgspec

from drawbar.cdi import spec
from drawbar.driver.node.classes import generic
from drawbar.driver.node.classes.users import Host
from drawbar.driver.node.inventory import model
from drawbar.fabric.classes import DeviceClass

_POD_INTERFACE = "eth0"
_INSTEAD = "nic0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Nic(generic.Generic):
    """See `generic.Generic`."""

    device_class: DeviceClass = DeviceClass.NIC
    class_codes: tuple[str, ...] = ("02",)
    certain: bool = True
    needs_driver: bool = True

    def edits(self, card: model.Card, host: Host) -> spec.ContainerEdits:
        """Device files, and the `interfaces` under their own names."""
        moved = tuple(
            spec.NetDevice(host_name=name, name=_INSTEAD if name == _POD_INTERFACE else name)
            for name in self.interfaces(card)
        )
        return msgspec.structs.replace(generic.Generic.edits(self, card, host), net_devices=moved)

    def interfaces(self, card: model.Card) -> tuple[str, ...]:
        """Those of all functions that are given."""
        return tuple(name for function in card.functions for name in function.net_interfaces)
