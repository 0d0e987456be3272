"""The scheduler's reports about a pod: its events, and its condition PodScheduled.

The condition is written only when it changes. A failed report is logged and lost; the next attempt reports again.
Unlike the real recorder, equal events are not merged into a series.
"""

import datetime
import logging
from collections.abc import Callable
from typing import Any

from drawbar.mocks.claims import documents, events
from drawbar.mocks.kube import client, errors, kinds, meta
from drawbar.mocks.scheduler import messages

log = logging.getLogger(__name__)

STRATEGIC = "application/strategic-merge-patch+json"
UNSCHEDULABLE = "Unschedulable"
SCHEDULER_ERROR = "SchedulerError"


class Reporter:
    """The reports of one scheduler."""

    def __init__(self, api: client.Client, *, component: str, clock: Callable[[], datetime.datetime]) -> None:
        self._api = api
        self._clock = clock
        self._events = events.Recorder(api, component=component, clock=clock)

    async def report_scheduled(self, pod: documents.Document, node: str) -> None:
        """Report that the pod is bound; the API server itself sets the condition."""
        note = f"Successfully assigned {pod.full_name} to {node}"
        await self._events.record(pod, kind="Pod", reason="Scheduled", note=note, action="Binding")

    async def report_waiting(self, pod: documents.Document, node: str) -> None:
        """Report that the pod waits for the binding conditions of its devices."""
        await self._events.record(
            pod,
            kind="Pod",
            reason="BindingConditionsPending",
            note=messages.describe_waiting(node),
            action="Scheduling",
        )

    async def report_failure(self, pod: documents.Document, reason: str, message: str) -> None:
        """Report a failed attempt, and clear the pod's nominated node.

        Args:
            pod: the pod's last known state.
            reason: `UNSCHEDULABLE`, or `SCHEDULER_ERROR`.
            message: the message for people.
        """
        log.info("pod not scheduled", extra={"pod": pod.full_name, "reason": message})
        await self._events.record(
            pod, kind="Pod", reason="FailedScheduling", note=message, action="Scheduling", warning=True
        )
        body = make_unscheduled_patch(pod, reason, message, now=meta.timestamp(self._clock()))
        if body is None:
            return
        path = kinds.POD.path(namespace=pod.metadata.namespace, name=pod.metadata.name, subresource="status")
        try:
            await self._api.request("PATCH", path, body=body, content=STRATEGIC)
        except errors.KubeError as error:
            log.info("pod condition not written: %s", error, extra={"pod": pod.full_name})


def make_unscheduled_patch(
    pod: documents.Document, reason: str, message: str, *, now: str
) -> dict[str, Any] | None:
    """Return the patch with the reason for the missing node; None if the status already has it."""
    conditions: list[dict[str, Any]] = pod.status.get("conditions") or []
    held: dict[str, Any] = next(
        (condition for condition in conditions if condition.get("type") == "PodScheduled"), {}
    )
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    if all(held.get(key) == value for key, value in condition.items()) and not pod.status.get(
        "nominatedNodeName"
    ):
        return None
    since = held.get("lastTransitionTime") if held.get("status") == "False" else None
    return {
        "metadata": {"uid": pod.metadata.uid},
        "status": {
            "conditions": [{**condition, "lastTransitionTime": since or now}],
            "nominatedNodeName": None,
        },
    }
