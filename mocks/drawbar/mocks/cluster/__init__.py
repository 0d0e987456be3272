"""A whole cluster of doubles and daemons on this machine, for demonstrations, tests and driver developers."""

from drawbar.mocks.cluster.children import Started
from drawbar.mocks.cluster.cluster import FABRIC, Cluster, Happening, Leaks, Waiting
from drawbar.mocks.cluster.errors import ChildEnded, ClusterError
from drawbar.mocks.cluster.settings import MOST_NODES, Settings

__all__ = [
    "ChildEnded",
    "Cluster",
    "ClusterError",
    "FABRIC",
    "Happening",
    "Leaks",
    "MOST_NODES",
    "Settings",
    "Started",
    "Waiting",
]
