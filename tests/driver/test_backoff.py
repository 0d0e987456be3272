"""The pauses between attempts."""

import asyncio
import itertools
import logging
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawbar.driver import backoff


@pytest.mark.parametrize(
    ("lived", "asked_seconds", "least", "most"),
    [
        pytest.param([60.0], 0.0, 0.0, 0.0, id="a-watch-that-lived-is-renewed-at-once"),
        pytest.param([0.0], 0.0, 0.1, 0.2, id="the-first-short-one-pauses"),
        pytest.param([0.0] * 4, 0.0, 0.8, 1.6, id="the-pause-doubles"),
        pytest.param([0.0] * 99, 0.0, 15.0, 30.0, id="the-pause-is-bounded"),
        pytest.param([0.0] * 9 + [60.0, 0.0], 0.0, 0.1, 0.2, id="a-long-one-starts-again"),
        pytest.param([0.0], 7.0, 7.0, 10.5, id="the-server-names-the-pause"),
        pytest.param([0.0], 1e9, 30.0, 45.0, id="the-server-names-an-absurd-pause"),
    ],
)
def test_the_pause_after_rounds_that_lived_so_long(lived, asked_seconds, least, most):
    following = backoff.Backoff()
    pauses = [following.compute_pause(seconds, asked_seconds) for seconds in lived]
    assert least <= pauses[-1] <= most


@given(st.integers(1, 10_000), st.floats(0.001, 10.0), st.floats(10.0, 1000.0))
def test_every_pause_lies_between_half_of_its_longest_and_the_whole(failures, first, most):
    pauses = backoff.Backoff(first, most)
    given_ = [pauses.count_failure() for _ in range(min(failures, 40))]
    longest = [backoff.longest(count, first, most) for count in range(1, len(given_) + 1)]
    assert all(bound / 2 <= pause <= bound for pause, bound in zip(given_, longest, strict=True))
    assert longest[0] == first
    assert all(pause <= following <= 2 * pause for pause, following in itertools.pairwise(longest))
    assert backoff.longest(failures, first, most) <= most
    pauses.reset()
    assert pauses.count_failure() <= first


def test_two_that_fail_together_do_not_come_back_together():
    assert backoff.Backoff().count_failure() != backoff.Backoff().count_failure()


def test_the_source_of_jitter_can_be_chosen():
    first, second = (backoff.Backoff(uniform=random.Random(1).uniform) for _ in range(2))
    assert first.count_failure() == second.count_failure()


class Busy(Exception):
    """A failure that passes."""

    retry_after_seconds = 0.0


class Broken(Busy):
    """A failure that lasts."""


def call(*failures):
    """Return a call that fails with these errors first, and the list of its arguments."""
    left, calls = list(failures), []

    async def record_call(*arguments):
        calls.append(arguments)
        if left:
            raise left.pop(0)
        return "done"

    return record_call, calls


def make_retrying(**changes):
    return backoff.build_retrying(Busy, unless=(Broken,), first_seconds=0.001, max_seconds=0.002, **changes)


async def test_a_call_is_made_again_until_it_succeeds():
    made, calls = call(Busy("1"), Busy("2"))
    noted = []
    assert await make_retrying(noted=noted.append)(made, "a") == "done"
    assert calls == [("a",)] * 3
    assert [str(error) for error in noted] == ["1", "2"]


@pytest.mark.parametrize("failure", [Broken("x"), ValueError("x")])
async def test_another_failure_is_raised_at_once(failure):
    made, calls = call(failure)
    with pytest.raises(type(failure)):
        await make_retrying()(made)
    assert len(calls) == 1


async def test_a_bound_of_tries_raises_the_last_failure():
    made, calls = call(*(Busy(str(number)) for number in range(9)))
    with pytest.raises(Busy, match="2"):
        await make_retrying(tries=3)(made)
    assert len(calls) == 3


async def test_the_pause_that_was_asked_for_is_kept_within_the_bound():
    asked = Busy()
    asked.retry_after_seconds = 1e9
    made, _ = call(asked)
    async with asyncio.timeout(5):
        assert await make_retrying()(made) == "done"


def test_a_failure_is_logged_once_while_it_lasts(caplog):
    note = backoff.warning_once(logging.getLogger("x"), "again: %s")
    for text in ("a", "a", "b", "a"):
        note(Busy(text))
    assert [record.getMessage() for record in caplog.records] == ["again: a", "again: b", "again: a"]
