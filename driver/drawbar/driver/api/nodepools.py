"""The pools that a node publishes itself, and their null device, under the names that both daemons use.

Source: `resource.k8s.io/v1` ResourcePool.name (DNS subdomains joined by `/`).
"""

from collections.abc import Iterable

NULL_DEVICE = "none"
"""Allocated to an optional request without a device; `docs/local-pool.md`."""


def pool(node_name: str, number: int = 0) -> str:
    """Return the name of a node's pool, or of a further one for more devices than one slice holds.

    Further pools have a `/`, which no node's name has: `node/1` is never the pool of a node called `node-1`.
    """
    return f"{node_name}/{number}" if number else node_name


def null_devices(requests: Iterable[str], node_name: str) -> tuple[tuple[str, str, str], ...]:
    """Return request, pool and device of the requests on a node that get the null device."""
    return tuple((request, pool(node_name), NULL_DEVICE) for request in requests)


def is_pool(name: str, node_name: str) -> bool:
    """Return whether this is a pool of the node."""
    first, slash, number = name.partition("/")
    return first == node_name and (
        not slash or (number.isascii() and number.isdecimal() and number[0] != "0")
    )
