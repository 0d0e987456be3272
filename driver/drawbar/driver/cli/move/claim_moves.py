"""The steps to take a claim off its devices; pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from drawbar.driver import errors
from drawbar.driver.api import meta
from drawbar.driver.api.claims import ResourceClaim
from drawbar.driver.cli import objects, podgroups
from drawbar.driver.cli.doctor import findings
from drawbar.driver.cli.maintenance import entries
from drawbar.driver.cli.status import building, observed, tree

RUNNING = "Running"


class Status(meta.Struct, frozen=True):
    """The state of a pod."""

    phase: str = ""


class Pod(meta.Struct, frozen=True):
    """A pod with its controller and its PodGroup."""

    metadata: meta.ObjectMeta
    spec: podgroups.Grouped = podgroups.Grouped()
    status: Status = Status()

    @property
    def controller(self) -> meta.OwnerReference | None:
        """Return the owner that replaces the pod after its end, or None."""
        return next((owner for owner in self.metadata.owner_references if owner.controller), None)


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of a move.

    Attributes:
        claims: `NAMESPACE/NAME` of each claim.
        devices: the present devices of the claims.
        change: the entries of Maintenances, without the existing ones.
        pods: the pods to evict.
        spare: for each device, the number of free devices of its class, model and fabric.
    """

    claims: tuple[str, ...]
    devices: tuple[tree.Device, ...]
    change: entries.Plan
    pods: tuple[Pod, ...]
    spare: Mapping[str, int]

    @property
    def bare(self) -> tuple[str, ...]:
        """Return the names of the pods that no controller replaces."""
        return tuple(pod.metadata.name for pod in self.pods if pod.controller is None)

    @property
    def back(self) -> entries.Plan:
        """Return the change that undoes this one."""
        return msgspec.structs.replace(self.change, on=False)


class Unreplaced(errors.DrawbarError):
    """Pods would be lost."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a move.

    Attributes:
        is_moved: whether each evicted pod has a running successor.
        sentence: the result for people.
    """

    is_moved: bool
    sentence: str


def plan(cluster: observed.Cluster, moved: Sequence[ResourceClaim], pods: Iterable[Pod]) -> Move:
    """Return the steps of a move.

    Args:
        cluster: the whole state of the cluster.
        moved: the claims, of one namespace.
        pods: the pods of that namespace.

    Raises:
        maintenance.Nothing: the claims have no fabric device, or no pod to evict.
    """
    names = tuple(f"{claim.metadata.namespace}/{claim.metadata.name}" for claim in moved)
    name = ", ".join(names)
    results = [result for claim in moved for result in claim.results(cluster.driver)]
    if not results:
        raise entries.Nothing(f"claim {name} has no device of {cluster.driver}, so there is nothing to move")
    device_names = sorted({f"{result.pool}/{result.device}" for result in results})
    parts = [
        entries.plan(cluster, frozenset(), objects.Target(kind="device", name=device_name), on=True)
        for device_name in device_names
    ]
    by_fabric: dict[str, frozenset[str]] = {}
    for change in (change for part in parts for change in part.changes):
        by_fabric[change.fabric] = by_fabric.get(change.fabric, frozenset()) | change.devices
    devices = tuple(device for part in parts for device in part.devices)
    consumers = [consumer for claim in moved for consumer in claim.status.reserved_for]
    used_by = tuple(
        pod
        for pod in pods
        if any(podgroups.is_user(consumer, pod.metadata, pod.spec) for consumer in consumers)
    )
    if not used_by:
        raise entries.Nothing(
            f"no pod uses claim {name}, so there is none to evict; its device is free once the claim is deleted or deallocated"
        )
    changes = tuple(
        entries.Change(fabric=fabric, devices=members) for fabric, members in sorted(by_fabric.items())
    )
    return Move(
        claims=names,
        devices=devices,
        change=entries.Plan(
            on=True,
            changes=changes,
            devices=devices,
            driver=cluster.driver,
            reason=f"drawbar move {name}"[:256],
        ),
        pods=used_by,
        spare=_spare(building.build(cluster), devices),
    )


def _spare(shown: tree.Tree, devices: Iterable[tree.Device]) -> dict[str, int]:
    free: Counter[tuple[str, str, str]] = Counter(
        _kind(device)
        for device in shown.devices
        if device.state == tree.FREE and device.published and not device.taints
    )
    return {device.name: free[_kind(device)] for device in devices}


def _kind(device: tree.Device) -> tuple[str, str, str]:
    return device.pool.partition("/")[0], device.device_class, device.model


def consequences(planned: Move) -> tuple[str, ...]:
    """Return the consequences of the move, in sentences."""
    names = findings.join_names([f"{device.pool}/{device.name}" for device in planned.devices])
    lines = [f"claim {', '.join(planned.claims)} leaves {names}, which no claim is given meanwhile"]
    for pod in planned.pods:
        owner = pod.controller
        then = (
            f"{owner.kind} {owner.name} makes another"
            if owner is not None
            else "it is lost, for no controller makes another"
        )
        lines.append(f"pod {pod.metadata.name} is evicted: {then}")
    lines += [
        f"no other device like {name} is free now: the next pod waits for one"
        for name, count in planned.spare.items()
        if not count
    ]
    return tuple(lines)


def count_awaited(planned: Move) -> Mapping[str, int]:
    """Return the number of pods that each controller, by UID, has to replace."""
    return Counter(pod.controller.uid for pod in planned.pods if pod.controller is not None)


def count_missing(planned: Move, before: frozenset[str], pods: Iterable[Pod]) -> int:
    """Return the number of successors that do not run yet.

    Args:
        planned: the move.
        before: the UIDs of the earlier pods.
        pods: the present pods of the namespace.
    """
    made = Counter(pod.controller.uid for pod in _find_new_pods(before, pods) if pod.controller is not None)
    return sum(max(0, wanted - made[uid]) for uid, wanted in count_awaited(planned).items())


def successors(planned: Move, before: frozenset[str], pods: Iterable[Pod]) -> tuple[str, ...]:
    """Return the names of the running successors of evicted pods."""
    owners = count_awaited(planned)
    return tuple(
        pod.metadata.name
        for pod in _find_new_pods(before, pods)
        if pod.controller is not None and pod.controller.uid in owners
    )


def _find_new_pods(before: frozenset[str], pods: Iterable[Pod]) -> Iterator[Pod]:
    """Yield the new running pods."""
    for pod in pods:
        is_new = pod.metadata.uid not in before and not pod.metadata.deletion_timestamp
        if is_new and pod.status.phase == RUNNING:
            yield pod


def check(planned: Move, *, force: bool) -> None:
    """Refuse a move that loses pods.

    Raises:
        Unreplaced: a pod has no controller, and `force` is false.
    """
    if planned.bare and not force:
        raise Unreplaced(
            f"no controller makes another pod in place of {findings.join_names(planned.bare)}, so it would be lost; nothing was changed: "
            "add --force to evict it all the same"
        )


def outcome(planned: Move, successors: Sequence[str]) -> Outcome:
    """Return the result: the evicted pods and their running successors."""
    evicted = findings.join_names([pod.metadata.name for pod in planned.pods])
    devices = ", ".join(device.name for device in planned.devices)
    if planned.bare and not successors:
        return Outcome(
            is_moved=False,
            sentence=f"evicted: {evicted}; no pod runs in its place, and {devices} can be given to claims again.",
        )
    lost = f"; lost: {findings.join_names(planned.bare)}" if planned.bare else ""
    return Outcome(
        is_moved=not planned.bare,
        sentence=f"moved: {findings.join_names(successors)} runs in place of {evicted}{lost}; {devices} can be given to claims again.",
    )
