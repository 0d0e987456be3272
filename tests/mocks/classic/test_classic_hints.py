"""When a pod that waits is worth another attempt, and that no news is lost while one is under way."""

import asyncio
import contextlib

import pytest

from drawbar.mocks.claims import documents
from drawbar.mocks.kube import meta
from drawbar.mocks.scheduler import settings
from drawbar.mocks.scheduler.classic import backlog, hints
from drawbar.mocks.testing import virtualtime

POD = ("default", "p")


def _context(selected="a", potential=("a", "b"), **unsuitable):
    answers = [{"name": entry, "unsuitableNodes": list(nodes)} for entry, nodes in unsuitable.items()]
    return documents.Document(
        metadata=meta.ObjectMeta(name="p", namespace="default"),
        spec={"selectedNode": selected, "potentialNodes": list(potential)},
        status={"resourceClaims": answers} if answers else {},
    )


@pytest.mark.parametrize(
    ("pending", "old", "new", "wakes"),
    [
        pytest.param(["c1"], None, _context(), False, id="made-without-an-answer"),
        pytest.param(["c1"], None, _context(c1=[]), True, id="found-with-every-answer"),
        pytest.param(["c1"], _context(), _context(c1=[]), True, id="the-last-answer"),
        pytest.param(["c1", "c2"], _context(), _context(c1=[]), False, id="not-the-last-answer"),
        pytest.param(["c1"], _context(c1=["a"]), _context("b", c1=["a"]), False, id="the-selection-alone"),
        pytest.param(
            ["c1"], _context("b", c1=["a"]), _context("a", c1=["a"]), True, id="an-unsuitable-selection"
        ),
        pytest.param(["c1"], _context(c1=["b"]), _context(c1=[]), True, id="another-answer"),
        pytest.param(["c1"], _context(c1=[]), None, False, id="gone"),
        pytest.param([], _context(), _context(c1=[]), True, id="nothing-pending-any-more"),
    ],
)
def test_a_change_of_a_context_wakes_its_pod_or_not(pending, old, new, wakes):
    assert hints.context_changed(pending, old, new) is wakes


def _claim(uid="u", finalizers=(), **status):
    metadata = meta.ObjectMeta(name="c1", namespace="default", uid=uid, finalizers=finalizers)
    return documents.Document(metadata=metadata, status=status)


@pytest.mark.parametrize(
    ("old", "new", "wakes"),
    [
        pytest.param(None, _claim(), True, id="made"),
        pytest.param(_claim(), _claim(finalizers=("driver",)), False, id="a-finalizer"),
        pytest.param(_claim(), _claim(allocation={}), True, id="its-status"),
        pytest.param(_claim(), _claim(uid="other"), True, id="replaced"),
        pytest.param(_claim(), None, False, id="gone"),
    ],
)
def test_a_change_of_a_claim_wakes_its_pods_or_not(old, new, wakes):
    assert hints.claim_changed(old, new) is wakes


@pytest.fixture
def run():
    """Return a function that runs `work` with a backlog and returns its result and the virtual time."""

    def run(work, **times):
        with contextlib.closing(virtualtime.VirtualTimeLoop()) as loop:

            async def run_work():
                waiting = backlog.Backlog(settings.Settings(**times))
                try:
                    async with asyncio.timeout(100):
                        return await work(waiting)
                finally:
                    waiting.close()

            return loop.run_until_complete(run_work()), loop.time()

    return run


def _try_take(waiting):
    """Return a pod to try, or None where none is there now."""

    async def ask():
        try:
            async with asyncio.timeout(0):
                return await waiting.take()
        except TimeoutError:
            return None

    return ask()


def test_a_sleeping_pod_is_taken_again_only_after_news(run):
    async def work(waiting):
        waiting.add(POD)
        await waiting.take()
        waiting.sleep(POD, backoff=False)
        asyncio.get_running_loop().call_later(50, waiting.wake, POD)
        return await waiting.take()

    taken, seconds = run(work)
    assert taken == POD
    assert seconds == pytest.approx(50, abs=0.5)


def test_news_while_a_pod_is_under_way_let_it_be_tried_again_at_once(run):
    async def work(waiting):
        waiting.add(POD)
        await waiting.take()
        waiting.wake(POD)
        waiting.sleep(POD, backoff=False)
        return await waiting.take()

    taken, seconds = run(work)
    assert taken == POD
    assert seconds < 1


def test_a_pod_that_fits_nowhere_waits_for_its_growing_backoff(run):
    async def work(waiting):
        waiting.add(POD)
        began = []
        for _ in range(4):
            await waiting.take()
            began.append(asyncio.get_running_loop().time())
            waiting.sleep(POD, backoff=True)
            waiting.wake_all()
        return began

    began, _ = run(work, backoff_first_seconds=1, backoff_max_seconds=3)
    assert began == pytest.approx([0, 1, 3, 6], abs=0.2)


def test_an_attempt_that_broke_off_is_repeated_without_news(run):
    async def work(waiting):
        waiting.add(POD)
        await waiting.take()
        waiting.retry(POD)
        return await waiting.take()

    taken, seconds = run(work, backoff_first_seconds=2)
    assert taken == POD
    assert seconds == pytest.approx(2, abs=0.2)


def test_a_pod_under_way_is_not_taken_a_second_time(run):
    async def work(waiting):
        waiting.add(POD)
        await waiting.take()
        waiting.add(POD)
        waiting.wake_all()
        twice = await _try_take(waiting)
        waiting.end(POD)
        return twice, await waiting.take()

    assert run(work)[0] == (None, POD)


def test_a_pod_that_is_gone_is_not_tried_any_more(run):
    async def work(waiting):
        waiting.add(POD)
        await waiting.take()
        waiting.sleep(POD, backoff=False)
        waiting.drop(POD)
        waiting.wake_all()
        return await _try_take(waiting)

    assert run(work)[0] is None
