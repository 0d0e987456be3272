"""The null device, for a request that works without a device: the last alternative of its `firstAvailable`.

It has no function on a bus, no health, no binding conditions and no attachment. Its container gets only one variable,
`DRAWBAR_<REQUEST>=none`. Each node publishes it in its own pool, so that only nodes with a node daemon offer it. A pool
for all nodes would send pods to nodes without one.

If the API server keeps `allowMultipleAllocations` (gate DRAConsumableCapacity), it is one device without capacities,
shared by any number of claims. Otherwise the node has several copies, one for each claim.

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

# The value for selectors. Every device has the attribute, so selectors for other classes are false for it, not errors.
CLASS = "none"
VALUE = "none"
COPIES_MAX = 48
"""Leaves room for other devices in a slice of 64 devices."""
_COPY = re.compile(r"none-[1-9][0-9]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class NullDevice:
    """The settings of the null device.

    Attributes:
        enabled: offer the null device on this node.
        copies: the most claims with a null device if the API server cannot share one.
    """

    enabled: bool = False
    copies: int = 16


def problems(settings: NullDevice) -> list[str]:
    """Return one sentence for each invalid value."""
    if 1 <= settings.copies <= COPIES_MAX:
        return []
    return [f"copies {settings.copies} is not a number from 1 to {COPIES_MAX}"]


def is_null(device: str) -> bool:
    """Return whether a device of a node's own pool with this name is the null device or one of its copies."""
    return device == nodepools.NULL_DEVICE or is_copy(device)


def is_copy(device: str) -> bool:
    """Return whether this is the name of one of several copies."""
    return _COPY.fullmatch(device) is not None


def offers(settings: NullDevice, *, shared: bool) -> tuple[plan.Offer, ...]:
    """Return the null devices to publish.

    Args:
        settings: the configuration.
        shared: whether this API server lets many claims share one device.
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
        f"the API server does not keep {encoding.SHARING} (feature gate DRAConsumableCapacity): node {node_name} "
        f"has {settings.copies} null devices, so at most {settings.copies} claims can go without a device there"
    )


def label(requests: Iterable[str]) -> str:
    """Return its CDI name after the claim's uid: a container gets only the variables of its own requests.

    No device's name has a dot, so this name never collides with a device.
    """
    return ".".join((nodepools.NULL_DEVICE, *requests))


def content(claim_uid: str, requests: tuple[str, ...]) -> spec.Device:
    """Return the container's edits instead of a device."""
    return spec.Device(
        name=f"{claim_uid}-{label(requests)}",
        edits=spec.ContainerEdits(env=tuple(f"{variable(request)}={VALUE}" for request in requests)),
    )


def variable(request: str) -> str:
    """Return `DRAWBAR_<REQUEST>`, with `_` for characters that no variable's name may have."""
    return "DRAWBAR_" + edits.ENVIRONMENT_SAFE.sub("_", request.upper())


def is_here(pool: str, device: str, node_name: str) -> bool:
    """Return whether this is the null device of this node."""
    return is_null(device) and nodepools.is_pool(pool, node_name)
