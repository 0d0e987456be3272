"""Which pods a scheduler has to do with, and what of them is news to it. Pure."""

from drawbar.mocks.claims import documents

COMPONENT = "default-scheduler"


def wants_node(pod: documents.Document) -> bool:
    """Whether the pod is for this scheduler to place, now."""
    return (
        not documents.node_name(pod)
        and not documents.is_deleting(pod)
        and not documents.is_finished(pod)
        and not pod.spec.get("schedulingGates")
        and pod.spec.get("schedulerName", COMPONENT) == COMPONENT
    )


def is_news(old: documents.Document | None, new: documents.Document) -> bool:
    """Whether the pod may fit now as it did not before. The status that a scheduler writes itself is no news."""
    if old is None or old.metadata.uid != new.metadata.uid:
        return True
    return old.spec != new.spec or _recorded(old) != _recorded(new)


def _recorded(pod: documents.Document) -> object:
    return pod.status.get("resourceClaimStatuses")
