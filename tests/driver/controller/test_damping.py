"""How long good news is held back that came and went too often; seconds of a virtual clock."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawbar.driver.controller import damping

HOLD_DOWNS = (0.0, 0.0, 0.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 320.0, 320.0)


def look(damper, good, now, *work):
    return damper.look("it", good=good, now=now, work=frozenset(work))


def test_the_hold_down_time_doubles_at_each_flap_up_to_a_bound():
    damper, now = damping.Damper(), 0.0
    assert look(damper, True, now)
    for hold_down in HOLD_DOWNS:
        now += 1.0
        assert not look(damper, False, now)
        now += 1.0
        assert look(damper, True, now) == (hold_down == 0.0)
        if hold_down:
            assert damper.find_held_back(now) == {"it": hold_down}
            now += hold_down - 0.1
            assert not look(damper, True, now)
            now += 0.1
            assert look(damper, True, now)


def test_a_cause_that_breaks_off_meanwhile_has_to_hold_for_the_whole_time_again_but_no_longer():
    damper, now = make_flapped_damper(4)
    assert look(damper, True, now) is False
    for _ in range(20):
        now += 9.0
        assert look(damper, False, now) is False
        assert damper.find_held_back(now) == {}
        assert look(damper, True, now) is False
    assert damper.find_held_back(now) == {"it": 10.0}
    assert look(damper, True, now + 10.0)


@pytest.mark.parametrize(
    ("calm", "hold_down"), [(0.0, 20.0), (59.0, 20.0), (60.0, 10.0), (120.0, 0.0), (86_400.0, 0.0)]
)
def test_calm_time_reduces_the_hold_down_time(calm, hold_down):
    damper, now = make_flapped_damper(4)
    look(damper, True, now)
    now += 10.0
    assert look(damper, True, now)
    now += calm
    assert not look(damper, False, now)
    look(damper, True, now)
    assert damper.find_held_back(now) == ({"it": hold_down} if hold_down else {})


def test_a_calm_cause_is_forgotten():
    damper, now = make_flapped_damper(2)
    assert look(damper, True, now)
    assert "it" in damper
    assert look(damper, True, now + 120.0)
    assert "it" not in damper


def test_a_host_whose_last_port_this_cluster_fills_and_frees_is_never_held_back():
    damper = damping.Damper()
    for number in range(1000):
        now = float(number)
        assert not look(damper, False, now, f"attachment-{number}")
        assert look(damper, True, now + 0.5)
    # A port that fails is: an attachment that was there before explains nothing.
    results = []
    for number in range(1000, 1010):
        assert not look(damper, False, float(number), "attachment-999")
        results.append(look(damper, True, number + 0.5, "attachment-999"))
    assert results == [True, True, True, *[False] * 7]


def test_a_deleted_cause_is_forgotten():
    damper, now = make_flapped_damper(4)
    damper.retain(lambda key: key != "it")
    assert look(damper, True, now)


def make_flapped_damper(times):
    """Return a damper of what is bad now and has been well in between, and the time."""
    damper, now = damping.Damper(), 0.0
    for number in range(times):
        now += 0.5
        assert not look(damper, False, now)
        if number < times - 1:
            now += 0.5
            assert look(damper, True, now)
    return damper, now


@given(st.lists(st.tuples(st.booleans(), st.floats(0.0, 400.0)), max_size=200))
def test_bad_news_shows_at_once_good_news_in_bounded_time_and_neither_too_often(history):
    damper, now, good_since, shown = damping.Damper(), 0.0, 0.0, [0.0]
    was_shown = True
    for good, pause in history:
        now += pause
        is_shown = look(damper, good, now)
        good_since = None if not good else now if good_since is None else good_since
        assert good or not is_shown
        if good and now - good_since >= damping.HOLD_DOWN_MAX_SECONDS:
            assert is_shown
        if is_shown and not was_shown:
            shown.append(now)
        was_shown = is_shown
    for number, moment in enumerate(shown):
        lately = [it for it in shown[: number + 1] if moment - it < damping.CALM_SECONDS]
        assert len(lately) <= damping.FREE_DROPS + 1 + damping.CALM_SECONDS / damping.HOLD_DOWN_FIRST_SECONDS
