"""The additional actions of the claim controller with classic DRA, computed from one claim; pure.

Invariants: this controller never clears an allocation made by a driver; it requests the deallocation
(`deallocationRequested`). It does so only when the last consumer is removed: a driver need not reserve what it
allocates, so an allocated claim without a consumer may be about to be used.

Source: kubernetes/kubernetes pkg/controller/resourceclaim/controller.go of 1.30 and 1.31; KEP-3063.
"""

from collections.abc import Collection
from typing import Any

from drawbar.mocks.claims import dialects, documents
from drawbar.mocks.claims import plan as modern


def for_claim(
    claim: documents.Document, pods: Collection[documents.Document], *, owner_done: bool
) -> tuple[modern.ClaimAction, ...]:
    """Return the actions for a claim; the arguments are those of `claims.plan.for_claim`."""
    if documents.PROTECTION_FINALIZER in claim.metadata.finalizers:
        # The scheduler allocated it.
        return modern.for_claim(claim, pods, owner_done=owner_done)
    actions: list[modern.ClaimAction] = []
    reserved = documents.reserved_for(claim)
    valid = modern.valid_consumers(reserved, pods)
    if len(valid) < len(reserved):
        changes: dict[str, Any] = {"reservedFor": valid or None}
        if not valid and dialects.is_delayed(claim):
            changes["deallocationRequested"] = True
        actions.append(modern.WriteStatus(claim=documents.with_status(claim, **changes)))
    if owner_done and not valid and not documents.is_deleting(claim):
        actions.append(modern.DeleteClaim())
    return tuple(actions)
