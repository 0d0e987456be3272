"""The node labels for the nodes that a fabric reaches, decided purely.

The pools' nodeSelector asks for the label, so a full or unmapped node is avoided without a taint on a healthy device.
Further labels say which of the fabric's devices a node can have; see `controller.reach`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from drawbar.driver import wording
from drawbar.driver.api import core
from drawbar.driver.controller import names

NAMED_MAX = 10


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """Labels of one node to set, or with None to remove."""

    node: str
    labels: Mapping[str, str | None]


def select_fabrics(change: Change, fabrics: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """Return the Fabrics that the change is for, of those given with the models they limit; all for a left-over label."""
    concerned = tuple(
        fabric
        for fabric, models in fabrics.items()
        if change.labels.keys()
        & {names.node_label(fabric), *(names.make_closed_label(fabric, m) for m in models)}
        or any(names.is_reach_label(label, fabric) for label in change.labels)
    )
    return concerned or tuple(fabrics)


def plan(
    nodes: Iterable[core.Node],
    reached: Mapping[str, Collection[str] | None],
    further: Mapping[str, Collection[str]] | None = None,
    *,
    value: str = "true",
) -> tuple[Change, ...]:
    """Return the changes that correct the labels.

    Args:
        nodes: all nodes.
        reached: by the name of each Fabric of this driver, the nodes with room, or None before its first listing; other
            labels with this driver's value are left-overs and go. A label with another value belongs to another driver
            and stays; the admission policy refuses to change it; see `foreign`.
        further: by node name, the labels of its reachable groups, and of the models that are closed to it.
        value: the value of this driver's labels.
    """
    changes = []
    for node in nodes:
        wanted = {
            names.node_label(fabric): value
            for fabric, members in reached.items()
            if members is not None and node.metadata.name in members
        }
        wanted |= dict.fromkeys((further or {}).get(node.metadata.name, ()), value)
        unlisted = [fabric for fabric, members in reached.items() if members is None]
        undecided = {names.node_label(fabric) for fabric in unlisted}
        ours = {
            key: held
            for key, held in node.metadata.labels.items()
            if key.startswith(names.LABEL_PREFIXES)
            and held == value
            and key not in undecided
            and not any(names.is_reach_label(key, fabric) for fabric in unlisted)
        }
        difference: dict[str, str | None] = {key: value for key in wanted if key not in node.metadata.labels}
        difference |= dict.fromkeys(ours.keys() - wanted.keys())
        if difference:
            changes.append(Change(node=node.metadata.name, labels=difference))
    return tuple(changes)


def foreign(
    nodes: Iterable[core.Node], fabric: str, models: Iterable[str] = (), *, value: str = "true"
) -> tuple[str, ...]:
    """Return a sentence for each label of that Fabric with another driver's value.

    Args:
        nodes: the nodes that are hosts of the fabric.
        fabric: the Fabric's name.
        models: the models that the Fabric limits.
        value: the value of this driver's labels.
    """
    effects = {names.node_label(fabric): "it gets no device"}
    effects |= {names.make_closed_label(fabric, model): f"it gets no {model}" for model in models}
    return tuple(
        f"node {node.metadata.name} has the label {label}={held}, which is not this driver's ({value}), so {effect}; "
        f"take it off: kubectl label node {node.metadata.name} {label}-"
        for node in nodes
        for label, effect in effects.items()
        if (held := node.metadata.labels.get(label, value)) != value
    )


def describe_unstable_nodes(nodes: Sequence[str]) -> str:
    """Return a sentence on the fabric's nodes with an unstable label; empty without any."""
    if not nodes:
        return ""
    return (
        f"{wording.join_some(nodes, NAMED_MAX)} came and went too often lately, so their hosts have to stay well for a while before "
        "they are offered again: look at the ports of these hosts, and at the node daemons there"
    )
