"""Pods of Drawbar's daemons: the controller judges by those of the node daemons whether a daemon is alive.

Source: core `v1` Pod.
"""

from drawbar.driver.api import meta


class PodSpec(meta.Struct, frozen=True):
    """Where a pod is, and as whom it runs."""

    node_name: str = ""
    service_account_name: str = ""


class PodStatus(meta.Struct, frozen=True):
    """How a pod is."""

    phase: str = ""
    conditions: tuple[meta.Condition, ...] = ()


class Pod(meta.Struct, frozen=True):
    """A pod, perhaps one of a daemon."""

    metadata: meta.ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def ready(self) -> bool:
        """Whether its probes find the daemon alive."""
        return meta.is_true(self.status.conditions, "Ready")
