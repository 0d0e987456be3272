"""The states of a service's tasks (DSP0266, "Asynchronous operations"); pure.

A monitor answers 202 while the task runs, then as the request itself would have. Some services send the task in place
of its monitor, and some forget the monitor at once.
"""

from collections.abc import Callable
from dataclasses import dataclass

from drawbar.fabric import errors
from drawbar.fabric.redfish import documents, messages

PAUSE_SECONDS_MIN = 0.1
PAUSE_SECONDS_MAX = 10.0
# Of Task (`TaskState`); "Killed" is that of services before Task 1.2.
_ENDED_STATES = frozenset({"cancelled", "canceled", "completed", "exception", "killed"})


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


def has_ended(task: documents.Json) -> bool:
    """Return whether a task has ended. A vendor's own state has, if the task shows when."""
    state = documents.text(task, "TaskState")
    return state.casefold() in _ENDED_STATES or bool(state and documents.text(task, "EndTime"))


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
    state = documents.text(body, "TaskState").casefold()
    is_critical = documents.text(body, "TaskStatus").casefold() == "critical"
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
