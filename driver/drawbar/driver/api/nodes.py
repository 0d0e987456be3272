"""Nodes, as far as the controller maps fabric hosts to them and asks whether they live.

Source: core `v1` Node; the taint of an administrator who has seen to it that a node is off: KEP-2268.
"""

import msgspec

from drawbar.driver.api import meta

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


class Taint(meta.Struct, frozen=True):
    """What keeps pods away from a node."""

    key: str
    effect: str = ""
    value: str = ""


class NodeSpec(meta.Struct, frozen=True):
    """The part of the spec that Drawbar reads."""

    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False


class NodeInfo(meta.Struct, frozen=True):
    """What the kubelet tells of the machine."""

    system_uuid: str = msgspec.field(default="", name="systemUUID")


class NodeStatus(meta.Struct, frozen=True):
    """The part of the status that Drawbar reads."""

    node_info: NodeInfo = NodeInfo()
    conditions: tuple[meta.Condition, ...] = ()


class Node(meta.Struct, frozen=True):
    """A machine of the cluster."""

    metadata: meta.ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def ready(self) -> bool:
        """Whether its kubelet reports in time; True as well while it never did."""
        condition = meta.find(self.status.conditions, "Ready")
        return condition is None or condition.is_true

    @property
    def out_of_service(self) -> bool:
        """Whether an administrator says that it is off: nobody there holds a device, and nobody will report."""
        return any(taint.key == OUT_OF_SERVICE for taint in self.spec.taints)
