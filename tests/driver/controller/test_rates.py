"""Acts are counted by key within a window, whose limit is never passed, and in bounded memory."""

import datetime

from hypothesis import given
from hypothesis import strategies as st

from drawbar.driver.controller import rates

START = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MINUTE = datetime.timedelta(minutes=1)


def time_after(seconds):
    return START + datetime.timedelta(seconds=seconds)


def test_a_key_is_free_again_when_its_oldest_counted_act_leaves_the_window():
    rate = rates.Rate(MINUTE)
    for seconds in (0, 10, 20):
        assert rate.free_at("a", 3, time_after(seconds)) is None
        rate.add("a", time_after(seconds))
    assert rate.free_at("a", 3, time_after(30)) == time_after(60)
    assert rate.free_at("b", 3, time_after(30)) is None
    assert rate.find_exhausted(3, time_after(30)) == {"a": time_after(60)}
    assert rate.free_at("a", 3, time_after(60)) is None
    assert rate.find_exhausted(3, time_after(60)) == {}


@given(st.lists(st.floats(0, 50)), st.integers(1, 5))
def test_no_window_has_more_acts_than_the_limit(pauses, limit):
    rate, now, acts = rates.Rate(MINUTE), START, []
    for pause in pauses:
        now += datetime.timedelta(seconds=pause)
        if rate.free_at("a", limit, now) is None:
            rate.add("a", now)
            acts.append(now)
    for act in acts:
        assert sum(act <= other < act + MINUTE for other in acts) <= limit


def test_the_number_of_counted_keys_is_bounded():
    rate = rates.Rate(MINUTE)
    for number in range(rates.KEYS_MAX + 10):
        rate.add(number, START)
    for _ in range(rates.ACTS_MAX + 10):
        rate.add("a", START)
    assert len(rate.find_exhausted(1, START)) == rates.KEYS_MAX
    assert rate.free_at("a", rates.ACTS_MAX, START) == START + MINUTE
    rate.add("b", time_after(60))
    assert rate.find_exhausted(1, time_after(60)).keys() == {"b"}
