"""Whether a node selector takes a node; pure.

Source: core `v1` NodeSelector: any term, and in a term all requirements; a term without requirements takes nothing.
"""

from drawbar.driver.api import claims, nodes


def matches(selector: claims.NodeSelector, node: nodes.Node) -> bool:
    """Whether some term takes the node."""
    return any(_takes(term, node) for term in selector.node_selector_terms)


def _takes(term: claims.NodeSelectorTerm, node: nodes.Node) -> bool:
    if not term.match_fields and not term.match_expressions:
        return False
    fields = {"metadata.name": node.metadata.name}
    return all(_holds(one, fields) for one in term.match_fields) and all(
        _holds(one, node.metadata.labels) for one in term.match_expressions
    )


def _holds(requirement: claims.FieldRequirement, values: dict[str, str]) -> bool:
    value = values.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(requirement, value)
        case _:
            return False


def _compares(requirement: claims.FieldRequirement, value: str | None) -> bool:
    try:
        left, right = int(value or ""), int(requirement.values[0])
    except (ValueError, IndexError):
        return False
    return left > right if requirement.operator == "Gt" else left < right
