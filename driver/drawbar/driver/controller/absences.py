"""Nodes without a Node object, and when each of them counts as gone.

A Node that is deleted and created again under a living kubelet keeps what it has: the object has to be missing for
`policy.nodeGoneSeconds` of the Fabric first. An administrator's word, the taint out-of-service, counts at once. What gives
up for a dead node reads this: detaches without a report, classic attempts, and allocations that were made at once.
"""

import datetime
from collections.abc import Callable, Iterable
from typing import Protocol

from drawbar.driver import sightings
from drawbar.driver.api import core, fabrics

# Nodes that never come back are remembered up to this number; the grace of one beyond it begins anew.
ABSENT_LIMIT = 4096
# Of a node that an administrator calls gone: whatever the clock says.
_LONG_AGO = datetime.datetime.min.replace(tzinfo=datetime.UTC)


class _Nodes(Protocol):
    """The Node objects by name."""

    def get(self, name: str, /) -> core.Node | None:
        """Return the Node, or None."""
        ...


class _Session(Protocol):
    """A Fabric that is served."""

    spec: fabrics.FabricSpec


class _Sessions(Protocol):
    """The Fabrics that are served, by name."""

    def get(self, name: str, /) -> _Session | None:
        """Return the Fabric's session, or None."""
        ...


class Absences:
    """Since when Node objects have been missing, as this process saw it.

    Args:
        known: the Node objects.
        sessions: the Fabrics, for their policies.
        clock: the time.
    """

    def __init__(self, known: _Nodes, sessions: _Sessions, clock: Callable[[], datetime.datetime]) -> None:
        self._nodes = known
        self._sessions = sessions
        self._clock = clock
        self._missing: sightings.Sightings[str] = sightings.Sightings(ABSENT_LIMIT)

    def see(self, name: str) -> None:
        """Note whether the Node is there now."""
        self._missing.see(name, None if self._nodes.get(name) is not None else True, self._clock())

    def gone_at(self, name: str, of_fabrics: Iterable[str]) -> datetime.datetime | None:
        """Return from when on a node counts as gone; None for one that is there.

        Args:
            name: the node.
            of_fabrics: Fabrics whose devices are concerned; the longest of their graces counts, and none of one that is not
                served.
        """
        self.see(name)
        node = self._nodes.get(name)
        if node is not None:
            return _LONG_AGO if node.out_of_service else None
        sessions = (self._sessions.get(fabric) for fabric in of_fabrics)
        grace = max((one.spec.policy.node_gone_seconds for one in sessions if one is not None), default=0)
        since = self._missing.since(name)
        assert since is not None
        return since + datetime.timedelta(seconds=grace)

    def is_gone(self, name: str, of_fabrics: Iterable[str]) -> bool:
        """Whether a node counts as gone now."""
        moment = self.gone_at(name, of_fabrics)
        return moment is not None and moment <= self._clock()
