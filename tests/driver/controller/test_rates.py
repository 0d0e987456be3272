"""Acts are counted by key within a window, whose limit is never passed, and in bounded memory."""

import datetime

from hypothesis import given
from hypothesis import strategies as st

from drawbar.driver.controller import rates

START = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MINUTE = datetime.timedelta(minutes=1)
MICROSECOND = datetime.timedelta(microseconds=1)


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


@given(st.integers(1, 5), st.lists(st.floats(0, 90), max_size=8), st.integers(1, 17))
def test_waiters_come_one_by_one_in_their_order_at_the_moments_that_they_were_given(limit, begun, waiting):
    line, now = rates.Line(MINUTE), time_after(100)
    acts = []
    for seconds in sorted(begun):
        if line.acts.free_at("a", limit, time_after(seconds)) is None:
            line.acts.add("a", time_after(seconds))
            acts.append(time_after(seconds))
    due = {}
    for waiter in range(waiting):
        moment = line.find_turn("a", waiter, limit, now)
        if moment is None:
            line.act("a", waiter, now)
            acts.append(now)
        else:
            due[waiter] = moment
    assert list(due.values()) == sorted(due.values())
    for waiter, moment in due.items():
        # No earlier, and at that moment surely.
        assert line.find_turn("a", waiter, limit, moment - MICROSECOND) is not None
        assert line.find_turn("a", waiter, limit, moment) is None
        line.act("a", waiter, moment)
        acts.append(moment)
    for act in acts:
        assert sum(act <= other < act + MINUTE for other in acts) <= limit


def test_a_place_is_lost_by_leaving_and_by_coming_late_and_never_by_asking_again():
    line = rates.Line(MINUTE)
    line.act("a", "first", START)
    assert [line.find_turn("a", name, 1, time_after(1)) for name in "bcd"] == [
        time_after(60),
        time_after(120),
        time_after(180),
    ]
    assert line.find_turn("a", "c", 1, time_after(2)) == time_after(120)
    line.leave("c")
    assert line.find_turn("a", "d", 1, time_after(3)) == time_after(120)
    # The waiter b does not come at 60 s.
    assert line.find_turn("a", "d", 1, time_after(64)) == time_after(124)
    assert line.find_turn("a", "d", 1, time_after(65)) is None
    assert line.find_turn("e", "b", 1, time_after(65)) is None
