"""The state of the eviction double: slices, rules, allocated claims, and the evictions due; pure.

It is updated with each change: a claim is evaluated again only when it changes, when the NoExecute taints of one of
its devices change, or when a rule does. A slice that is rewritten unchanged costs only a look at its pool.
"""

from collections.abc import Iterable, Iterator

import msgspec

from drawbar.mocks.claims import documents
from drawbar.mocks.eviction import plan
from drawbar.mocks.scheduler import objects, taintrules

Pool = tuple[str, str]


class Board:
    """The state. Every change returns the claims whose users must be checked."""

    def __init__(self) -> None:
        # None while the API server has no rates of taints.
        self.usual_rate: int | None = None
        self.claims: dict[documents.Key, documents.Document] = {}
        self.evictions: dict[documents.Key, plan.Eviction] = {}
        self.rules: dict[str, taintrules.Rule] = {}
        self._slices: dict[Pool, dict[str, objects.Slice]] = {}
        self._taints: dict[Pool, plan.Taints] = {}

    @property
    def slices(self) -> Iterator[objects.Slice]:
        """Yield all slices."""
        return (item for pool in self._slices.values() for item in pool.values())

    def claim_changed(
        self, old: documents.Document | None, new: documents.Document | None
    ) -> tuple[documents.Document, ...]:
        """Record the change of a claim; return the claim before and after it."""
        if old is not None:
            self.claims.pop(old.key, None)
            self.evictions.pop(old.key, None)
        if new is not None and documents.allocation(new) is not None:
            self.claims[new.key] = new
            self._update(new)
        return tuple(claim for claim in (old, new) if claim is not None)

    def slice_changed(
        self, old: objects.Slice | None, new: objects.Slice | None
    ) -> tuple[documents.Document, ...]:
        """Record the change of a slice; return the claims of devices whose taints changed."""
        for item in (old, new):
            if item is not None:
                self._slices.setdefault(_pool(item), {}).pop(item.metadata.name, None)
        if new is not None:
            self._slices[_pool(new)][new.metadata.name] = new
        touched: set[documents.DeviceID] = set()
        for pool in {_pool(item) for item in (old, new) if item is not None}:
            before = self._taints.pop(pool, {})
            after = plan.evicting_taints(self._slices[pool].values())
            if after:
                self._taints[pool] = after
            if not self._slices[pool]:
                del self._slices[pool]
            touched |= {device for device in {*before, *after} if before.get(device) != after.get(device)}
        if not touched:
            return ()
        return self._update_all(claim for claim in self.claims.values() if _has_any(claim, touched))

    def rule_changed(
        self, old: taintrules.Rule | None, new: taintrules.Rule | None
    ) -> tuple[documents.Document, ...]:
        """Record the change of a rule; return the claims whose eviction changed."""
        if old is not None:
            self.rules.pop(old.metadata.uid, None)
        if new is not None:
            self.rules[new.metadata.uid] = new
        if old is not None and new is not None and old.spec == new.spec:
            return ()
        return self._update_all(self.claims.values())

    def eviction_of(self, pod: documents.Document) -> plan.Eviction | None:
        """Return the pod's eviction; None if it may stay."""
        return plan.pod_eviction(pod, self.claims, self.evictions)

    def find_pods_to_evict(
        self, rule: taintrules.Rule, pods: Iterable[documents.Document]
    ) -> tuple[documents.Document, ...]:
        """Return the pods that the rule evicts, or would evict if its effect were NoExecute."""
        evictions = self.evictions
        if rule.spec.taint.effect != plan.NO_EXECUTE:
            taint = msgspec.structs.replace(rule.spec.taint, effect=plan.NO_EXECUTE)
            supposed = msgspec.structs.replace(rule, spec=msgspec.structs.replace(rule.spec, taint=taint))
            by_claim = {key: plan.claim_eviction(claim, {}, [supposed]) for key, claim in self.claims.items()}
            evictions = {key: eviction for key, eviction in by_claim.items() if eviction is not None}
        alive = (pod for pod in pods if not documents.is_deleting(pod))
        judged = ((pod, plan.pod_eviction(pod, self.claims, evictions)) for pod in alive)
        return tuple(
            pod for pod, eviction in judged if eviction is not None and rule.metadata.uid in eviction.rules
        )

    def _update_all(self, claims: Iterable[documents.Document]) -> tuple[documents.Document, ...]:
        return tuple(claim for claim in tuple(claims) if self._update(claim))

    def _update(self, claim: documents.Document) -> bool:
        """Compute the eviction of a claim; return whether it changed."""
        before = self.evictions.pop(claim.key, None)
        taints = {
            device: taints
            for pool in {(result["driver"], result["pool"]) for result in documents.results(claim)}
            for device, taints in self._taints.get(pool, {}).items()
        }
        after = plan.claim_eviction(claim, taints, self.rules.values(), self.usual_rate)
        if after is not None:
            self.evictions[claim.key] = after
        return before != after


def _pool(item: objects.Slice) -> Pool:
    return item.spec.driver, item.spec.pool.name


def _has_any(claim: documents.Document, devices: set[documents.DeviceID]) -> bool:
    return any(
        (result["driver"], result["pool"], result["device"]) in devices for result in documents.results(claim)
    )
