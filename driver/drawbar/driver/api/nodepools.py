"""The pools that a node publishes of its own, and the null device in them, as both daemons name them.

Source: `resource.k8s.io/v1` ResourcePool.name (DNS subdomains joined by `/`).
"""

from collections.abc import Iterable

NULL_DEVICE = "none"
"""What a request gets that may go without a device; `docs/local-pool.md`."""


def pool(node_name: str, number: int = 0) -> str:
    """The pool of a node, or its further ones for more devices than one slice holds.

    They are told by a `/`, which no node's name has: `node/1` is never the pool of a node called `node-1`.
    """
    return f"{node_name}/{number}" if number else node_name


def without(requests: Iterable[str], node_name: str) -> tuple[tuple[str, str, str], ...]:
    """Request, pool and device of those requests on that node that go without: the null device."""
    return tuple((request, pool(node_name), NULL_DEVICE) for request in requests)


def is_pool(name: str, node_name: str) -> bool:
    """Whether that pool is one of the node's."""
    first, slash, number = name.partition("/")
    return first == node_name and (
        not slash or (number.isascii() and number.isdecimal() and number[0] != "0")
    )
