"""The changes that justify another attempt for a waiting pod; pure.

They are the hints of the real scheduler's plugin. A release with the gate SchedulerQueueingHints off, the default
before 1.32, wakes up more often, for any change of any claim, class or context.

Source: pkg/scheduler/framework/plugins/dynamicresources of Kubernetes 1.31.
"""

from collections.abc import Collection

from drawbar.mocks.claims import documents
from drawbar.mocks.scheduler.classic import objects


def claim_changed(old: documents.Document | None, new: documents.Document | None) -> bool:
    """Return true if the claim's pods should try again. A change of finalizers only does not count."""
    if new is None:
        return False
    return old is None or old.metadata.uid != new.metadata.uid or old.status != new.status


def context_changed(
    pending: Collection[str], old: documents.Document | None, new: documents.Document | None
) -> bool:
    """Return true if the context's pod should try again.

    Args:
        pending: the pod's entries with unallocated claims.
        old: the previous context.
        new: the present context; None after its deletion by the scheduler.

    Raises:
        msgspec.ValidationError: the context violates the API.
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
