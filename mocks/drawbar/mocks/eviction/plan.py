"""The evictions that tainted devices cause. Pure.

Only the effect NoExecute evicts, only the newest generation of a pool counts, and only pods that have a node and a
reservation of the claim are affected. The tolerations of a claim are read from its allocation, not from its requests:
a toleration counts here only if it names the effect NoExecute, and without seconds it has no limit. A driver's taint
without `timeAdded` evicts no pod; a rule's then has the rule's creation time. A rule counts for an allocated device
whether or not the device is published; a driver's taint counts only while it is.

Source: pkg/controller/devicetainteviction of Kubernetes 1.36, as described by the fact pages.
"""

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from drawbar.mocks.claims import documents
from drawbar.mocks.eviction import rates
from drawbar.mocks.kube import meta
from drawbar.mocks.scheduler import matching, objects, taintrules

NO_EXECUTE = "NoExecute"
Taints = Mapping[documents.DeviceID, tuple[objects.Taint, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """The eviction of a pod, or of the users of a claim.

    Attributes:
        when: the earliest time.
        rules: uids of the DeviceTaintRules among the causes.
        limits: the rate limit of each cause.
    """

    when: datetime.datetime
    rules: frozenset[str] = frozenset()
    limits: frozenset[rates.Limit] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The number of devices that a rule selects now, in slices and in allocations."""

    published: int
    allocated: int


def evicting_taints(slices: Iterable[objects.Slice]) -> Taints:
    """Return the NoExecute taints that drivers publish, by device; only those of the newest generations."""
    by_device: dict[documents.DeviceID, tuple[objects.Taint, ...]] = {}
    for item in _current(slices):
        for device in item.spec.devices:
            taints = tuple(taint for taint in device.taints if taint.effect == NO_EXECUTE)
            if taints:
                identity = (item.spec.driver, item.spec.pool.name, device.name)
                by_device[identity] = (*by_device.get(identity, ()), *taints)
        for entry in item.spec.taints:
            if entry.taint.effect == NO_EXECUTE:
                identity = (item.spec.driver, item.spec.pool.name, entry.device)
                by_device[identity] = (*by_device.get(identity, ()), entry.taint)
    return by_device


def claim_eviction(
    claim: documents.Document,
    taints: Taints,
    rules: Iterable[taintrules.Rule],
    usual_rate: int | None = None,
) -> Eviction | None:
    """Return the eviction of the users of an allocated claim; None if they may stay.

    Args:
        claim: the claim.
        taints: the result of `evicting_taints`.
        rules: all DeviceTaintRules; those of other effects are ignored.
        usual_rate: the pods that a taint without a rate may evict per second; None: no limit.
    """
    evicting = [rule for rule in rules if rule.spec.taint.effect == NO_EXECUTE]
    causes: list[Eviction] = []
    for result in documents.results(claim):
        identity = (result["driver"], result["pool"], result["device"])
        tolerations = _tolerations(result)
        for taint in taints.get(identity, ()):
            causes += _evictions(taint, tolerations, rates.driver_limit(result["driver"], taint, usual_rate))
        for rule in evicting:
            if taintrules.selects(rule, identity):
                # The API server sets the time when the rule is created.
                since = rule.spec.taint.time_added or rule.metadata.creation_timestamp
                taint = msgspec.structs.replace(rule.spec.taint, time_added=since)
                limit = rates.rule_limit(rule.metadata.uid, taint, usual_rate)
                causes += _evictions(taint, tolerations, limit, rule.metadata.uid)
    return _earliest(causes)


def pod_eviction(
    pod: documents.Document,
    claims: Mapping[documents.Key, documents.Document],
    evictions: Mapping[documents.Key, Eviction],
) -> Eviction | None:
    """Return the pod's eviction; None if it may stay.

    Args:
        pod: the pod.
        claims: all claims.
        evictions: the results of `claim_eviction` for them.
    """
    if not documents.node_name(pod):
        return None
    causes: list[Eviction] = []
    for _, name, template in documents.pod_claims(pod):
        key = (pod.metadata.namespace, name or "")
        claim = claims.get(key)
        if claim is None or key not in evictions or not documents.is_reserved_for(claim, pod):
            continue
        if template is None or documents.is_owned_by(claim, pod):
            causes.append(evictions[key])
    return _earliest(causes)


def selection(
    rule: taintrules.Rule, slices: Iterable[objects.Slice], claims: Iterable[documents.Document]
) -> Selection:
    """Return the number of devices that the rule selects."""
    published = sum(
        taintrules.selects(rule, (item.spec.driver, item.spec.pool.name, device.name))
        for item in _current(slices)
        for device in item.spec.devices
    )
    allocated = sum(
        taintrules.selects(rule, (result["driver"], result["pool"], result["device"]))
        for claim in claims
        for result in documents.results(claim)
    )
    return Selection(published=published, allocated=allocated)


def _current(slices: Iterable[objects.Slice]) -> list[objects.Slice]:
    every = list(slices)
    newest: dict[tuple[str, str], int] = {}
    for item in every:
        pool = (item.spec.driver, item.spec.pool.name)
        newest[pool] = max(newest.get(pool, item.spec.pool.generation), item.spec.pool.generation)
    return [
        item for item in every if item.spec.pool.generation == newest[item.spec.driver, item.spec.pool.name]
    ]


def _tolerations(result: Mapping[str, Any]) -> tuple[objects.Toleration, ...]:
    """Return the tolerations of the allocation; none if they are malformed, as the data is foreign."""
    try:
        return msgspec.convert(result.get("tolerations") or (), tuple[objects.Toleration, ...])
    except msgspec.ValidationError:
        return ()


def _evictions(
    taint: objects.Taint, tolerations: Sequence[objects.Toleration], limit: rates.Limit | None, rule: str = ""
) -> list[Eviction]:
    """Return the eviction that one taint causes, or none."""
    since = meta.moment(taint.time_added)
    if since is None:
        return []
    fitting = [
        item for item in tolerations if item.effect == NO_EXECUTE and matching.is_tolerated(taint, [item])
    ]
    if any(item.toleration_seconds is None for item in fitting):
        return []
    patience = min((max(0, item.toleration_seconds or 0) for item in fitting), default=0)
    when = since + datetime.timedelta(seconds=patience)
    limits = frozenset({replace(limit, since=when)} if limit is not None else ())
    return [Eviction(when=when, rules=frozenset({rule} if rule else ()), limits=limits)]


def _earliest(evictions: Sequence[Eviction]) -> Eviction | None:
    """Return one eviction for all causes, due with the first of them; None without any."""
    if not evictions:
        return None
    rules = frozenset[str]().union(*(eviction.rules for eviction in evictions))
    limits = frozenset[rates.Limit]().union(*(eviction.limits for eviction in evictions))
    return Eviction(when=min(eviction.when for eviction in evictions), rules=rules, limits=limits)
