"""Network interfaces with their addresses and state, over rtnetlink; sysfs has no addresses.

`pyroute2` needs 13 MB, so it is imported at the first call, and callers call only for a NIC. All answers are about this
process's network namespace, which may differ from the sysfs tree's. An interface that only sysfs shows counts as in use.
"""

import contextlib
import ipaddress
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from drawbar.driver.node import errors

ELSEWHERE = ("192.0.2.1", "2001:db8::1")
"""Addresses reserved for documentation (RFC 5737, RFC 3849); only a default route leads to them."""

_FIB_MATCH = 0x2000
"""RTM_F_FIB_MATCH of include/uapi/linux/rtnetlink.h: answer with the whole route, and not with one of its hops."""


class Netdev(msgspec.Struct, frozen=True, kw_only=True):
    """The uses of one network interface.

    Attributes:
        master: the name of its bridge or bond.
        above: the names of the interfaces above it, such as `eth0.100` of a VLAN.
        is_way_out: the host's default route leads through it.
        addresses: IPv4 and IPv6 with their prefix lengths, such as `192.0.2.2/24`.
    """

    master: str | None = None
    addresses: tuple[str, ...] = ()
    above: tuple[str, ...] = ()
    is_way_out: bool = False

    @property
    def use(self) -> str | None:
        """Return the host's use of it, as the end of a sentence, or None; a link-local address is no use."""
        for address in self.addresses:
            if not ipaddress.ip_interface(address).is_link_local:
                return f"has the address {address}"
        if self.master is not None:
            return f"belongs to {self.master}"
        if self.above:
            return f"carries {self.above[0]}"
        return "has the default route" if self.is_way_out else None


def read() -> dict[str, Netdev]:
    """Return every interface of this network namespace, by name. Blocks for some milliseconds.

    Raises:
        NetlinkError: the kernel does not answer.
    """
    import pyroute2  # type: ignore[import-untyped]  # ships neither inline types nor stubs

    try:
        with contextlib.closing(pyroute2.IPRoute()) as route:
            links, addresses = list(route.get_links()), list(route.get_addr())
            ways_out = _ways_out(route)
    except (OSError, pyroute2.NetlinkError) as error:
        raise errors.NetlinkError(
            f"cannot ask the kernel for network interfaces ({error}): allow netlink sockets (AF_NETLINK) here"
        ) from error
    names = {link["index"]: _as_text(link.get_attr("IFLA_IFNAME")) for link in links}
    by_index: dict[int, list[str]] = {}
    for address in addresses:
        # For a tunnel, the local end is this host's address.
        ours = address.get_attr("IFA_LOCAL") or address.get_attr("IFA_ADDRESS")
        if ours is not None:
            by_index.setdefault(address["index"], []).append(f"{ours}/{address['prefixlen']}")
    above: dict[int, list[str]] = {}
    for link in links:
        below = link.get_attr("IFLA_LINK")
        # A pair's other end in another namespace has an index of that namespace.
        if below is not None and below != link["index"] and link.get_attr("IFLA_LINK_NETNSID") is None:
            above.setdefault(below, []).append(names[link["index"]])
    return {
        names[link["index"]]: Netdev(
            master=names.get(master, f"interface {master}") if master else None,
            addresses=tuple(sorted(by_index.get(link["index"], []))),
            above=tuple(sorted(above.get(link["index"], []))),
            is_way_out=link["index"] in ways_out,
        )
        for link in links
        for master in (link.get_attr("IFLA_MASTER"),)
    }


def _as_text(name: str | bytes) -> str:
    """Return an interface's name as `files.as_text` does; `pyroute2` has bytes for one that is not UTF-8."""
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else name


def _ways_out(route: Any) -> set[int]:
    """Return the indexes of the interfaces of the default routes, all their hops included. The number of routes does not affect the cost."""
    import pyroute2

    indexes: set[int] = set()
    for destination in ELSEWHERE:
        # The kernel refuses the request if it has no route.
        with contextlib.suppress(pyroute2.NetlinkError):
            for answer in route.route("get", dst=destination, flags=_FIB_MATCH):
                # A host of a routed fabric has one hop on each of its interfaces.
                hops = answer.get_attr("RTA_MULTIPATH") or ()
                indexes.update((answer.get_attr("RTA_OIF"), *(hop["oif"] for hop in hops)))
    return indexes


class FunctionLink(msgspec.Struct, frozen=True, kw_only=True):
    """A network card's settings for a virtual function; None leaves a setting to the card."""

    hardware_address: str | None = None
    vlan: int | None = None
    trust: bool | None = None
    spoof_check: bool | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """Return the given settings, by the names of `pyroute2`."""
        settings = {
            "mac": self.hardware_address,
            "vlan": self.vlan,
            "trust": self.trust,
            "spoofchk": self.spoof_check,
        }
        return {name: value for name, value in settings.items() if value is not None}


def set_up_functions(interface: str, links: Mapping[int, FunctionLink]) -> None:
    """Set an interface up, and configure virtual functions of its physical function. Blocks for some milliseconds.

    Args:
        interface: its name.
        links: the settings, by the number of the virtual function.

    Raises:
        KernelRefused: the card's driver refused, or the interface is in another namespace.
    """
    import pyroute2

    try:
        with contextlib.closing(pyroute2.IPRoute()) as route:
            indexes = route.link_lookup(ifname=interface)
            if not indexes:
                raise errors.KernelRefused(
                    f"network interface {interface} is in another network namespace than this daemon: end who took it"
                )
            route.link("set", index=indexes[0], state="up")
            for number, link in links.items():
                # One setting at a time, so that the error can name the refused one.
                for what, value in link.settings.items():
                    try:
                        route.link(
                            "set",
                            index=indexes[0],
                            vf=[{"vf": number, what: int(value) if isinstance(value, bool) else value}],
                        )
                    except pyroute2.NetlinkError as error:
                        raise errors.KernelRefused(
                            f"the driver of {interface} does not set {what} of virtual function {number} to {value} "
                            f"({error}): leave that out of virtualFunctions of the class, or use another card",
                            number=error.code,
                        ) from error
    except (OSError, pyroute2.NetlinkError) as error:
        raise errors.KernelRefused(
            f"cannot set up virtual functions of {interface} ({error}): allow netlink sockets (AF_NETLINK) here"
        ) from error


def find_used(interfaces: Collection[str]) -> dict[str, str] | None:
    """Return the interfaces that are in use, with the reason, or None if that is unknown.

    An interface outside this network namespace counts as in use.
    """
    try:
        netdevs = read()
    except errors.NetlinkError:
        return None
    return select_used(interfaces, netdevs)


def select_used(interfaces: Collection[str], netdevs: Mapping[str, Netdev]) -> dict[str, str]:
    """Return the interfaces that are in use, as `find_used` does, from known interfaces."""
    uses = {}
    for name in interfaces:
        netdev = netdevs.get(name)
        use = "is in another network namespace than this daemon" if netdev is None else netdev.use
        if use is not None:
            uses[name] = use
    return uses
