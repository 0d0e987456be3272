"""Pods of the node daemons, as far as the controller judges by them whether a daemon is alive.

Source: core `v1` Pod.
"""

from drawbar.driver.api import meta


class PodSpec(meta.Struct, frozen=True):
    """The part of the spec that Drawbar reads."""

    node_name: str = ""


class PodStatus(meta.Struct, frozen=True):
    """The part of the status that Drawbar reads."""

    conditions: tuple[meta.Condition, ...] = ()


class Pod(meta.Struct, frozen=True):
    """A pod of a node daemon."""

    metadata: meta.ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def ready(self) -> bool:
        """Whether its probes find the daemon alive."""
        return meta.is_true(self.status.conditions, "Ready")
