"""The nodes with a live node daemon, judged by its pods and the Nodes.

A device on a node without a daemon is never reported, so such a node is not offered. A daemon is alive while one of its
pods on the node is Ready. If the controller does not see the pods (`nodeDaemonSelector` is empty, since the daemons do
not run as pods), only the Node counts. A Node that is not Ready is not offered. A Node without that condition, which no
kubelet has reported yet, is not judged by it.

A daemon is not Ready for a moment while it is replaced, so an offered node stays so for `GRACE_SECONDS`. A Node that is
not Ready gets no grace: Kubernetes has already waited for it (`node-monitor-grace-period`, 40 s and more).
"""

import datetime
import enum
import re
from collections.abc import Sequence

from drawbar.driver import sightings, wording
from drawbar.driver.api import core

# With three failures of the readiness probe, 10 s apart, a hanging daemon costs its node the label within 60 s.
GRACE_SECONDS = 20.0
NAMED_MAX = 10
_NAMED = re.compile(
    r"no node daemon is Ready on (\S+(?:, \S+)*?)(?: and \d+ more)?, so nothing is offered there"
)


class State(enum.Enum):
    """The state of the daemon of a node."""

    ALIVE = enum.auto()
    # Not Ready for less than the grace: the node keeps its label.
    FADING = enum.auto()
    SILENT = enum.auto()
    NODE_DOWN = enum.auto()


class Daemons:
    """The node daemons; bounded by their pods and the nodes.

    Args:
        judged: whether the daemons run as pods that the controller sees.
    """

    def __init__(self, *, judged: bool) -> None:
        self._judged = judged
        self._ready: dict[str, set[str]] = {}
        self._silent: sightings.Sightings[str] = sightings.Sightings()

    def change(self, old: core.Pod | None, new: core.Pod | None) -> bool:
        """Take in a change of a pod; return whether that may change the state of its node."""
        before = _identify_daemon(old) if old is not None and old.ready else None
        after = _identify_daemon(new) if new is not None and new.ready else None
        if before == after:
            return False
        if before is not None:
            node, uid = before
            self._ready[node].discard(uid)
            if not self._ready[node]:
                del self._ready[node]
        if after is not None:
            node, uid = after
            self._ready.setdefault(node, set()).add(uid)
        return True

    def look(self, node: core.Node, now: datetime.datetime) -> State:
        """Return the state of the node's daemon; the grace of a silent daemon begins when its silence is first seen."""
        name = node.metadata.name
        if not node.ready:
            return State.NODE_DOWN
        alive = not self._judged or name in self._ready
        self._silent.see(name, None if alive else True, now)
        if alive:
            return State.ALIVE
        return State.FADING if self.grace_left(name, now) > 0 else State.SILENT

    def grace_left(self, node: str, now: datetime.datetime) -> float:
        """Return the seconds until a node with a silent daemon is not offered any more; 0.0 after that, or without a silence."""
        since = self._silent.since(node)
        return 0.0 if since is None else max(0.0, GRACE_SECONDS - (now - since).total_seconds())

    def forget(self, node: str) -> None:
        """Drop a Node that is gone."""
        self._silent.forget(node)


def _identify_daemon(pod: core.Pod) -> tuple[str, str]:
    return pod.spec.node_name, pod.metadata.uid


def trouble(silent: Sequence[str]) -> str:
    """Return a sentence on the fabric's nodes without a live daemon; empty without any."""
    if not silent:
        return ""
    return (
        f"no node daemon is Ready on {wording.join_some(silent, NAMED_MAX)}, so nothing is offered there: look at the pods of "
        "the DaemonSet, and at its node selector"
    )


def find_named_nodes(message: str) -> tuple[str, ...]:
    """Return the nodes that `trouble` names in a message; of very many, the first."""
    match = _NAMED.search(message)
    return tuple(match[1].split(", ")) if match is not None else ()
