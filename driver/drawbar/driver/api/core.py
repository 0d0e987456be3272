"""The parts of Nodes, Pods, Secrets and Leases that Drawbar reads.

Source: core `v1` Node, Pod and Secret, `coordination.k8s.io/v1` Lease; the taint `out-of-service`: KEP-2268.
"""

import msgspec

from drawbar.driver.api import meta

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


class Taint(meta.Struct, frozen=True):
    """A taint of a node."""

    key: str
    effect: str = ""
    value: str = ""


class NodeSpec(meta.Struct, frozen=True):
    """The part of a node's spec that Drawbar reads."""

    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False


class NodeInfo(meta.Struct, frozen=True):
    """The kubelet's report on the machine and on itself."""

    system_uuid: str = msgspec.field(default="", name="systemUUID")
    kubelet_version: str = ""
    container_runtime_version: str = ""


class NodeCondition(meta.Struct, frozen=True):
    """The part of a node's condition that Drawbar reads. Each node has at least four, each with a text."""

    type: str
    status: str


class NodeStatus(meta.Struct, frozen=True):
    """The part of a node's status that Drawbar reads."""

    node_info: NodeInfo = NodeInfo()
    conditions: tuple[NodeCondition, ...] = ()


class Node(meta.Struct, frozen=True):
    """A machine of the cluster."""

    metadata: meta.ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def ready(self) -> bool:
        """Return whether the node's kubelet reports in time, or has never reported."""
        return self._reported in ("True", None)

    @property
    def is_reported_ready(self) -> bool:
        """Return whether the node's kubelet reports in time; False if it has never reported."""
        return self._reported == "True"

    @property
    def _reported(self) -> str | None:
        return next(
            (condition.status for condition in self.status.conditions if condition.type == "Ready"), None
        )

    @property
    def out_of_service(self) -> bool:
        """Return whether an administrator has marked the node as out of service.

        No process there uses a device or reports.
        """
        return any(taint.key == OUT_OF_SERVICE for taint in self.spec.taints)


class PodSpec(meta.Struct, frozen=True):
    """The part of a pod's spec that Drawbar reads."""

    node_name: str = ""
    service_account_name: str = ""


class PodStatus(meta.Struct, frozen=True):
    """The part of a pod's status that Drawbar reads."""

    phase: str = ""
    conditions: tuple[meta.Condition, ...] = ()


class Pod(meta.Struct, frozen=True):
    """A pod of a daemon."""

    metadata: meta.ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def ready(self) -> bool:
        """Return whether the pod's probes succeed."""
        return meta.is_true(self.status.conditions, "Ready")


class LeaseSpec(meta.Struct, frozen=True):
    """The holder and the time of a lease. Times are `metav1.MicroTime`."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(meta.Struct, frozen=True):
    """One lease."""

    metadata: meta.ObjectMeta
    spec: LeaseSpec = LeaseSpec()


class Secret(meta.Struct, frozen=True):
    """A Secret that a Fabric names; `repr` shows no content.

    Attributes:
        data: by key, base64.
    """

    metadata: meta.ObjectMeta
    data: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"Secret({self.metadata.namespace}/{self.metadata.name})"
