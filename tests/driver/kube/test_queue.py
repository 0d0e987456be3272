"""The work queue keyed by object."""

import asyncio

from drawbar.driver.kube import queue


async def test_a_key_added_twice_while_it_waits_is_handled_once():
    work = queue.WorkQueue()
    work.add("a")
    work.add("a")
    assert await work.take() == "a"
    assert len(work) == 0


async def test_a_key_added_while_it_is_handled_is_handled_again_afterwards_only():
    work = queue.WorkQueue()
    work.add("a")
    await work.take()
    work.add("a")
    assert len(work) == 0
    work.done("a")
    assert await work.take() == "a"


async def test_the_back_off_grows_until_it_is_forgotten():
    work = queue.WorkQueue()
    pauses = [work.retry("a") for _ in range(6)]
    assert pauses[5] > pauses[0] * 8
    assert pauses[5] <= queue.PAUSE_MAX_SECONDS
    work.forget("a")
    assert work.retry("a") <= queue.PAUSE_FIRST_SECONDS
    work.close()


async def test_a_delayed_key_comes_and_an_earlier_wish_wins():
    work = queue.WorkQueue()
    work.add_after("a", 3600)
    work.add_after("a", 0.001)
    async with asyncio.timeout(5):
        assert await work.take() == "a"
