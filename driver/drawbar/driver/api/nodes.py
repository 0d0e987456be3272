"""Nodes, as far as the controller maps fabric hosts to them.

Source: core `v1` Node.
"""

from drawbar.driver.api import meta


class Node(meta.Struct, frozen=True):
    """A machine of the cluster."""

    metadata: meta.ObjectMeta
