"""The node labels that say which nodes a fabric reaches, decided purely.

The pools' nodeSelector asks for the label, so a full or unmapped node is avoided without tainting a healthy device.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from drawbar.driver.api import nodes
from drawbar.driver.controller import names


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Labels of one node to set, or with None to remove."""

    node: str
    labels: Mapping[str, str | None]


def plan(
    known: Iterable[nodes.Node],
    reached: Mapping[str, Collection[str] | None],
    closed: Mapping[str, Collection[str]] | None = None,
) -> tuple[Change, ...]:
    """The changes that make the labels true.

    Args:
        known: all nodes.
        reached: by Fabric name the nodes with room, or None while the fabric never told; labels of a Fabric that
            is not named here are left-overs and go.
        closed: by node name the labels of what it may have no more of.
    """
    changes = []
    for node in known:
        wanted = {
            names.node_label(fabric): "true"
            for fabric, members in reached.items()
            if members is not None and node.metadata.name in members
        }
        wanted |= dict.fromkeys((closed or {}).get(node.metadata.name, ()), "true")
        undecided = {names.node_label(fabric) for fabric, members in reached.items() if members is None}
        ours = {
            key: value
            for key, value in node.metadata.labels.items()
            if key.startswith((names.NODE_LABEL_PREFIX, names.CLOSED_LABEL_PREFIX)) and key not in undecided
        }
        difference: dict[str, str | None] = {
            key: value for key, value in wanted.items() if ours.get(key) != value
        }
        difference |= dict.fromkeys(ours.keys() - wanted.keys())
        if difference:
            changes.append(Change(node=node.metadata.name, labels=difference))
    return tuple(changes)
