"""The writing of a daemon's reports on a claim's devices into the claim's status.

It uses server-side apply. An API server writes JSON in its own form (keys in order, `1` and not `1.0`). If a claim's
opaque parameters have another form, it rewrites them, and then refuses that as a change of the immutable allocation.
Programs that make claims from typed objects write their keys in another order. Such a claim is written by a JSON
patch, which leaves the rest of the object unchanged. Spaces between the parameters defeat the patch too: no JSON
client can write such a claim, and the refusal is raised.

Source: RawExtension, k8s.io/apimachinery/pkg/runtime; ValidateResourceClaimStatusUpdate,
pkg/apis/resource/validation.
"""

from typing import Any

from drawbar.driver.api import bindings, claims
from drawbar.driver.kube import client, errors, kinds

_REWRITTEN = "status.allocation: Invalid value"


async def apply(
    api: client.Client, claim: claims.ResourceClaim, body: dict[str, Any], *, manager: str
) -> claims.ResourceClaim:
    """Apply `body` to a claim's status and return the stored claim.

    Args:
        api: client of the API server.
        claim: the claim from which `body` was made.
        body: from `bindings.build_apply`.
        manager: the field manager of the applied fields.

    Raises:
        errors.KubeError: one of its kinds; errors.Conflict if the claim was replaced in the meantime.
    """
    try:
        return await _patch(api, claim, body, client.Patch.APPLY, manager)
    except errors.Invalid as error:
        if _REWRITTEN not in str(error):
            raise
    return await _patch(api, claim, bindings.operations(claim, body), client.Patch.JSON, manager)


async def _patch(
    api: client.Client, claim: claims.ResourceClaim, body: object, content: client.Patch, manager: str
) -> claims.ResourceClaim:
    return await api.patch(
        kinds.CLAIM,
        claim.metadata.name,
        body,
        content=content,
        into=claims.ResourceClaim,
        namespace=claim.metadata.namespace,
        subresource="status",
        manager=manager,
    )
