"""The work queue keyed by object, and its workers."""

import asyncio
import logging

import pytest

from drawbar.driver import containment
from drawbar.driver import errors as driver_errors
from drawbar.driver.kube import errors, workers
from drawbar.mocks.testing import virtualtime


async def test_a_key_added_twice_while_it_waits_is_handled_once():
    work = workers.WorkQueue()
    work.add("a")
    work.add("a")
    assert await work.take() == "a"
    assert len(work) == 0


async def test_a_key_added_while_it_is_handled_is_handled_again_afterwards_only():
    work = workers.WorkQueue()
    work.add("a")
    await work.take()
    work.add("a")
    assert len(work) == 0
    work.mark_done("a")
    assert await work.take() == "a"


async def test_the_back_off_grows_until_it_is_forgotten():
    work = workers.WorkQueue()
    pauses = [work.retry("a") for _ in range(6)]
    assert pauses[5] > pauses[0] * 8
    assert pauses[5] <= workers.PAUSE_MAX_SECONDS
    work.forget("a")
    assert work.retry("a") <= workers.PAUSE_FIRST_SECONDS
    work.close()


async def test_a_delayed_key_comes_and_an_earlier_request_wins():
    work = workers.WorkQueue()
    work.add_after("a", 3600)
    work.add_after("a", 0.001)
    async with asyncio.timeout(5):
        assert await work.take() == "a"


async def run_worker(answers, key="a"):
    """Run one worker over one key until the answers of its reconciliations are used up; errors are raised."""
    work, seen, ended = workers.WorkQueue(), [], asyncio.Event()

    async def reconcile(taken):
        seen.append((taken, work.failing))
        answer = answers.pop(0)
        if not answers:
            ended.set()
        if isinstance(answer, Exception):
            raise answer
        return answer

    work.add(key)
    async with asyncio.timeout(120), asyncio.TaskGroup() as tasks:
        worker = tasks.create_task(work.run(reconcile, lambda taken: {"object": taken}))
        await ended.wait()
        await asyncio.sleep(0)
        worker.cancel()
    work.close()
    return seen


async def test_a_worker_reconciles_a_key_again_at_once_later_or_not_at_all():
    assert len(await run_worker([0.0, 0.001, None])) == 3


async def test_a_key_whose_reconciliation_fails_comes_back_after_its_back_off(caplog):
    with caplog.at_level(logging.INFO):
        seen = await run_worker([errors.Unreachable("down"), errors.Conflict("stale"), None])
    assert seen == [("a", 0), ("a", 1), ("a", 1)]
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


async def test_an_error_that_is_not_to_be_retried_ends_the_worker():
    with pytest.raises(ExceptionGroup) as raised:
        await run_worker([ValueError("a defect"), None])
    assert raised.group_contains(ValueError)


async def test_a_slow_partition_does_not_delay_another():
    held, done = asyncio.Event(), asyncio.Event()

    async def reconcile(key):
        if key == ("slow", 1):
            await held.wait()
        else:
            done.set()

    async def work(queue):
        await queue.run(reconcile, lambda key: {})

    queues = workers.PartitionedQueue(lambda key: key[0], workers=1)
    queues.add(("slow", 1))
    queues.add(("slow", 2))
    async with asyncio.timeout(120), asyncio.TaskGroup() as tasks:
        queues.start(tasks, work)
        await asyncio.sleep(0)
        queues.add(("quick", 1))
        await done.wait()
        assert (
            queues.count_waiting("slow"),
            queues.count_waiting("quick"),
            queues.count_waiting("none"),
        ) == (1, 0, 0)
        assert queues.count_failing("slow") == queues.count_failing("none") == 0
        held.set()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            if task.get_name().startswith("devices-"):
                task.cancel()
    queues.stop()


@pytest.mark.defects
@pytest.mark.parametrize(
    "error",
    [ZeroDivisionError(), KeyError("x"), RecursionError(), driver_errors.UsageError("a file")],
    ids=repr,
)
def test_a_key_that_fails_unexpectedly_is_reported_and_comes_back_while_the_others_are_handled(error):
    contained = containment.Containment()
    work, tried, reported, broken = workers.WorkQueue(), [], [], ["bad"]

    async def reconcile(key):
        tried.append((key, asyncio.get_running_loop().time()))
        if key in broken:
            raise error

    async def steps():
        async with asyncio.TaskGroup() as tasks:
            worker = tasks.create_task(
                work.run(
                    reconcile,
                    lambda key: {"object": key},
                    worker="things",
                    contained=contained,
                    report=lambda key, failure: reported.append((key, failure)),
                )
            )
            for key in ("bad", "good", "better"):
                work.add(key)
            await asyncio.sleep(30)
            assert [key for key, _ in tried[:3]] == ["bad", "good", "better"]
            moments = [moment for key, moment in tried if key == "bad"]
            assert len(moments) > 5
            assert moments[-1] - moments[-2] > 10 * (moments[1] - moments[0])
            assert (work.failing, contained.count_failing()["things"]) == (1, 1.0)
            broken.clear()
            await asyncio.sleep(2 * workers.PAUSE_MAX_SECONDS)
            assert (work.failing, contained.count_failing()["things"]) == (0, 0.0)
            assert contained.counts()["things"] == len(moments)
            assert [key for key, _ in reported] == ["bad"]
            work.add("good")
            await asyncio.sleep(1)
            assert tried[-1][0] == "good"
            worker.cancel()

    virtualtime.in_virtual_time(steps)()


@pytest.mark.defects
def test_a_cancellation_that_escapes_from_one_key_ends_no_worker():
    contained, done = containment.Containment(), []

    async def reconcile(key):
        if key == "bad":
            raise asyncio.CancelledError
        done.append(key)

    async def steps():
        work = workers.WorkQueue()
        async with asyncio.TaskGroup() as tasks:
            run = work.run(reconcile, lambda key: {"object": key}, worker="things", contained=contained)
            worker = tasks.create_task(run)
            for key in ("bad", "good"):
                work.add(key)
            await asyncio.sleep(1)
            assert done == ["good"]
            assert contained.counts()["things"] >= 1
            worker.cancel()
        assert worker.cancelled()
        work.close()

    virtualtime.in_virtual_time(steps)()


async def test_other_tasks_run_between_two_keys_that_need_no_wait():
    work, ended = workers.WorkQueue(), asyncio.Event()
    seen, reconciled_before = [], []

    async def reconcile(key):
        if not seen:
            asyncio.get_running_loop().call_soon(lambda: reconciled_before.append(len(seen)))
        seen.append(key)
        if len(seen) == 8:
            ended.set()

    for key in range(8):
        work.add(key)
    async with asyncio.timeout(120), asyncio.TaskGroup() as tasks:
        worker = tasks.create_task(work.run(reconcile, lambda key: {"object": key}))
        await ended.wait()
        worker.cancel()
    assert reconciled_before[0] < 8


async def test_a_key_that_always_asks_for_another_round_at_once_does_not_occupy_the_process(caplog):
    queue, rounds, other = workers.WorkQueue(), 0, asyncio.Event()

    async def reconcile(key):
        nonlocal rounds
        if key == "b":
            other.set()
            return None
        rounds += 1
        if rounds == workers.IN_A_ROW_MAX + 1:
            queue.add("b")
        return 0.0

    async with asyncio.TaskGroup() as tasks:
        worker = tasks.create_task(queue.run(reconcile, lambda key: {"key": key}))
        queue.add("a")
        await other.wait()
        worker.cancel()
    assert (rounds, queue.failing) == (workers.IN_A_ROW_MAX + 1, 1)
    assert [record.getMessage() for record in caplog.records] == [
        "its reconciliation changes nothing; will try again"
    ]
    queue.close()
