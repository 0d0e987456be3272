"""Network interfaces with their addresses and state, over rtnetlink: sysfs knows no addresses.

`pyroute2` costs 13 MB once it is imported, so that happens at the first question only, and whoever asks does so only
where a NIC is. What is answered is of the network namespace that this process is in, which need not be the one of the
sysfs tree: what that shows and this does not is not known to be free.
"""

import contextlib
import dataclasses
import ipaddress
from collections.abc import Collection, Mapping
from typing import Any

from drawbar.driver.node import errors

ELSEWHERE = ("192.0.2.1", "2001:db8::1")
"""For documentation (RFC 5737, RFC 3849), so that only a default route leads there."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Netdev:
    """One network interface.

    Attributes:
        hardware_address: such as `02:00:00:00:00:01`.
        mtu_bytes: the largest packet.
        up: whether an administrator set it up, be there a link or not.
        state: `UP`, `DOWN`, `LOWERLAYERDOWN`, `UNKNOWN`, ... (RFC 2863).
        master: the name of the bridge or bond that it is part of.
        above: the names of those that stand on it, such as `eth0.100` of a VLAN.
        is_way_out: the host's packets to anywhere else leave by it.
        addresses: IPv4 and IPv6 with their prefix lengths, such as `192.0.2.2/24`.
    """

    name: str
    hardware_address: str | None
    mtu_bytes: int | None
    up: bool
    state: str
    master: str | None
    addresses: tuple[str, ...]
    above: tuple[str, ...] = ()
    is_way_out: bool = False

    @property
    def use(self) -> str | None:
        """What the host uses it for, as the end of a sentence; a link-local address alone is no use."""
        for address in self.addresses:
            if not ipaddress.ip_interface(address).is_link_local:
                return f"has the address {address}"
        if self.master is not None:
            return f"belongs to {self.master}"
        if self.above:
            return f"carries {self.above[0]}"
        return "has the default route" if self.is_way_out else None


def read() -> dict[str, Netdev]:
    """Every interface of this network namespace, by name; blocks for some milliseconds.

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
    names = {link["index"]: str(link.get_attr("IFLA_IFNAME")) for link in links}
    by_index: dict[int, list[str]] = {}
    for address in addresses:
        # Of a tunnel's two ends the local one is ours.
        ours = address.get_attr("IFA_LOCAL") or address.get_attr("IFA_ADDRESS")
        if ours is not None:
            by_index.setdefault(address["index"], []).append(f"{ours}/{address['prefixlen']}")
    above: dict[int, list[str]] = {}
    for link in links:
        below = link.get_attr("IFLA_LINK")
        # The other end of a pair in another namespace has a number of that one.
        if below is not None and below != link["index"] and link.get_attr("IFLA_LINK_NETNSID") is None:
            above.setdefault(below, []).append(names[link["index"]])
    return {
        names[link["index"]]: dataclasses.replace(
            _netdev(link, names, by_index.get(link["index"], []), above.get(link["index"], [])),
            is_way_out=link["index"] in ways_out,
        )
        for link in links
    }


def _ways_out(route: Any) -> set[int]:
    """The indexes of the interfaces by which packets to addresses leave that no network has: one question, however many routes."""
    import pyroute2

    indexes = set()
    for destination in ELSEWHERE:
        # Without a route to it the kernel refuses the question.
        with contextlib.suppress(pyroute2.NetlinkError):
            for answer in route.route("get", dst=destination):
                indexes.add(answer.get_attr("RTA_OIF"))
    return indexes


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FunctionLink:
    """What a network card does for a virtual function; None for what it does by itself."""

    hardware_address: str | None = None
    vlan: int | None = None
    trust: bool | None = None
    spoof_check: bool | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """What is set, by the names that `pyroute2` has for it."""
        settings = {
            "mac": self.hardware_address,
            "vlan": self.vlan,
            "trust": self.trust,
            "spoofchk": self.spoof_check,
        }
        return {name: value for name, value in settings.items() if value is not None}


def set_up_functions(interface: str, links: Mapping[int, FunctionLink]) -> None:
    """Set an interface up, and through it virtual functions of its physical function; blocks for some milliseconds.

    Args:
        interface: its name.
        links: by number of a virtual function.

    Raises:
        KernelRefused: the card's driver does not do it, or the interface is not here.
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
                # Each by itself: a driver may refuse one setting, and which one is to be known.
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


def held(interfaces: Collection[str]) -> dict[str, str] | None:
    """Of these interfaces those that must not be taken away, with the reason; None if that is unknown.

    One that this namespace does not have is held by whoever has it.
    """
    try:
        netdevs = read()
    except errors.NetlinkError:
        return None
    return judged(interfaces, netdevs)


def judged(interfaces: Collection[str], netdevs: Mapping[str, Netdev]) -> dict[str, str]:
    """As `held`, of what is known."""
    uses = {}
    for name in interfaces:
        netdev = netdevs.get(name)
        use = "is in another network namespace than this daemon" if netdev is None else netdev.use
        if use is not None:
            uses[name] = use
    return uses


def _netdev(link: Any, names: Mapping[int, str], addresses: list[str], above: list[str]) -> Netdev:
    master = link.get_attr("IFLA_MASTER")
    return Netdev(
        name=names[link["index"]],
        hardware_address=link.get_attr("IFLA_ADDRESS"),
        mtu_bytes=link.get_attr("IFLA_MTU"),
        up=bool(link["flags"] & 1),  # IFF_UP
        state=link.get_attr("IFLA_OPERSTATE") or "UNKNOWN",
        master=names.get(master, f"interface {master}") if master else None,
        addresses=tuple(sorted(addresses)),
        above=tuple(sorted(above)),
    )
