"""A resource that did not answer gets less time at the next requests, and no other resource does."""

import asyncio

import pytest

from drawbar.fabric import errors
from drawbar.fabric.redfish import failures, patience
from drawbar.mocks.testing import virtualtime

SILENCE = errors.DeadlineExceeded("no answer")


class Service:
    """A service that answers after some seconds, and its patient reader."""

    def __init__(self):
        self.is_alive = True
        self.seconds_put_off = 0.0
        self.patience = patience.Patience(20.0, probe=self.probe, put_off=self.put_off)

    async def probe(self, seconds):
        if not self.is_alive:
            await asyncio.sleep(seconds)
        return self.is_alive

    def put_off(self, seconds):
        self.seconds_put_off += seconds

    async def read(self, uri, needed=60.0):
        """Return the seconds after which an answer was given up, or None if it came; note the reason."""
        clock = asyncio.get_running_loop().time
        began = clock()

        async def answer(seconds):
            try:
                async with asyncio.timeout(20.0 if seconds is None else seconds):
                    await asyncio.sleep(needed)
            except TimeoutError:
                raise SILENCE from None

        try:
            await self.patience.read(uri, answer)
        except errors.DeadlineExceeded as error:
            self.reason = error.reason
            return round(clock() - began)
        return None


@virtualtime.in_virtual_time
async def test_after_a_silence_some_requests_get_less_time_and_the_next_one_all_of_it():
    service = Service()
    timeouts = [await service.read("/a") for _ in range(patience.HURRIED + 2)]
    assert service.reason == failures.NO_ANSWER
    assert timeouts == [20, *[5] * patience.HURRIED, 20]
    assert service.seconds_put_off == sum(timeouts)


@virtualtime.in_virtual_time
async def test_another_resource_gets_all_of_its_time():
    service = Service()
    assert await service.read("/a") == 20
    assert await service.read("/b", needed=15) is None
    assert await service.read("/a", needed=15) == 5


@virtualtime.in_virtual_time
async def test_an_answer_in_the_shorter_time_ends_the_hurry():
    service = Service()
    assert await service.read("/a") == 20
    assert await service.read("/a", needed=1) is None
    assert await service.read("/a", needed=15) is None


@virtualtime.in_virtual_time
async def test_a_service_that_answers_nothing_hurries_no_resource():
    service = Service()
    service.is_alive = False
    assert [await service.read("/a") for _ in range(2)] == [25, 25]
    assert service.reason == errors.Code.DEADLINE_EXCEEDED


@virtualtime.in_virtual_time
async def test_the_deadline_of_the_caller_is_another_one():
    service = Service()
    await service.read("/a")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await service.read("/a")


@virtualtime.in_virtual_time
async def test_the_number_of_silent_resources_is_bounded():
    service = Service()
    for number in range(patience.RESOURCES_MAX + 1):
        await service.read(f"/{number}")
    assert await service.read("/0", needed=15) is None
    assert await service.read("/1", needed=15) == 5
