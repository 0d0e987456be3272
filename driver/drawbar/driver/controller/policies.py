"""What a Fabric allows on one node: how many devices of a model, and which models side by side; pure.

What is attached, or about to be, counts; an idle device counts too. A claim that would break a rule is refused before
anything is attached, and the node is closed to the model until something is detached there, so that the scheduler does
not come back to it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from drawbar.driver.api import attachments, fabrics
from drawbar.driver.catalogue import reasons


def models_by_node(attached: Iterable[attachments.DeviceAttachment]) -> dict[str, Counter[str]]:
    """Return by node name how many devices of which model it has."""
    models: dict[str, Counter[str]] = {}
    for attachment in attached:
        models.setdefault(attachment.spec.node_name, Counter())[attachment.spec.model] += 1
    return models


def restricted(rules: Iterable[fabrics.ModelRule]) -> frozenset[str]:
    """Return the models that some rule is about; their devices are published in pools of their own."""
    return frozenset(model for rule in rules for model in (rule.model, *rule.not_with))


def forbids(
    rules: Iterable[fabrics.ModelRule], model: str, on_node: Mapping[str, int], node: str
) -> attachments.Failure | None:
    """Return why a node may not have one more device of the model; None if it may.

    Args:
        rules: the Fabric's.
        model: of the device.
        on_node: how many devices of which model the node has.
        node: its name, for the sentence.
    """
    for rule in rules:
        if (
            rule.model == model
            and rule.max_per_node is not None
            and on_node.get(model, 0) >= rule.max_per_node
        ):
            return attachments.Failure(
                reason=reasons.NODE_LIMIT_REACHED,
                message=f"node {node} has {on_node.get(model, 0)} devices of model {model}, and the Fabric allows "
                f"{rule.max_per_node}",
            )
        for excluded in rule.not_with:
            rival = excluded if rule.model == model else rule.model if excluded == model else None
            if rival is not None and on_node.get(rival, 0):
                return attachments.Failure(
                    reason=reasons.MODELS_CONFLICT,
                    message=f"node {node} has a device of model {rival}, which may not share a node with {model}",
                )
    return None


def closed(
    rules: tuple[fabrics.ModelRule, ...], by_node: Mapping[str, Mapping[str, int]]
) -> dict[str, frozenset[str]]:
    """Return by node name the models that it may have no more of."""
    closed_to = {
        node: frozenset(model for model in restricted(rules) if forbids(rules, model, counts, node))
        for node, counts in by_node.items()
    }
    return {node: models for node, models in closed_to.items() if models}


def stays(rules: Iterable[fabrics.ModelRule], model: str, on_node: Mapping[str, int]) -> bool:
    """Return whether an idle device of the model stays on its node for ever: it is one of the least number."""
    return any(rule.model == model and on_node.get(model, 0) <= rule.min_per_node for rule in rules)
