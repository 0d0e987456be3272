"""The network interfaces of a card that are in a container.

An interface returns to the host when its pod's network namespace ends, which may be long after the pod. Until then sysfs
shows the host a card with a driver and without an interface.

Source: net/core/net_namespace.c; Documentation/ABI/stable/sysfs-class-infiniband (`link_layer`).
"""

from drawbar.driver.node.classes.users import Host
from drawbar.driver.node.inventory import files, model, vfio
from drawbar.fabric.classes import DeviceClass

# drivers/pci/pci-pf-stub.c: it serves the virtual functions alone.
_WITHOUT_INTERFACES = frozenset({"pci-pf-stub"})


def find_absence(card: model.Card, host: Host) -> str | None:
    """Return that all interfaces of the card are elsewhere, as a clause, or None. Reads files.

    Some drivers bind functions that never have an interface, such as the first four of a Chelsio T6, so a card with any
    interface has all of them.
    """
    if any(function.net_interfaces for function in card.bare.functions):
        return None
    for function in card.bare.functions:
        if _makes_interface(function, host):
            return (
                f"its driver {function.driver} has no network interface of {function.address} on this host; the last "
                "pod's network namespace may still have it (ip netns), else look at the kernel's log"
            )
    return None


def _makes_interface(function: model.PciFunction, host: Host) -> bool:
    """Return whether the function's driver makes a network interface, wherever that is now."""
    driver = function.driver
    if function.device_class is not DeviceClass.NIC or driver is None or driver in _WITHOUT_INTERFACES:
        return False
    if vfio.is_driver(driver):
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
