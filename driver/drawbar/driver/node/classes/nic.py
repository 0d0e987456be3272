"""Network interfaces.

An interface with an address that is up does not count as a user. The host's own network service configures an attached
NIC at once, and no process would ever take it down. Open device files (RDMA, vfio) count.

An interface moves into the container. It returns to the host by itself when the pod's network namespace ends, some time
after the pod. Until then sysfs shows the host a card without it.

Source: net/core/net_namespace.c; Documentation/ABI/stable/sysfs-class-infiniband (`link_layer`).
"""

from drawbar.driver.node.classes import generic
from drawbar.driver.node.classes.users import Host
from drawbar.driver.node.inventory import files, model, vfio
from drawbar.fabric.classes import DeviceClass


class Nic(generic.Generic, frozen=True, kw_only=True):
    """See `generic.Generic`."""

    device_class: DeviceClass = DeviceClass.NIC
    class_codes: tuple[str, ...] = ("02",)
    needs_driver: bool = True

    def missing_before_use(self, card: model.Card, host: Host) -> str | None:
        """Return that an interface is in another network namespace; a container would start without it."""
        for function in card.bare.functions:
            if not function.net_interfaces and _has_interface(function, host):
                return (
                    f"its driver {function.driver} has no network interface of {function.address} on this host; the last "
                    "pod's network namespace may still have it (ip netns), else look at the kernel's log"
                )
        return None

    def interfaces(self, card: model.Card) -> tuple[str, ...]:
        """Return the interfaces of all functions; a network card without a driver has none yet."""
        return generic.own_interfaces(card)


def _has_interface(function: model.PciFunction, host: Host) -> bool:
    """Return whether the function's driver makes a network interface, wherever that is now."""
    if (
        function.device_class is not DeviceClass.NIC
        or function.driver is None
        or vfio.is_driver(function.driver)
    ):
        return False
    if not function.device_nodes:
        return True
    # RDMA has an interface over Ethernet alone. Any other device file is that of a driver in user space.
    folder = f"{host.sysfs}/{function.path}/infiniband"
    return any(
        files.text(f"{folder}/{name}/ports/{port}/link_layer") == "Ethernet"
        for name in files.names(folder)
        for port in files.names(f"{folder}/{name}/ports")
    )
