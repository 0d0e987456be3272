"""Never are more requests on their way than the pace allows, whatever the service answers."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawbar.fabric.redfish import pace, polling
from drawbar.mocks.testing import virtualtime

ANSWERS = st.lists(st.sampled_from(["busy", "answer", "broken", "given up"]), max_size=200)


async def send_all(limit, answers):
    """Send a request for each answer; return how many were on their way at the most, and after each answer."""
    kept = pace.Pace(limit)
    now = most = 0

    async def send(kind):
        nonlocal now, most
        async with kept:
            now += 1
            most = max(most, now)
            try:
                await asyncio.sleep(0)
                if kind == "given up":
                    raise asyncio.CancelledError
                if kind == "broken":
                    raise OSError
            finally:
                now -= 1
            kept.note_busy() if kind == "busy" else kept.note_answer()
            assert 1 <= kept.at_once <= limit

    await asyncio.gather(*map(send, answers), return_exceptions=True)
    return kept, most


@given(limit=st.integers(min_value=1, max_value=polling.AT_ONCE_MAX), answers=ANSWERS)
def test_no_more_requests_than_the_limit_are_on_their_way(limit, answers):
    async def run():
        kept, most = await send_all(limit, answers)
        assert most <= limit
        # As many as it says can be sent at once afterwards, and no more.
        async with asyncio.timeout(1):
            for _ in range(kept.at_once):
                await kept.__aenter__()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0), kept:
                pass

    asyncio.run(run())


async def test_a_busy_service_gets_half_and_recovers_with_its_answers():
    kept = pace.Pace(8)
    kept.note_busy()
    kept.note_busy()
    assert kept.at_once == 2
    for _ in range(6 * pace.ANSWERS_TO_RECOVER):
        kept.note_answer()
    assert kept.at_once == 8


@pytest.mark.parametrize(("asked", "waited"), [(0.0, 0.0), (2.0, 2.0), (9e9, pace.QUIET_SECONDS_MAX)])
def test_a_busy_service_gets_the_pause_that_it_asks_for(asked, waited):
    async def run():
        clock = asyncio.get_running_loop().time
        kept, began = pace.Pace(1), clock()
        kept.note_busy(asked)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0), kept:
                raise TimeoutError
        async with kept:
            return clock() - began

    assert virtualtime.in_virtual_time(run)() == pytest.approx(waited, abs=0.1)
