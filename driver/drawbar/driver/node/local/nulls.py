"""The null device: what a request gets that can do without a device, as the last alternative of its `firstAvailable`.

It has no function on a bus, no health, no binding conditions and no attachment. Its container gets one variable,
`DRAWBAR_<REQUEST>=none`, and nothing else. Each node publishes it in its own pool, so that it is offered only where a node
daemon can prepare it; a pool for all nodes would send pods to nodes without one.

Where the API server keeps `allowMultipleAllocations` (gate DRAConsumableCapacity), it is one device without capacities,
which any number of claims share. Where it drops that, the node has a number of copies instead, one for each claim.

Source: KEP-5075 (consumable capacity), KEP-4816 (prioritised alternatives), KEP-3063 ("Optional resources").
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from drawbar.cdi import spec
from drawbar.driver.api import nodepools, slices
from drawbar.driver.node import edits
from drawbar.driver.node.local import plan
from drawbar.driver.slices import encoding

# What selectors find it by. Every device has the attribute, so a selector of another class is false for it, and no error.
CLASS = "none"
VALUE = "none"
COPIES_MAX = 48
"""Leaves room beside them in a slice of 64 devices."""
_COPY = re.compile(r"none-[1-9][0-9]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class NullDevice:
    """Whether a request may go without a device.

    Attributes:
        enabled: offer the null device on this node.
        copies: how many claims at a time may go without on this node where the API server cannot share a device.
    """

    enabled: bool = False
    copies: int = 16


def problems(settings: NullDevice) -> list[str]:
    """One sentence for each wrong value."""
    if 1 <= settings.copies <= COPIES_MAX:
        return []
    return [f"copies {settings.copies} is not a number from 1 to {COPIES_MAX}"]


def is_null(device: str) -> bool:
    """Whether a device of a node's own pool with this name is the null device, or a copy of it."""
    return device == nodepools.NULL_DEVICE or is_copy(device)


def is_copy(device: str) -> bool:
    """Whether it is one of several copies, by such a name."""
    return _COPY.fullmatch(device) is not None


def offers(settings: NullDevice, *, shared: bool) -> tuple[plan.Offer, ...]:
    """What a node publishes.

    Args:
        settings: the configuration.
        shared: whether this API server lets many claims have one device.
    """
    if not settings.enabled:
        return ()
    attributes = {"class": slices.Attribute(string=CLASS)}
    if shared:
        device = slices.Device(
            name=nodepools.NULL_DEVICE, attributes=attributes, allow_multiple_allocations=True
        )
        return (plan.Offer(device=device, has_health=False),)
    copies = (f"{nodepools.NULL_DEVICE}-{number}" for number in range(1, settings.copies + 1))
    return tuple(
        plan.Offer(device=slices.Device(name=name, attributes=attributes), has_health=False)
        for name in copies
    )


def shortage(settings: NullDevice, node_name: str) -> str:
    """Return the message that explains the copies."""
    return (
        f"the API server does not keep {encoding.SHARING} (feature gate DRAConsumableCapacity): the null device of node "
        f"{node_name} is there in {settings.copies} copies, so no more than {settings.copies} claims at a time can go "
        f"without a device there"
    )


def label(requests: Iterable[str]) -> str:
    """Return its CDI name behind the claim's uid: a container gets the variables of its own requests alone.

    No device's name has a dot, so it is never taken for a device.
    """
    return ".".join((nodepools.NULL_DEVICE, *requests))


def content(claim_uid: str, requests: tuple[str, ...]) -> spec.Device:
    """What a container gets instead of a device."""
    return spec.Device(
        name=f"{claim_uid}-{label(requests)}",
        edits=spec.ContainerEdits(env=tuple(f"{variable(request)}={VALUE}" for request in requests)),
    )


def variable(request: str) -> str:
    """`DRAWBAR_<REQUEST>`; what no variable's name may have becomes `_`."""
    return "DRAWBAR_" + edits.ENVIRONMENT_SAFE.sub("_", request.upper())


def is_here(pool: str, device: str, node_name: str) -> bool:
    """Whether it is the null device of this node."""
    return is_null(device) and nodepools.is_pool(pool, node_name)
