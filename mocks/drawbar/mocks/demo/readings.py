"""Reads out of a claim who got what, in whatever version of `resource.k8s.io` the API server has it.

In `v1` the claim itself says how far its device is. In the classic versions it says nothing until the device is there;
until then the DeviceAttachment tells.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from drawbar.driver.api import bindings, claims, classic, classic_v1alpha2, classic_v1alpha3, drivers
from drawbar.mocks.demo import progress

DRIVER = drivers.DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How claims of one version are read.

    Attributes:
        into: what one is decoded into.
        sighting: what is seen of it; None where that is of no concern.
    """

    into: Any
    sighting: Callable[[Any, str], progress.ClaimSeen | None]


class _OwnedClaim(claims.ResourceClaim, frozen=True):
    """A claim with all of its metadata: the driver itself does not keep the owners, by which the demo knows the pod."""

    def __post_init__(self) -> None:
        """Keep what was decoded."""


def of(version: str) -> Reading:
    """The reading of a version: v1, v1alpha3 or v1alpha2."""
    return _READINGS[version]


def _modern(found: claims.ResourceClaim, pod: str) -> progress.ClaimSeen | None:
    results = found.results(DRIVER)
    if found.status.allocation is None or not results:
        return None
    result = results[0]
    key = bindings.Key(pool=result.pool, device=result.device)
    return progress.ClaimSeen(
        uid=found.metadata.uid,
        pod=pod,
        pool=result.pool,
        device=result.device,
        node=found.status.allocation.node or "",
        attached=bindings.is_true(found, DRIVER, key, bindings.ATTACHED),
        visible=bindings.is_true(found, DRIVER, key, bindings.VISIBLE),
    )


def _v1alpha3(found: classic_v1alpha3.ResourceClaim, pod: str) -> progress.ClaimSeen:
    return _classic(classic_v1alpha3.claim(found, DRIVER), pod)


def _v1alpha2(found: classic_v1alpha2.ResourceClaim, pod: str) -> progress.ClaimSeen:
    return _classic(classic_v1alpha2.claim(found, DRIVER), pod)


def _classic(found: classic.Claim, pod: str) -> progress.ClaimSeen:
    handle = found.allocation.handle if found.allocation is not None else None
    if found.allocation is None or handle is None or not handle.devices:
        return progress.ClaimSeen(uid=found.uid, pod=pod, allocated=False)
    device = handle.devices[0]
    node = found.allocation.node or ""
    return progress.ClaimSeen(uid=found.uid, pod=pod, pool=device.pool, device=device.device, node=node)


_READINGS = {
    "v1": Reading(into=_OwnedClaim, sighting=_modern),
    "v1alpha3": Reading(into=classic_v1alpha3.ResourceClaim, sighting=_v1alpha3),
    "v1alpha2": Reading(into=classic_v1alpha2.ResourceClaim, sighting=_v1alpha2),
}
