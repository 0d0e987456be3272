"""The virtual functions that a claim's class asks for: what is to be done until the device has them; pure.

They are made without drivers, set up through their physical function, and only then get their drivers, since a driver reads
what it is to be when it begins. On a network card it asks the physical function, which answers while its interface is up. Before the first step those of anybody else go, so the outcome is the same whatever was
there. Each physical function of the device gets all groups.

Source: Documentation/PCI/pci-iov-howto.rst; Documentation/ABI/testing/sysfs-bus-pci; rtnetlink(7), IFLA_VF_*.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from drawbar.driver.api import parameters
from drawbar.driver.node.inventory import model, netdevs
from drawbar.fabric.classes import DeviceClass


@dataclass(frozen=True, slots=True, kw_only=True)
class Make:
    """Give a physical function so many virtual ones without drivers, in place of those that it has."""

    address: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetLinks:
    """Set the network interface of a physical function up, and through it virtual functions by their numbers."""

    interface: str
    links: Mapping[int, netdevs.FunctionLink]


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveDriver:
    """Give a virtual function its driver; None for the one that the kernel chooses."""

    owner: str
    address: str
    driver: str | None
    instead: str | None = None


Step = Make | SetLinks | GiveDriver


def problem(card: model.Card, wanted: parameters.VirtualFunctions) -> str | None:
    """Return why the device can never have them, in a clause with the remedy."""
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
    """Return what is missing before the device has them, in a clause; empty where nothing is.

    Args:
        card: the device.
        wanted: what its class asks for.
        needs_driver: what a virtual function of this class is good for comes from its kernel driver.
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
    """Return the next steps; after them the device is looked at again.

    Args:
        card: the device.
        wanted: what its class asks for.
        key: of the device, from which stable addresses are made.
        begun: the steps of before were for the same claim.
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
    """Return a hardware address for what the key names: unicast, and locally administered (IEEE 802, 8.4)."""
    first, *rest = hashlib.sha256(key.encode()).digest()[:6]
    return ":".join(f"{byte:02x}" for byte in (first & 0xFC | 0x02, *rest))


def _owners(card: model.Card) -> Iterator[model.PciFunction]:
    """Return the physical functions that can have virtual ones."""
    return (
        function
        for function in card.functions
        if function.physical_function is None and function.sriov is not None and function.sriov.total_vfs
    )


def _owners_with_links(card: model.Card) -> tuple[model.PciFunction, ...]:
    """Return the physical functions through which links are set up: of a card with others, its network functions alone."""
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
