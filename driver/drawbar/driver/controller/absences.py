"""Nodes without a Node object, and the time when each counts as gone.

A Node may be deleted and created again under a living kubelet; then the node keeps its devices. So the object has to be
missing for the Fabric's `policy.nodeGoneSeconds` first. An administrator's taint out-of-service counts at once. These
give up for a gone node: detaches without a report, classic attempts, and immediate allocations.
"""

import datetime
from collections.abc import Iterable

from drawbar.driver import clocks, sightings
from drawbar.driver.api import core
from drawbar.driver.controller.fabrics import sessions
from drawbar.driver.kube import mirror

# The most missing nodes that are remembered; a node beyond them begins its grace again.
ABSENT_LIMIT = 4096
# The time when a node counts as gone by an administrator's word: before any time of the clock.
_LONG_AGO = datetime.datetime.min.replace(tzinfo=datetime.UTC)


class Absences:
    """The times since when Node objects have been missing, as this process saw it.

    Args:
        nodes: the Node objects.
        fabrics: the served Fabrics, for their policies.
        clock: a steady clock.
    """

    def __init__(
        self,
        nodes: mirror.Mirror[core.Node],
        fabrics: sessions.Sessions,
        clock: clocks.Clock,
    ) -> None:
        self._nodes = nodes
        self._sessions = fabrics
        self._clock = clock
        self._missing: sightings.Sightings[str] = sightings.Sightings(ABSENT_LIMIT)

    def see(self, name: str) -> None:
        """Note whether the Node exists now."""
        is_there = self._nodes.get(name) is not None or self._nodes.is_unreadable(name)
        self._missing.see(name, None if is_there else True, self._clock())

    def gone_at(self, name: str, of_fabrics: Iterable[str]) -> datetime.datetime | None:
        """Return the time from which a node counts as gone, or None if it exists.

        Args:
            name: the node.
            of_fabrics: the Fabrics of the devices; the longest of their graces counts, and a Fabric that is not served
                has none.
        """
        self.see(name)
        node = self._nodes.get(name)
        if node is not None:
            return _LONG_AGO if node.out_of_service else None
        if self._nodes.is_unreadable(name):
            return None
        served = (self._sessions.get(fabric) for fabric in of_fabrics)
        grace = max((view.spec.policy.node_gone_seconds for view in served if view is not None), default=0)
        since = self._missing.since(name)
        assert since is not None
        return since + datetime.timedelta(seconds=grace)
