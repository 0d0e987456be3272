"""The pauses between attempts."""

import itertools
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
        pytest.param([0.0] * 9 + [60.0, 0.0], 0.0, 0.1, 0.2, id="a-long-one-starts-anew"),
        pytest.param([0.0], 7.0, 7.0, 7.0, id="the-server-names-the-pause"),
        pytest.param([0.0], 1e9, 30.0, 30.0, id="the-server-names-an-absurd-pause"),
    ],
)
def test_the_pause_after_rounds_that_lived_so_long(lived, asked_seconds, least, most):
    following = backoff.Backoff()
    pauses = [following.ended(seconds, asked_seconds) for seconds in lived]
    assert least <= pauses[-1] <= most


@given(st.integers(1, 10_000), st.floats(0.001, 10.0), st.floats(10.0, 1000.0))
def test_every_pause_lies_between_half_of_its_longest_and_the_whole(failures, first, most):
    pauses = backoff.Backoff(first, most)
    given_ = [pauses.failed() for _ in range(min(failures, 40))]
    longest = [backoff.longest(count, first, most) for count in range(1, len(given_) + 1)]
    assert all(bound / 2 <= pause <= bound for pause, bound in zip(given_, longest, strict=True))
    assert longest[0] == first
    assert all(pause <= following <= 2 * pause for pause, following in itertools.pairwise(longest))
    assert backoff.longest(failures, first, most) <= most
    pauses.reset()
    assert pauses.failed() <= first


def test_two_that_fail_together_do_not_come_back_together():
    assert backoff.Backoff().failed() != backoff.Backoff().failed()


def test_the_source_of_jitter_can_be_chosen():
    first, second = (backoff.Backoff(uniform=random.Random(1).uniform) for _ in range(2))
    assert first.failed() == second.failed()
