"""The summary of a run: pods that ran, leaks, and the time added by the software; pure.

The added time runs from a pod's allocation to its second binding condition, less the fabric's own time for the attach.
If a claim is allocated after the attach, it runs from the attachment to the allocation. All times are the demo's own
observations. They include the share of the API server, of the demo, and of a kernel if there is one.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from drawbar.mocks.demo.progress import Step, View

MILLISECONDS = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """Two percentiles of a time, in milliseconds."""

    p50: float
    p99: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The numbers of a run.

    Attributes:
        pods: the number of pods.
        running: the number of pods that ran.
        read: the number of pods whose container read its device; None without containers.
        detached: the number of devices that came back.
        leaked: the number of leaked things.
        added: the time added by the software per attached pod; None without one.
        classic: claims were allocated after the attach.
        steps: the time from the previous step to each step, less the fabric's own time.
        attach: the fabric's own time to attach; None without an attach.
        detach: the fabric's own time to detach; None without a detach.
        seconds: the duration of the run after set-up, in seconds.
    """

    pods: int
    running: int
    read: int | None
    detached: int
    leaked: int
    added: Percentiles | None
    steps: Mapping[Step, Percentiles]
    attach: Percentiles | None
    detach: Percentiles | None
    seconds: float
    classic: bool = False

    @property
    def good(self) -> bool:
        """Return true if every pod ran and used its device, every device came back and nothing leaked."""
        used = self.running if self.read is None else self.read
        return self.running == used == self.detached == self.pods and self.leaked == 0


def summarise(
    views: Iterable[View], *, leaked: int, seconds: float, reads: bool = False, classic: bool = False
) -> Summary:
    """Return the summary of all pods.

    Args:
        views: the pods' views.
        leaked: the number of leaked things.
        seconds: the duration of the run after set-up, in seconds.
        reads: their containers had to read their devices.
        classic: claims are allocated after the attach.
    """
    pods = list(views)
    added = [time for view in pods if (time := added_milliseconds(view, classic=classic)) is not None]
    attach = [view.attach_seconds * MILLISECONDS for view in pods if view.attach_seconds is not None]
    detach = [view.detach_seconds * MILLISECONDS for view in pods if view.detach_seconds is not None]
    steps = {
        step: percentiles(times)
        for step in Step
        if (
            times := [t for view in pods if (t := step_milliseconds(view, step, classic=classic)) is not None]
        )
    }
    return Summary(
        pods=len(pods),
        running=sum(Step.RUNNING in view.steps for view in pods),
        read=sum(Step.READ in view.steps for view in pods) if reads else None,
        detached=sum(Step.DETACHED in view.steps for view in pods),
        leaked=leaked,
        added=percentiles(added) if added else None,
        steps=steps,
        attach=percentiles(attach) if attach else None,
        detach=percentiles(detach) if detach else None,
        seconds=seconds,
        classic=classic,
    )


def added_milliseconds(view: View, *, classic: bool = False) -> float | None:
    """Return the time added by the software between a device's choice and its readiness, in ms; None if unknown."""
    steps = view.steps
    if view.attach_seconds is None or not {Step.ALLOCATED, Step.ATTACHED, Step.VISIBLE} <= steps.keys():
        return None
    if classic:
        if Step.ATTACHING not in steps:
            return None
        whole = steps[Step.ALLOCATED] - steps[Step.ATTACHING]
    else:
        whole = max(steps[Step.ATTACHED], steps[Step.VISIBLE]) - steps[Step.ALLOCATED]
    return max(0.0, whole - view.attach_seconds) * MILLISECONDS


# The possible previous steps of each step; the first one reached counts. The fabric's own time is subtracted from
# ATTACHED and DETACHED.
_BEFORE = {
    Step.ATTACHING: (Step.ALLOCATED,),
    Step.ATTACHED: (Step.ATTACHING,),
    Step.SEEN: (Step.ATTACHED,),
    Step.VISIBLE: (Step.SEEN, Step.ATTACHED),
    Step.BOUND: (Step.VISIBLE,),
    Step.PREPARED: (Step.BOUND,),
    Step.RUNNING: (Step.PREPARED,),
    Step.READ: (Step.RUNNING,),
    Step.RELEASED: (Step.DELETED,),
    Step.DETACHED: (Step.RELEASED,),
}
_BEFORE_CLASSIC = _BEFORE | {
    Step.ATTACHING: (),
    Step.ALLOCATED: (Step.VISIBLE,),
    Step.BOUND: (Step.ALLOCATED,),
}


def step_milliseconds(view: View, step: Step, *, classic: bool = False) -> float | None:
    """Return the time since the previous step in ms, or None.

    It is at least 0: two steps may be seen in reverse order.
    """
    order = _BEFORE_CLASSIC if classic else _BEFORE
    before = next((earlier for earlier in order.get(step, ()) if earlier in view.steps), None)
    if before is None or step not in view.steps:
        return None
    fabric: float | None = 0.0
    if step is Step.ATTACHED:
        fabric = view.attach_seconds
    elif step is Step.DETACHED:
        fabric = view.detach_seconds
    if fabric is None:
        return None
    return max(0.0, view.steps[step] - view.steps[before] - fabric) * MILLISECONDS


def percentiles(times: Sequence[float]) -> Percentiles:
    """Return both percentiles by nearest rank, so that each is a measured time. `times` must not be empty."""
    ordered = sorted(times)

    def rank(share: float) -> float:
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)]

    return Percentiles(p50=rank(0.50), p99=rank(0.99))
