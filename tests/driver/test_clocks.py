"""The steady clock goes forward, whatever happens to the time of day, and steps of the latter are measured."""

import datetime

import pytest

from drawbar.driver import clocks

NOON = datetime.datetime(2026, 5, 1, 12, tzinfo=datetime.UTC)


def seconds(number):
    return datetime.timedelta(seconds=number)


def test_a_steady_moment_is_never_taken_for_a_date():
    first, second = clocks.steady(), clocks.steady()
    assert first <= second
    assert first.year < 1980
    assert clocks.time_of_day().year >= 2026


@pytest.mark.parametrize("step", [-600, 600])
def test_a_step_is_measured_once_and_drift_is_none(step):
    clock, steady = clocks.Step(), clocks.steady()
    assert clock.measure(NOON, steady) == seconds(0)
    assert clock.measure(NOON + seconds(60.2), steady + seconds(60)) == seconds(0)
    assert clock.measure(NOON + seconds(61.2 + step), steady + seconds(61)) == seconds(step)
    assert clock.measure(NOON + seconds(62.2 + step), steady + seconds(62)) == seconds(0)
