"""Pods that use a claim through their PodGroup.

A claim may be reserved for a PodGroup in place of its pods. The group's pods name it in `spec.schedulingGroup`.

Source: `scheduling.k8s.io` PodGroup; KEP-5729, ResourceClaim support for workloads.
"""

from drawbar.driver.api import claims, meta

RESOURCE = "podgroups"


class SchedulingGroup(meta.Struct, frozen=True):
    """The PodGroup of a pod."""

    pod_group_name: str = ""


class Grouped(meta.Struct, frozen=True):
    """The part of a pod's spec that names its PodGroup."""

    scheduling_group: SchedulingGroup | None = None


def is_user(consumer: claims.Consumer, metadata: meta.ObjectMeta, spec: Grouped) -> bool:
    """Return whether a reservation for the consumer includes this pod of the same namespace."""
    if consumer.resource == "pods":
        return consumer.uid == metadata.uid
    group = spec.scheduling_group
    return consumer.resource == RESOURCE and group is not None and group.pod_group_name == consumer.name
