"""Constraints between the devices of one claim: equal or distinct values of an attribute. Pure.

A device without the attribute violates both. Values of different types are different.

Source: API reference, DeviceConstraint; the allocator of `k8s.io/dynamic-resource-allocation/structured`.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from drawbar.mocks.scheduler import objects, pools

Named = tuple[str, pools.Candidate]


def are_met(constraints: Iterable[objects.Constraint], chosen: Collection[Named], added: Named) -> bool:
    """Return true if one more device keeps the constraints of its claim.

    Args:
        constraints: the claim's constraints.
        chosen: the claim's devices so far, with their requests (`req` or `req/sub`); they keep the constraints.
        added: the device to add, with its request.
    """
    return all(_holds(constraint, chosen, added) for constraint in constraints)


def names(requests: Collection[str], request: str) -> bool:
    """Return true if a list of requests (empty: all) contains this one; `req` contains all of `req/sub`."""
    return not requests or request in requests or request.partition("/")[0] in requests


def _holds(constraint: objects.Constraint, chosen: Collection[Named], added: Named) -> bool:
    request, candidate = added
    if not names(constraint.requests, request):
        return True
    name = constraint.match_attribute or constraint.distinct_attribute
    value = _attribute(candidate, name)
    if value is None:
        return False
    values = (_attribute(other, name) for asked, other in chosen if names(constraint.requests, asked))
    if constraint.match_attribute:
        return all(other == value for other in values)
    return all(other != value for other in values)


def _attribute(candidate: pools.Candidate, name: str) -> Mapping[str, Any] | None:
    attributes = candidate.device.attributes
    if name in attributes:
        return attributes[name]
    domain, _, identifier = name.rpartition("/")
    return attributes.get(identifier) if domain == candidate.id[0] else None
