"""The thread that carries the checkpoint's writes to their end."""

import asyncio
import gc
import threading

import pytest

from drawbar.driver.node.preparation import worker

NAME = "worker-under-test"


def threads():
    return [one for one in threading.enumerate() if one.name == NAME]


async def test_calls_run_one_after_the_other_in_one_thread_that_is_not_the_loops():
    here = worker.Worker(NAME)
    ran = []

    def call(number):
        ran.append(number)
        return number, threading.current_thread().name

    answers = await asyncio.gather(
        *(here.to_its_end(lambda number=number: call(number)) for number in range(8))
    )
    assert answers == [(number, NAME) for number in range(8)]
    assert ran == list(range(8))


async def test_who_waits_gets_the_error_and_the_next_call_runs():
    here = worker.Worker(NAME)
    taken = []
    with pytest.raises(ZeroDivisionError):
        await here.to_its_end(lambda: 1 / 0, taken.append)
    assert await here.to_its_end(lambda: 1, taken.append) == 1
    assert taken == [1]


async def test_a_cancelled_caller_waits_for_the_end_and_the_result_is_taken():
    here = worker.Worker(NAME)
    began, go_on, taken = threading.Event(), threading.Event(), []

    def call():
        began.set()
        assert go_on.wait(20)
        return "written"

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(here.to_its_end(call, taken.append))
        assert await asyncio.to_thread(began.wait, 20)
        for _ in range(3):  # whoever is impatient cancels more than once
            task.cancel()
            await asyncio.sleep(0)
            assert not task.done()
        go_on.set()
    assert task.cancelled()
    assert taken == ["written"]


async def test_the_thread_ends_with_its_owner(until):
    here = worker.Worker(NAME)
    await here.to_its_end(lambda: None)
    assert threads()
    del here

    async def alive():
        gc.collect()
        return threads()

    assert await until(alive, lambda found: not found) == []
