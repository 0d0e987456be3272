"""The state of a task from one answer of its monitor."""

import pytest

from drawbar.fabric import errors
from drawbar.fabric.redfish import monitors

FULL = {"MessageId": "Base.1.8.ResourceExhaustion", "Message": "full"}


def judge(status, body, asked_seconds=None):
    return monitors.judge(
        status, body, what="POST /z", asked_seconds=asked_seconds, pause=lambda: 0.4, redacted=str
    )


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (204, {}),
        (201, {"Id": "1"}),
        (200, {"Id": "1"}),
        (200, {"TaskState": "Completed"}),
        (202, {"TaskState": "completed"}),
        (200, {"JobState": "Completed", "EndTime": "TIME_NA"}),
    ],
)
def test_a_task_has_succeeded(status, body):
    assert judge(status, body) == monitors.Ended()


@pytest.mark.parametrize("name", ["TaskState", "JobState"])
@pytest.mark.parametrize(
    "state", ["Exception", "Killed", "Cancelled", "CANCELLED", "CompletedWithErrors", "Failed"]
)
def test_a_task_has_failed_with_an_unknown_effect(name, state):
    error = judge(200, {name: state, "Messages": [FULL]}).error
    assert isinstance(error, errors.ResourceExhausted)
    assert error.side_effects_unknown


@pytest.mark.parametrize(
    ("status", "body", "asked_seconds", "percent", "seconds"),
    [
        (202, {}, None, None, 0.4),
        (202, {}, 3.0, None, 3.0),
        (202, {}, 0.0, None, 0.4),
        (202, {}, 0.01, None, monitors.PAUSE_SECONDS_MIN),
        (202, {}, 1e9, None, monitors.PAUSE_SECONDS_MAX),
        (200, {"TaskState": "Running", "PercentComplete": 30}, None, 30, 0.4),
        (200, {"TaskState": "Suspended", "PercentComplete": "250"}, None, 100, 0.4),
        (200, {"TaskState": "Running", "EndTime": "TIME_NA"}, None, None, 0.4),
        (200, {"TaskState": "Running", "EndTime": "2027-01-01T00:00:00Z"}, None, None, 0.4),
        (200, {"TaskState": "Downloading", "EndTime": "0001-01-01T00:00:00Z"}, None, None, 0.4),
        (200, {"JobState": "Scheduled", "EndTime": "TIME_NA", "PercentComplete": 1}, None, 1, 0.4),
    ],
)
def test_a_running_task_is_looked_at_again_in_bounded_time(status, body, asked_seconds, percent, seconds):
    progress = judge(status, body, asked_seconds).progress
    assert progress == monitors.Progress(percent=percent, retry_after_seconds=seconds)
