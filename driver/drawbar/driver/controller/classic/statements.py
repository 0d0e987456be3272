"""What the controller writes on classic claims and contexts, as merge patches.

Every patch carries the object's uid and resourceVersion, so that a decision on a stale view fails instead of taking
back what somebody else wrote meanwhile.
"""

from typing import Any

import msgspec

from drawbar.driver.api import (
    classic,
    classic_contexts,
    classic_v1alpha2,
    classic_v1alpha3,
    nodepools,
)
from drawbar.driver.controller.classic import actions


def protected(claim: classic.Claim, version: str) -> dict[str, Any]:
    """The claim with our finalizer."""
    return {"metadata": _guard(claim.uid, version) | {"finalizers": [*claim.finalizers, claim.finalizer]}}


def unprotected(claim: classic.Claim, version: str) -> dict[str, Any]:
    """The claim without it."""
    others = [name for name in claim.finalizers if name != claim.finalizer]
    return {"metadata": _guard(claim.uid, version) | {"finalizers": others}}


def allocated(driver: str, action: actions.Allocate, version: str) -> dict[str, Any]:
    """The claim's status with what it got, and with the pod that it is for.

    Raises:
        handles.TooLarge: there is no room for so many devices.
    """
    claim, handle = action.claim, action.handle
    if claim.version is classic.Version.V1ALPHA2:
        status = classic_v1alpha2.allocated(handle, driver, shareable=action.shareable)
    else:
        # A kubelet asks only the drivers of devices.
        nothing = nodepools.without(handle.without, handle.node)
        status = classic_v1alpha3.allocated(handle, driver, nothing, action.config)
    consumers = list(claim.reserved_for)
    if action.pod is not None and all(one.uid != action.pod.uid for one in consumers):
        consumers.append(action.pod)
    if consumers:
        status["reservedFor"] = msgspec.to_builtins(consumers)
    return {"metadata": _guard(claim.uid, version), "status": status}


def freed(claim: classic.Claim, version: str) -> dict[str, Any]:
    """The claim's status without an allocation."""
    is_old = claim.version is classic.Version.V1ALPHA2
    status = classic_v1alpha2.freed() if is_old else classic_v1alpha3.freed()
    return {"metadata": _guard(claim.uid, version), "status": status}


def answered(action: actions.Answer) -> dict[str, Any]:
    """The context's status with our entries; those of others stay."""
    context = action.context
    return {
        "metadata": _guard(context.uid, context.resource_version),
        "status": classic_contexts.answered(context, dict(action.entries)),
    }


def _guard(uid: str, version: str) -> dict[str, Any]:
    return {"uid": uid, "resourceVersion": version}
