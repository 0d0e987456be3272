"""The states of a service's tasks (DSP0266, "Asynchronous operations"); pure.

A monitor answers 202 while the task runs, then as the request itself would have. Some services send the task, or a
job (Job 1.2), in place of its monitor, and some forget the monitor at once.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from drawbar.fabric import errors
from drawbar.fabric.redfish import documents, messages

PAUSE_SECONDS_MIN = 0.1
PAUSE_SECONDS_MAX = 10.0
# Beginnings of `TaskState` and `JobState`, in lower case: vendors have more ends than the schema, such as
# "CompletedWithErrors" and "Failed" (Dell). "Killed" is that of services before Task 1.2.
_ENDED_STATES = ("aborted", "canceled", "cancelled", "completed", "exception", "failed", "killed")
# The other states of both schemas.
_RUNNING_STATES = frozenset(
    {
        *("cancelling", "continue", "interrupted", "new", "pending", "queued", "running", "service"),
        *("starting", "stopping", "suspended", "userintervention", "validating"),
    }
)
# While a task runs, some services show "TIME_NA" (Dell) or the least time of their clock.
_TIME = re.compile(r"(?!0000|0001|1970)[0-9]{4}-")


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of a service's task.

    Attributes:
        percent: 0 to 100; None if unknown.
        retry_after_seconds: the time until the next look.
    """

    percent: int | None = None
    retry_after_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A task that has not ended; with its progress."""

    progress: Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A task that has ended; with its error, or None if it has succeeded."""

    error: errors.FabricError | None = None


def find_state(task: documents.Json) -> str:
    """Return the state of a task or job in lower case; empty if the body is none."""
    return (documents.text(task, "TaskState") or documents.text(task, "JobState")).casefold()


def has_ended(task: documents.Json) -> bool:
    """Return whether a task has ended. A vendor's own state has, if the task shows when."""
    state = find_state(task)
    is_own = bool(state) and state not in _RUNNING_STATES
    return state.startswith(_ENDED_STATES) or (
        is_own and _TIME.match(documents.text(task, "EndTime")) is not None
    )


def judge(
    status: int,
    body: documents.Json,
    *,
    what: str,
    asked_seconds: float | None,
    pause: Callable[[], float],
    redacted: Callable[[str], str] = str,
) -> Running | Ended:
    """Return the state of the task that a monitor shows.

    Args:
        status: of the answer.
        body: of the answer.
        what: the request that began the task, for people.
        asked_seconds: the pause that the service asks for; None or 0, as by a date in the past, if it asks for none.
        pause: returns the own pause until the next look.
        redacted: removes the secrets from the service's own words.
    """
    state = find_state(body)
    is_critical = "critical" in {
        documents.text(body, name).casefold() for name in ("TaskStatus", "JobStatus")
    }
    has_failed = has_ended(body) and (state != "completed" or is_critical)
    if has_failed or messages.is_refusal(body):
        return Ended(error=messages.failure(body, what=what, redacted=redacted))
    if has_ended(body) or status == 204 or (status in {200, 201} and not state):
        return Ended()
    seconds = asked_seconds or pause()
    percent = documents.number(body, "PercentComplete")
    return Running(
        progress=Progress(
            percent=min(percent, 100) if percent else None,
            retry_after_seconds=min(max(seconds, PAUSE_SECONDS_MIN), PAUSE_SECONDS_MAX),
        )
    )
