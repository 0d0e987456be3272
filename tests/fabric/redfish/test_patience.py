"""A resource that did not answer gets less time at the next requests, and no other resource does."""

import asyncio

import pytest

from drawbar.fabric import errors
from drawbar.fabric.redfish import failures, patience


async def answer(value="answer", error=None, seconds=0.0):
    await asyncio.sleep(seconds)
    if error is not None:
        raise error
    return value


def silence(reason=failures.NO_ANSWER):
    return errors.DeadlineExceeded("no answer", reason=reason)


async def is_hurried(waiting, uri):
    try:
        return await waiting.wait(uri, answer(False, seconds=0.05))
    except errors.DeadlineExceeded:
        return True


async def test_after_a_silence_some_requests_get_less_time_and_the_next_one_all_of_it():
    waiting = patience.Patience(0.08)
    with pytest.raises(errors.DeadlineExceeded, match="no answer"):
        await waiting.wait("/a", answer(error=silence()))
    assert not await is_hurried(waiting, "/b")
    assert [await is_hurried(waiting, "/a") for _ in range(patience.HURRIED + 1)] == [
        *[True] * patience.HURRIED,
        False,
    ]


async def test_an_answer_in_the_shorter_time_ends_the_hurry():
    waiting = patience.Patience(0.08)
    with pytest.raises(errors.DeadlineExceeded):
        await waiting.wait("/a", answer(error=silence()))
    assert await waiting.wait("/a", answer()) == "answer"
    assert not await is_hurried(waiting, "/a")


async def test_a_service_that_answers_nothing_hurries_no_resource():
    waiting = patience.Patience(0.08)
    with pytest.raises(errors.DeadlineExceeded):
        await waiting.wait("/a", answer(error=silence(reason="")))
    assert not await is_hurried(waiting, "/a")


async def test_the_deadline_of_the_caller_remains_his():
    waiting = patience.Patience(60.0)
    with pytest.raises(errors.DeadlineExceeded):
        await waiting.wait("/a", answer(error=silence()))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await waiting.wait("/a", answer(seconds=1.0))


async def test_the_number_of_silent_resources_is_bounded():
    waiting = patience.Patience(0.08)
    for number in range(patience.RESOURCES_MAX + 1):
        with pytest.raises(errors.DeadlineExceeded):
            await waiting.wait(f"/{number}", answer(error=silence()))
    assert not await is_hurried(waiting, "/0")
    assert await is_hurried(waiting, "/1")
