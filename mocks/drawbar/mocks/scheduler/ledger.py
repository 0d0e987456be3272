"""What the scheduler has given out and how full the nodes are, kept current change by change. Pure.

A cycle that summed up all claims and all pods anew would make a thousand pods wait a thousand times longer, not ten
times: the real scheduler keeps such an account too (its assume cache and its node infos).
"""

from collections import Counter
from collections.abc import Iterable

from drawbar.mocks.claims import documents
from drawbar.mocks.scheduler import objects, plan, usage


class Ledger:
    """The account. A claim counts once: by what is stored, or until that is there by the allocation under way."""

    def __init__(self) -> None:
        self._tally = usage.Tally()
        self._allocated: set[str] = set()
        self._under_way: dict[str, objects.Allocation] = {}
        self._pods: Counter[str] = Counter()

    @property
    def used(self) -> usage.Usage:
        """What all claims and the allocations under way have."""
        return self._tally.total()

    def pods_on(self, node: str) -> int:
        """How many pods the node has, or is about to have."""
        return self._pods[node]

    def is_under_way(self, claim_uid: str) -> bool:
        """Whether a pod in its binding cycle brings an allocation for the claim."""
        return claim_uid in self._under_way

    def begin(self, placement: plan.Placement) -> None:
        """A binding cycle begins."""
        self._pods[placement.node] += 1
        self._under_way.update(placement.allocations)
        self._count(uid for uid in placement.allocations if uid not in self._allocated)

    def end(self, placement: plan.Placement) -> None:
        """It is over, however it went."""
        self._pods[placement.node] -= 1
        for uid in placement.allocations:
            self._under_way.pop(uid, None)
        self._count(uid for uid in placement.allocations if uid not in self._allocated)

    def claim_changed(self, old: documents.Document | None, new: documents.Document | None) -> None:
        """Takes over what is stored of a claim."""
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
        """Takes over where a pod is; one that is done takes no place."""
        for pod, number in ((old, -1), (new, 1)):
            if pod is not None and not documents.is_done(pod):
                self._pods[documents.node_name(pod)] += number

    def _forget(self, uid: str) -> None:
        self._allocated.discard(uid)
        self._count([uid])

    def _count(self, uids: Iterable[str]) -> None:
        """Counts claims without a stored allocation by what is under way for them."""
        for uid in uids:
            allocated = self._under_way.get(uid)
            self._tally.put(uid, usage.of_allocation(allocated) if allocated is not None else ())
