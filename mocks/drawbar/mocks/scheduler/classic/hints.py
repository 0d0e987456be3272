"""Which news is worth another attempt for a pod that waits; pure.

They are the hints that the real scheduler's plugin gives. A release whose gate SchedulerQueueingHints is off, as it is by
default before 1.32, wakes up more often, for any change of any claim, class or context.

Source: pkg/scheduler/framework/plugins/dynamicresources of Kubernetes 1.31.
"""

from collections.abc import Collection

from drawbar.mocks.claims import documents
from drawbar.mocks.scheduler.classic import objects


def claim_changed(old: documents.Document | None, new: documents.Document | None) -> bool:
    """Whether the pods that use the claim should try again. A finalizer alone is no news."""
    if new is None:
        return False
    return old is None or old.metadata.uid != new.metadata.uid or old.status != new.status


def context_changed(
    pending: Collection[str], old: documents.Document | None, new: documents.Document | None
) -> bool:
    """Whether the context's pod should try again.

    Args:
        pending: the pod's entries whose claims are not allocated.
        old: the context before.
        new: the context now; None when it is gone, as the scheduler itself sees to.

    Raises:
        msgspec.ValidationError: the context is not what the API allows.
    """
    if new is None:
        return False
    answers = objects.answers(new)
    if any(entry not in answers for entry in pending):
        return False
    if old is None:
        return True
    selected = objects.selected_node(new)
    if any(selected in unsuitable for unsuitable in answers.values()):
        return True
    return not (old.spec != new.spec and old.status == new.status)
