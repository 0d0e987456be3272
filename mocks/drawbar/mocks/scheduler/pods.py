"""The pods of this scheduler, and their relevant changes. Pure."""

from drawbar.mocks.claims import documents

COMPONENT = "default-scheduler"


def wants_node(pod: documents.Document) -> bool:
    """Return true if this scheduler should place the pod now."""
    return (
        not documents.node_name(pod)
        and not documents.is_deleting(pod)
        and not documents.is_finished(pod)
        and not pod.spec.get("schedulingGates")
        and pod.spec.get("schedulerName", COMPONENT) == COMPONENT
    )


def is_news(old: documents.Document | None, new: documents.Document) -> bool:
    """Return true if the pod may fit after the change. The scheduler's own status writes do not count."""
    if old is None or old.metadata.uid != new.metadata.uid:
        return True
    return old.spec != new.spec or _get_claim_statuses(old) != _get_claim_statuses(new)


def _get_claim_statuses(pod: documents.Document) -> object:
    return pod.status.get("resourceClaimStatuses")
