"""Reachability: the possible hosts of a device; pure.

In a fabric of several enclosures, zones or switches, a device often reaches some of the hosts only. So an adapter
puts devices and hosts into groups, with ids of its own. A device can go to a host if they have a common group.
Without groups, reachability is unknown, and every host is possible. A host that reaches no device
needs a group of its own.
"""

from collections.abc import Iterable

DEVICE_GROUPS_MAX = 16
HOST_GROUPS_MAX = 256
GROUP_BYTES = 128
"""The most groups of a device and of a host, and the longest id of a group."""


def bound_groups(ids: Iterable[str], *, most: int) -> frozenset[str]:
    """Return the groups with these ids; none if there are too many or one id is too long. No groups rule out no host."""
    named = frozenset(filter(None, ids))
    if len(named) > most or any(len(group.encode()) > GROUP_BYTES for group in named):
        return frozenset()
    return named


def reaches(device_groups: frozenset[str], host_groups: frozenset[str]) -> bool:
    """Return whether a device can go to a host, according to their groups."""
    return not device_groups or not host_groups or not device_groups.isdisjoint(host_groups)
