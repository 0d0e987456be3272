"""What the run amounts to: how many pods ran, what was left behind, and the time that the software added; pure.

The time added to a pod is from the moment when its allocation was seen to the moment when both binding conditions
were seen, less what the fabric itself took for the attach; where a claim is allocated after the attach, from the
attachment to the allocation. All times are as the demo saw them, so the API server's
and the demo's own share is in them, and that of a kernel where there is one.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from drawbar.mocks.demo.progress import Step, View

MILLISECONDS = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """Of a time in milliseconds."""

    p50: float
    p99: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The run in numbers.

    Attributes:
        pods: how many were asked for.
        running: how many ran.
        read: in how many a container read its device; None where there are no containers.
        detached: how many devices came back.
        leaked: how many things were left behind.
        added: over all pods that were attached; None without one.
        classic: claims were allocated after the attach.
        steps: the time from the step before to each step; the fabric's own time is taken out.
        attach: what the fabric itself took to attach; None without an attach.
        detach: to detach.
        seconds: how long the run took after set-up.
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
        """Every pod ran and used its device, every device came back, nothing was left."""
        used = self.running if self.read is None else self.read
        return self.running == used == self.detached == self.pods and self.leaked == 0


def summarise(
    views: Iterable[View], *, leaked: int, seconds: float, reads: bool = False, classic: bool = False
) -> Summary:
    """The summary of what became of all pods.

    Args:
        views: of the pods.
        leaked: how many things were left behind.
        seconds: how long the run took after set-up.
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
    """What the software added between the choice of a device and its being usable; None while that is not known."""
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


# The step that each one follows, or where that was not taken, the next. The two that wait for the fabric have its
# time taken out.
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
    """The time from the step before; never negative, for two steps may be seen in the other order."""
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
    """By nearest rank, so both are times that occurred; of at least one time."""
    ordered = sorted(times)

    def rank(share: float) -> float:
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)]

    return Percentiles(p50=rank(0.50), p99=rank(0.99))
