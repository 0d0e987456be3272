"""The network interfaces of a card that a container cannot get.

An interface returns to the host when its pod's network namespace ends, which may be long after the pod. Until then sysfs
shows the host a card with a driver and without an interface. It returns with the name that it had in the pod, and any bytes
but blanks, colons and slashes are a name.

Source: net/core/net_namespace.c; Documentation/ABI/stable/sysfs-class-infiniband (`link_layer`).
"""

from drawbar.driver.node.classes.users import Host
from drawbar.driver.node.inventory import files, model, vfio
from drawbar.fabric.classes import DeviceClass

# drivers/pci/pci-pf-stub.c: it serves the virtual functions alone.
_WITHOUT_INTERFACES = frozenset({"pci-pf-stub"})
_UNREADABLE = "\ufffd"
"""It stands for bytes that are not UTF-8."""


def find_obstacle(card: model.Card, host: Host) -> str | None:
    """Return why a container cannot get the card's interfaces, as a clause, or None. Reads files."""
    for function in card.bare.functions:
        for name in function.net_interfaces:
            if _UNREADABLE in name:
                return (
                    f"the name {name} of a network interface of {function.address} is not UTF-8, and no container runtime "
                    "takes it: find its number N by `ip -o link`, and run `ip link set dev ifN name NAME`"
                )
    return _find_absence(card, host)


def _find_absence(card: model.Card, host: Host) -> str | None:
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
