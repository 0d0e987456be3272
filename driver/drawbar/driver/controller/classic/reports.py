"""What the scheduler is told about the nodes of a pod, within the limits of the API; pure.

Every claim that waits has an entry, even an empty one: the scheduler may wait for all of them before it selects a node.
The earlier unsuitable nodes are judged anew each time, since the scheduler does not list them again.

Where no node will do at all, and there are more nodes than an answer has room for, the scheduler offers the others each
time, and so on without end; so such an answer is given at once only for the first time, then after growing pauses.
A pod for which some node will do is told so at once.

Source: KEP-3063, PodSchedulingContextStatus; at most 128 nodes in a list.
"""

from collections.abc import Collection

from drawbar.driver.api import classic
from drawbar.driver.controller.classic import actions, memory, parties


def answer(
    party: parties.Party,
    asked: Collection[str],
    unsuitable: Collection[str],
    notes: memory.Notebook,
) -> tuple[actions.Answer, ...]:
    """The answer, if it is not the one that was given already.

    Args:
        party: a pod.
        asked: entries that are judged; what was said of others that wait stays.
        unsuitable: nodes of the party that will not do.
        notes: what is remembered of it.
    """
    context = party.context
    if context is None or party.is_fixed:
        return ()
    listed = _listed(context, unsuitable)
    wanted = {
        one.entry: listed if one.entry in asked else context.entries.get(one.entry, ())
        for one in party.waiting
    }
    fresh = tuple(
        (name, nodes)
        for name, nodes in wanted.items()
        if name not in context.entries or set(context.entries[name]) != set(nodes)
    )
    if not asked or len(unsuitable) < len(party.nodes):
        notes.hopeful(party.uid)
    elif fresh:
        missing = any(name not in context.entries for name, _ in fresh)
        if not notes.may_answer(party.uid) and not missing:
            return ()
        notes.hopeless(party.uid)
    return (actions.Answer(context=context, entries=fresh),) if fresh else ()


def _listed(context: classic.Context, unsuitable: Collection[str]) -> tuple[str, ...]:
    """As many as there is room for; those first that the scheduler may select now."""
    first = dict.fromkeys((context.selected_node, *context.potential_nodes))
    named = frozenset(unsuitable)
    order = [node for node in first if node in named]
    order += sorted(named - first.keys())
    return tuple(order[: classic.NODES_MAX])
