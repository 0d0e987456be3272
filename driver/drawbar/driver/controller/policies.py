"""A Fabric's limits for one node: the number of devices of a model, and the models side by side; pure.

Attached devices count, with future and idle ones. A claim that would break a rule is refused before anything is
attached. The node is closed to the model until something is detached there, so that the scheduler does not come back to it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from drawbar.driver.api import attachments, fabrics
from drawbar.driver.catalogue import reasons


def models_by_node(attached: Iterable[attachments.DeviceAttachment]) -> dict[str, Counter[str]]:
    """Return, by node name, the number of its devices of each model."""
    models: dict[str, Counter[str]] = {}
    for attachment in attached:
        models.setdefault(attachment.spec.node_name, Counter())[attachment.spec.model] += 1
    return models


def find_restricted_models(rules: Iterable[fabrics.ModelRule]) -> frozenset[str]:
    """Return the models in any rule; their devices are published in pools of their own."""
    return frozenset(model for rule in rules for model in (rule.model, *rule.not_with))


def forbids(
    rules: Iterable[fabrics.ModelRule], model: str, on_node: Mapping[str, int], node: str
) -> attachments.Failure | None:
    """Return why a node may not have one more device of the model, or None if it may.

    Args:
        rules: the Fabric's rules.
        model: the device's model.
        on_node: the node's number of devices of each model.
        node: the node's name, for the sentence.
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
            conflicting = excluded if rule.model == model else rule.model if excluded == model else None
            if conflicting is not None and on_node.get(conflicting, 0):
                return attachments.Failure(
                    reason=reasons.MODELS_CONFLICT,
                    message=f"node {node} has a device of model {conflicting}, which may not share a node with {model}",
                )
    return None


def find_closed_models(
    rules: tuple[fabrics.ModelRule, ...], by_node: Mapping[str, Mapping[str, int]]
) -> dict[str, frozenset[str]]:
    """Return, by node name, the models that the node may have no more of."""
    closed_to = {
        node: frozenset(
            model for model in find_restricted_models(rules) if forbids(rules, model, counts, node)
        )
        for node, counts in by_node.items()
    }
    return {node: models for node, models in closed_to.items() if models}


def stays(rules: Iterable[fabrics.ModelRule], model: str, on_node: Mapping[str, int]) -> bool:
    """Return whether an idle device of the model stays on its node forever, to keep the rule's minimum."""
    return any(rule.model == model and on_node.get(model, 0) <= rule.min_per_node for rule in rules)
