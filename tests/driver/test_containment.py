"""Unexpected errors are contained, counted, logged, shown and tried again; what is to end the process ends it."""

import ast
import asyncio
import logging
import re
from pathlib import Path

import pytest
from tests.scenes import waiting

from drawbar.driver import containment, errors
from drawbar.driver.kube import errors as kube_errors
from drawbar.mocks.testing import virtualtime

pytestmark = pytest.mark.defects
DRIVER = Path(containment.__file__).parent
DAEMONS = ("controller", "node", "healthmonitor", "webhook", "operation", "kube")


def deep(number=0):
    return deep(number + 1)


def raise_error(error):
    """Raise in a frame of its own."""
    if error is RecursionError:
        deep()
    raise error


@pytest.fixture
def clock():
    return waiting.Clock()


@pytest.fixture
def unexpected_errors(clock):
    return containment.Containment(clock)


@pytest.mark.parametrize("error", [ZeroDivisionError("1/0"), KeyError("x"), RecursionError, AssertionError()])
def test_an_unexpected_error_is_kept_from_the_caller_counted_and_shown_once(unexpected_errors, caplog, error):
    shown = []
    for _ in range(2):
        with unexpected_errors.attempt(
            "devices", "d1", extra=lambda: {"device": "d1"}, report=shown.append
        ) as attempt:
            raise_error(error)
    assert attempt.failure
    assert unexpected_errors.counts() == {"devices": 2.0}
    assert unexpected_errors.count_failing() == {"devices": 1.0}
    assert shown == [attempt.failure]
    (record,) = [record for record in caplog.records if record.message == containment.MESSAGE]
    assert (record.levelno, record.worker, record.device) == (logging.ERROR, "devices", "d1")
    assert record.exc_info[0] is (error if isinstance(error, type) else type(error))
    assert record.exc_info[2] is not None


def test_a_success_ends_a_row_of_failures(unexpected_errors):
    shown = []
    for error in (KeyError(), None, KeyError()):
        with unexpected_errors.attempt("devices", "d1", report=shown.append) as attempt:
            if error is not None:
                raise error
        assert bool(attempt.failure) == (error is not None)
    assert len(shown) == 2
    assert unexpected_errors.count_failing() == {"devices": 1.0}


def test_the_sentence_for_people_has_no_word_of_the_error(unexpected_errors):
    with unexpected_errors.attempt("devices") as attempt:
        raise ValueError("s3cret\x1b[31m\nTraceback")
    assert "ValueError" in attempt.failure
    assert not re.search("s3cret|Traceback|\x1b|\n", attempt.failure)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        ExceptionGroup("", [ValueError(), MemoryError()]),
        KeyboardInterrupt(),
        SystemExit(1),
        BaseExceptionGroup("", [ValueError(), KeyboardInterrupt()]),
    ],
    ids=repr,
)
def test_exceptions_that_end_a_process_pass(unexpected_errors, error):
    with pytest.raises(type(error)), unexpected_errors.attempt("devices"):
        raise error


def test_an_expected_error_reaches_the_caller_and_is_none_of_ours(unexpected_errors):
    with (
        pytest.raises(kube_errors.NotFound),
        unexpected_errors.attempt("d", "x", expected=kube_errors.KubeError),
    ):
        raise kube_errors.NotFound("gone")
    assert unexpected_errors.counts() == {"d": 0.0}


def test_a_report_that_fails_harms_nothing(unexpected_errors):
    def report(_):
        raise ValueError

    def extra():
        raise KeyError

    with unexpected_errors.attempt("devices", "d1", extra=extra, report=report) as attempt:
        raise ZeroDivisionError
    assert attempt.failure
    assert unexpected_errors.counts() == {"devices": 1.0, "devices-report": 2.0}


def test_one_location_is_logged_at_intervals_with_the_count(unexpected_errors, clock, caplog):
    def fail():
        with unexpected_errors.attempt("devices"):
            raise_error(KeyError())

    def records():
        return [record for record in caplog.records if record.message == containment.MESSAGE]

    for _ in range(100):
        fail()
    assert len(records()) == 1
    with unexpected_errors.attempt("devices"):
        raise KeyError
    assert len(records()) == 2
    clock.now += containment.LOG_EVERY_SECONDS
    fail()
    assert records()[-1].repeated == 99


def test_the_number_of_remembered_subjects_is_bounded(unexpected_errors, caplog):
    caplog.set_level(logging.CRITICAL)
    for number in range(containment.SUBJECTS_MAX + 10):
        with unexpected_errors.attempt("devices", number):
            raise KeyError
    assert unexpected_errors.count_failing() == {"devices": float(containment.SUBJECTS_MAX)}


def test_an_object_that_fails_leaves_the_daemon_ready_and_a_worker_that_fails_does_not(
    unexpected_errors, clock
):
    with unexpected_errors.attempt("devices", "d1"):
        raise KeyError
    with unexpected_errors.attempt("events"):
        raise KeyError
    assert unexpected_errors.find_missing() is None
    clock.now += containment.PATIENCE_SECONDS
    assert re.match("events failed unexpectedly: look for ", unexpected_errors.find_missing())
    assert unexpected_errors.details() == {"failing": {"devices": 1, "events": 1}}
    with unexpected_errors.attempt("events"):
        pass
    assert unexpected_errors.find_missing() is None
    assert unexpected_errors.details() == {"failing": {"devices": 1}}


class Loop:
    """A worker's loop that fails as often as the test wants, then runs."""

    def __init__(self, *failures):
        self.failures = list(failures)
        self.began = []

    async def run(self):
        self.began.append(asyncio.get_running_loop().time())
        if self.failures:
            raise self.failures.pop(0)
        await asyncio.Event().wait()


def in_virtual_time(steps):
    virtualtime.in_virtual_time(steps)()


def test_a_loop_begins_again_after_pauses_that_grow_and_the_other_goes_on():
    async def steps():
        unexpected_errors = containment.Containment(asyncio.get_running_loop().time)
        bad, good, shown = Loop(*[KeyError() for _ in range(12)]), Loop(), []
        async with asyncio.TaskGroup() as tasks:
            unexpected_errors.start(tasks, "good", good.run)
            tasks.create_task(unexpected_errors.keep("bad", bad.run, failed=shown.append), name="bad")
            await asyncio.sleep(containment.PATIENCE_SECONDS + 1)
            assert unexpected_errors.find_missing() is not None
            await asyncio.sleep(600)
            pauses = [later - earlier for earlier, later in zip(bad.began, bad.began[1:], strict=False)]
            assert len(pauses) == len(shown) == 12
            assert pauses[0] <= containment.PAUSE_FIRST_SECONDS
            assert containment.PAUSE_MAX_SECONDS / 2 <= pauses[-1] <= containment.PAUSE_MAX_SECONDS
            assert len(good.began) == 1
            # It has run for long enough since.
            assert unexpected_errors.find_missing() is None
            assert unexpected_errors.count_failing() == {"good": 0.0, "bad": 0.0}
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()

    in_virtual_time(steps)


def test_a_loop_ends_with_an_error_that_is_to_end_the_daemon_and_not_with_one_of_the_api_server():
    class Upgraded(errors.DrawbarError):
        """Ends the daemon."""

    async def steps():
        unexpected_errors = containment.Containment()
        loop = Loop(kube_errors.Unreachable("no answer"), Upgraded("other versions"))
        with pytest.raises(Upgraded):
            await unexpected_errors.keep("bad", loop.run)
        assert unexpected_errors.counts() == {"bad": 1.0}

    in_virtual_time(steps)


def test_a_loop_whose_task_foreign_code_cancels_begins_again():
    """A task group cancels the task that entered it, if foreign code leaves the group out of order."""

    async def steps():
        unexpected_errors = containment.Containment()
        begun = []

        async def run():
            begun.append(None)
            if len(begun) == 1:
                asyncio.current_task().cancel()
                await asyncio.sleep(0)
            await asyncio.Event().wait()

        async with asyncio.TaskGroup() as tasks:
            kept = unexpected_errors.start(tasks, "fabric", run)
            await asyncio.sleep(containment.PAUSE_FIRST_SECONDS + 1)
            assert len(begun) == 2
            assert unexpected_errors.counts() == {"fabric": 1.0}
            kept.cancel()
        assert kept.cancelled()

    in_virtual_time(steps)


@pytest.mark.parametrize("fails", [True, False])
def test_a_loop_that_is_cancelled_ends(fails):
    async def steps():
        unexpected_errors = containment.Containment()

        async def run():
            try:
                await asyncio.Event().wait()
            finally:
                if fails:
                    raise KeyError

        async with asyncio.TaskGroup() as tasks:
            kept = unexpected_errors.start(tasks, "w", run)
            await asyncio.sleep(1)
            kept.cancel()
        assert kept.cancelled()

    in_virtual_time(steps)


def test_a_callback_that_fails_is_made_again_with_the_state_that_was_reported_last():
    async def steps():
        unexpected_errors = containment.Containment()
        callbacks, seen, broken = containment.Callbacks(unexpected_errors, "watch"), [], {"a"}

        def note_or_fail(old, new):
            if (new or old)[0] in broken:
                raise ZeroDivisionError
            seen.append((old, new))

        callbacks.tell("a", note_or_fail, None, "a1")
        callbacks.tell("b", note_or_fail, None, "b1")
        callbacks.tell("a", note_or_fail, "a1", "a2")
        assert seen == [(None, "b1")]
        assert unexpected_errors.count_failing() == {"watch": 1.0}
        await asyncio.sleep(5)
        broken.clear()
        await asyncio.sleep(containment.PAUSE_MAX_SECONDS)
        assert seen == [(None, "b1"), (None, "a2")]
        assert unexpected_errors.count_failing() == {"watch": 0.0}
        tries = unexpected_errors.counts()["watch"]
        callbacks.tell("a", note_or_fail, "a2", "a3")
        await asyncio.sleep(containment.PAUSE_MAX_SECONDS)
        assert seen[2:] == [("a2", "a3")]
        assert unexpected_errors.counts()["watch"] == tries

    in_virtual_time(steps)


def test_an_object_that_came_and_went_unreported_is_never_reported():
    async def steps():
        unexpected_errors = containment.Containment()
        callbacks, seen = containment.Callbacks(unexpected_errors, "watch"), []

        def note_and_fail(old, new):
            seen.append((old, new))
            raise ZeroDivisionError

        callbacks.tell("a", note_and_fail, None, "a1")
        callbacks.tell("a", note_and_fail, "a1", None)
        await asyncio.sleep(600)
        assert seen == [(None, "a1")]
        assert unexpected_errors.count_failing() == {"watch": 0.0}

    in_virtual_time(steps)


def test_nothing_is_called_after_the_end():
    async def steps():
        unexpected_errors = containment.Containment()
        callbacks, seen = containment.Callbacks(unexpected_errors, "watch"), []

        def callback():
            seen.append(1)
            raise ZeroDivisionError

        callbacks.call("a", callback)
        callbacks.close()
        await asyncio.sleep(600)
        assert seen == [1]
        assert unexpected_errors.count_failing() == {"watch": 0.0}

    in_virtual_time(steps)


async def test_an_exception_in_a_timer_is_counted_and_logged(unexpected_errors, caplog):
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    with unexpected_errors.callbacks():
        loop.call_soon(raise_error, KeyError("x"))
        await waiting.eventually(lambda: unexpected_errors.counts() == {"callbacks": 1.0})
    assert loop.get_exception_handler() is before
    assert unexpected_errors.count_failing() == {"callbacks": 0.0}
    assert [record.message for record in caplog.records] == [containment.MESSAGE]


# Where else whatever comes is caught, or a task of a daemon begins that ends with its group; each with the reason.
BROAD = {
    "supervision.py": "names the error that ends the process",
    "node/treatment/erasing.py": "the error is the reason of a condition",
    "node/kernel.py": "the error is handed to the task that waits",
    "node/discovery/hangingreads.py": "the error is handed to the task that waits",
    "node/health/monitor.py": "the error is handed to the task that waits",
    "cli/fabric/connections.py": "foreign code in a verb",
    "controller/fabrics/redacting_adapter.py": "foreign code: its error becomes one of the contract",
    "controller/fabrics/connection.py": "foreign code: its error becomes one of the contract",
}
TASKS = {
    "kube/mirror.py": "the loop of the watch, kept as a whole",
    "node/recording/recorder.py": "of a verb",
    "node/treatment/hooks.py": "an attempt of one hook",
    "node/attachments/local.py": "workers, which keep themselves",
    "node/local/neighbours.py": "the loop of a watch, kept as a whole",
    "node/discovery/devices.py": "the parts of the loop of the inventory, kept as a whole",
    "controller/leadership/elector.py": "the parts of the loop of leadership, kept as a whole",
    "controller/classic/executor.py": "the attempts of a round, which ends with them",
    "controller/daemon.py": "the renewals at the begin of a term, kept with the leadership",
    "controller/node_labels.py": "the attempts of a round of labels, which ends with them",
    "controller/fabrics/connection.py": "the parts of the loop of a session, kept as a whole",
    "controller/fabrics/sessions.py": "a session, which keeps itself",
    "operation/gate.py": "a handshake, which ends its connection with itself",
}


def matching_modules(matches, under=("",)):
    """Return the modules of the driver in which a node of the syntax tree matches."""
    files = [file for part in under for file in (DRIVER / part).rglob("*.py")]
    return {
        str(file.relative_to(DRIVER))
        for file in files
        if any(matches(node) for node in ast.walk(ast.parse(file.read_text())))
    } - {"containment.py"}


def test_no_other_module_catches_all_exceptions():
    def is_broad(node):
        return (
            isinstance(node, ast.ExceptHandler)
            and (node.type is None or getattr(node.type, "id", "") == "Exception")
            and not any(isinstance(inner, ast.Raise) and inner.exc is None for inner in ast.walk(node))
        )

    assert matching_modules(is_broad) == BROAD.keys()


def test_every_task_of_a_daemon_is_kept():
    def begins_task(node):
        return isinstance(node, ast.Attribute) and node.attr in ("create_task", "ensure_future")

    assert matching_modules(begins_task, DAEMONS) == TASKS.keys()
