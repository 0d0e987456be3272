"""The scheduler's account of allocations and of pods on nodes, updated change by change. Pure.

A new sum in each cycle would make the work grow with the square of the number of pods. The real scheduler keeps such
an account too (its assume cache and its node infos).
"""

from collections import Counter
from collections.abc import Iterable

from drawbar.mocks.claims import documents
from drawbar.mocks.scheduler import objects, plan, usage


class Ledger:
    """The account. A claim counts once: by its stored allocation, or before that by the one in progress."""

    def __init__(self) -> None:
        self._tally = usage.Tally()
        self._allocated: set[str] = set()
        self._under_way: dict[str, objects.Allocation] = {}
        self._pods: Counter[str] = Counter()

    @property
    def used(self) -> usage.Usage:
        """Return the usage by all claims and by allocations in progress."""
        return self._tally.total()

    def pods_on(self, node: str) -> int:
        """Return the number of pods on the node, including those in their binding cycle."""
        return self._pods[node]

    def is_under_way(self, claim_uid: str) -> bool:
        """Return true if a pod in its binding cycle brings an allocation for the claim."""
        return claim_uid in self._under_way

    def begin(self, placement: plan.Placement) -> None:
        """Record the start of a binding cycle."""
        self._pods[placement.node] += 1
        self._under_way.update(placement.allocations)
        self._count(uid for uid in placement.allocations if uid not in self._allocated)

    def end(self, placement: plan.Placement) -> None:
        """Record the end of a binding cycle, with success or failure."""
        self._pods[placement.node] -= 1
        for uid in placement.allocations:
            self._under_way.pop(uid, None)
        self._count(uid for uid in placement.allocations if uid not in self._allocated)

    def claim_changed(self, old: documents.Document | None, new: documents.Document | None) -> None:
        """Record the stored state of a claim."""
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._forget(old.metadata.uid)
        if new is None:
            return
        if documents.allocation(new) is None:
            self._forget(new.metadata.uid)
        else:
            self._allocated.add(new.metadata.uid)
            self._tally.put(new.metadata.uid, usage.of_claim(new))

    def pod_changed(self, old: documents.Document | None, new: documents.Document | None) -> None:
        """Record the node of a pod; finished pods do not count."""
        for pod, number in ((old, -1), (new, 1)):
            if pod is not None and not documents.is_done(pod):
                self._pods[documents.node_name(pod)] += number

    def _forget(self, uid: str) -> None:
        self._allocated.discard(uid)
        self._count([uid])

    def _count(self, uids: Iterable[str]) -> None:
        """Count claims without a stored allocation by their allocations in progress."""
        for uid in uids:
            allocated = self._under_way.get(uid)
            self._tally.put(uid, usage.of_allocation(allocated) if allocated is not None else ())
