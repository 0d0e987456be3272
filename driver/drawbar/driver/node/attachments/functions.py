"""The steps that make and set up the virtual functions of a claim's class; pure.

The functions are made without drivers, and set up through their physical function. Only then do they get their drivers,
because a driver reads its settings when it starts. On a network card the driver asks the physical function, which answers while
its interface is up. The first step removes all former virtual functions, so the result does not depend on them. Each physical
function of the device gets all groups.

Source: Documentation/PCI/pci-iov-howto.rst; Documentation/ABI/testing/sysfs-bus-pci; rtnetlink(7), IFLA_VF_*.
"""

import hashlib
from collections.abc import Iterator, Mapping

import msgspec

from drawbar.driver.api import parameters
from drawbar.driver.node.inventory import model, netdevs
from drawbar.fabric.classes import DeviceClass


class Make(msgspec.Struct, frozen=True, kw_only=True):
    """Make virtual functions without drivers, in place of the present ones.

    Attributes:
        address: the physical function.
        count: the number of virtual functions.
    """

    address: str
    count: int


class SetLinks(msgspec.Struct, frozen=True, kw_only=True):
    """Set up the network interface of a physical function, and through it the links of its virtual functions.

    Attributes:
        links: the settings by number of the virtual function.
    """

    interface: str
    links: Mapping[int, netdevs.FunctionLink]


class GiveDriver(msgspec.Struct, frozen=True, kw_only=True):
    """Bind a virtual function's driver.

    Attributes:
        owner: the physical function.
        address: the virtual function.
        driver: the driver; None for the kernel's choice.
        instead: the driver to unbind first; None without one.
    """

    owner: str
    address: str
    driver: str | None
    instead: str | None = None


Step = Make | SetLinks | GiveDriver


def problem(card: model.Card, wanted: parameters.VirtualFunctions) -> str | None:
    """Return why the device can never have these virtual functions, in a clause with the remedy, or None."""
    count, owners = len(wanted.members), tuple(_owners(card))
    if not owners:
        return (
            f"its class asks for {count} virtual functions, and the device can have none: leave virtualFunctions out of the "
            "class, or select other devices"
        )
    for function in owners:
        most = function.sriov.total_vfs if function.sriov is not None else 0
        if count > most:
            return (
                f"its class asks for {count} virtual functions, and {function.address} can have {most}: lower the counts in "
                "virtualFunctions of the class"
            )
    return None


def find_missing(card: model.Card, wanted: parameters.VirtualFunctions, *, needs_driver: bool) -> str:
    """Return the first missing part of the virtual functions, in a clause; empty if nothing is missing.

    Args:
        card: the device.
        wanted: the virtual functions of its class.
        needs_driver: whether virtual functions of this class are useless without a kernel driver.
    """
    by_address = {function.address: function for function in card.functions}
    with_links = _owners_with_links(card) if _sets_links(wanted) else ()
    for owner in _owners(card):
        if owner in with_links and not owner.net_interfaces:
            return f"{owner.address} has no network interface to set its virtual functions up through; load its driver"
        made = owner.sriov.virtual_functions if owner.sriov is not None else ()
        if len(made) != len(wanted.members):
            return f"{owner.address} has {len(made)} of its {len(wanted.members)} virtual functions"
        for address, group in zip(made, wanted.members, strict=True):
            virtual = by_address.get(address)
            if virtual is None:
                return f"virtual function {address} has not appeared yet"
            if group.driver is not None and virtual.driver != group.driver:
                return f"virtual function {address} has not got its driver {group.driver}; load that on this node"
            if needs_driver and virtual.driver is None:
                return f"virtual function {address} has no driver; load one on this node, or name one in its class"
    return ""


def steps(card: model.Card, wanted: parameters.VirtualFunctions, *, key: str, begun: bool) -> Iterator[Step]:
    """Yield the next steps. After them, the caller looks at the device again.

    Args:
        card: the device.
        wanted: the virtual functions of its class.
        key: the device's key, the source of stable addresses.
        begun: whether the former steps were for the same claim.
    """
    if _sets_links(wanted) and not all(owner.net_interfaces for owner in _owners_with_links(card)):
        return
    by_address = {function.address: function for function in card.functions}
    for index, owner in enumerate(_owners(card)):
        made = owner.sriov.virtual_functions if owner.sriov is not None else ()
        if not begun or len(made) != len(wanted.members):
            yield Make(address=owner.address, count=len(wanted.members))
            links = {
                number: _link(group, f"{key}/{index}/{number}")
                for number, group in enumerate(wanted.members)
                if group.sets_link
            }
            if owner.net_interfaces:
                yield SetLinks(interface=owner.net_interfaces[0], links=links)
            continue
        for address, group in zip(made, wanted.members, strict=True):
            virtual = by_address.get(address)
            if virtual is not None and (virtual.driver is None or group.driver not in (None, virtual.driver)):
                yield GiveDriver(
                    owner=owner.address, address=address, driver=group.driver, instead=virtual.driver
                )


def stable_address(key: str) -> str:
    """Return the hardware address of a key: unicast, and locally administered (IEEE 802, 8.4)."""
    first, *rest = hashlib.sha256(key.encode()).digest()[:6]
    return ":".join(f"{byte:02x}" for byte in (first & 0xFC | 0x02, *rest))


def _owners(card: model.Card) -> Iterator[model.PciFunction]:
    """Return the physical functions with support for virtual ones."""
    return (
        function
        for function in card.functions
        if function.physical_function is None and function.sriov is not None and function.sriov.total_vfs
    )


def _owners_with_links(card: model.Card) -> tuple[model.PciFunction, ...]:
    """Return the physical functions that set up links: the network functions if there are any, else all."""
    owners = tuple(_owners(card))
    network = tuple(
        owner for owner in owners if owner.device_class is DeviceClass.NIC or owner.net_interfaces
    )
    return network or owners


def _sets_links(wanted: parameters.VirtualFunctions) -> bool:
    return any(group.sets_link for group in wanted.groups)


def _link(group: parameters.FunctionGroup, key: str) -> netdevs.FunctionLink:
    return netdevs.FunctionLink(
        hardware_address=stable_address(key) if group.stable_address else None,
        vlan=group.vlan,
        trust=group.trust,
        spoof_check=group.spoof_check,
    )
