"""The pods that name each claim, updated with each change. Pure."""

from collections.abc import Collection

from drawbar.mocks.claims import documents


class Users:
    """The index; its size is that of the pods' lists of claims together."""

    def __init__(self) -> None:
        self._pods: dict[documents.Key, set[documents.Key]] = {}

    def for_claim(self, claim: documents.Key) -> Collection[documents.Key]:
        """Return the pods that name the claim."""
        return self._pods.get(claim, frozenset())

    def pod_changed(self, old: documents.Document | None, new: documents.Document | None) -> None:
        """Update the index with the claims that a pod names."""
        if old is not None:
            for claim in _claims(old):
                left = self._pods.get(claim, set())
                left.discard(old.key)
                if not left:
                    self._pods.pop(claim, None)
        if new is not None:
            for claim in _claims(new):
                self._pods.setdefault(claim, set()).add(new.key)


def _claims(pod: documents.Document) -> list[documents.Key]:
    return [(pod.metadata.namespace, name) for _, name, _ in documents.pod_claims(pod) if name]
