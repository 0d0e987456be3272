"""The matching of node selectors with nodes, and of tolerations with taints.

Source: Kubernetes API reference, `core/v1` NodeSelector and Toleration.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from drawbar.mocks.scheduler import objects

PREVENTING_EFFECTS = frozenset({"NoSchedule", "NoExecute"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The scheduler's view of a node.

    Attributes:
        name: its name.
        labels: its labels.
        taints: its taints.
        closed: the reason against all new pods, regardless of tolerations; empty if there is none.
    """

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[objects.Taint, ...] = ()
    closed: str = ""


def selects(selector: objects.NodeSelector, node: Node) -> bool:
    """Return true if one term holds for the node. A selector without terms selects nothing."""
    return any(holds(term, node) for term in selector.node_selector_terms)


def holds(term: objects.Term, node: Node) -> bool:
    """Return true if all requirements of the term hold. An empty term selects nothing."""
    if not term.match_expressions and not term.match_fields:
        return False
    return all(_holds(requirement, node.labels) for requirement in term.match_expressions) and all(
        _holds(requirement, {"metadata.name": node.name}) for requirement in term.match_fields
    )


def is_tolerated(taint: objects.Taint, tolerations: Iterable[objects.Toleration]) -> bool:
    """Return true if the taint excludes no pods, or a toleration matches it."""
    return taint.effect not in PREVENTING_EFFECTS or any(
        _fits(taint, toleration) for toleration in tolerations
    )


def _fits(taint: objects.Taint, toleration: objects.Toleration) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    return toleration.operator == "Exists" or bool(toleration.key and toleration.value == taint.value)


def _holds(requirement: objects.Requirement, labels: Mapping[str, str]) -> bool:
    rule = _OPERATORS.get(requirement.operator)
    return rule is not None and rule(labels.get(requirement.key), requirement.values)


def _compare(value: str | None, bounds: tuple[str, ...], sign: int) -> bool:
    try:
        return value is not None and len(bounds) == 1 and (int(value) - int(bounds[0])) * sign > 0
    except ValueError:
        return False


_OPERATORS: dict[str, Callable[[str | None, tuple[str, ...]], bool]] = {
    "In": lambda value, values: value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, values: _compare(value, values, 1),
    "Lt": lambda value, values: _compare(value, values, -1),
}
