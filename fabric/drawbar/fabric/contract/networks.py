"""The addresses that adapters may connect to.

The editor of a Fabric chooses its endpoint. The controller can reach more addresses than the editor, such as the
metadata service of a cloud. So an adapter resolves the name, and checks each address just before it connects.
"""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# Metadata services at addresses that are not link-local: AWS by IPv6, Azure, Alibaba, Oracle.
METADATA = frozenset(
    ipaddress.ip_address(address)
    for address in ("fd00:ec2::254", "168.63.129.16", "100.100.100.200", "192.0.0.192")
)
# RFC 6052: its last 32 bits are an IPv4 address.
_TRANSLATED = ipaddress.IPv6Network("64:ff9b::/96")


@dataclass(frozen=True, slots=True, kw_only=True)
class Networks:
    """The networks that an administrator allows.

    Attributes:
        allowed: the only allowed networks; empty for all except loopback, link-local and multicast addresses and the
            metadata services of clouds.
    """

    allowed: tuple[Network, ...] = ()

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Self:
        """Return the networks named by the texts, such as 10.0.0.0/8.

        Raises:
            ValueError: a text is no network.
        """
        return cls(allowed=tuple(ipaddress.ip_network(text) for text in texts))

    def permits(self, text: str) -> bool:
        """Return whether an adapter may connect to the address; a text that is no address is not permitted."""
        try:
            address = _plain(ipaddress.ip_address(text.partition("%")[0]))
        except ValueError:
            return False
        if self.allowed:
            return any(address in network for network in self.allowed)
        return not (
            address.is_loopback
            or address.is_link_local
            or address.is_multicast
            or address.is_unspecified
            or address in METADATA
        )


def _plain(address: Address) -> Address:
    """Return the IPv4 address within an IPv6 address, or the address itself if there is none."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _TRANSLATED:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address
