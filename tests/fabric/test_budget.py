"""What a fabric manager may list and stream, and the report once it is more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawbar.fabric import budget, errors

LIMITS = budget.Limits(devices=3, hosts=2, listing_mebibytes=1, watch_events_per_second=16)


@pytest.mark.parametrize(
    ("counted", "most", "field"),
    [
        (budget.Counted.BYTES, budget.MIB, "listingMebibytes"),
        (budget.Counted.VALUES, budget.MIB // budget.BYTES_PER_VALUE, "listingMebibytes"),
        (budget.Counted.RESOURCES, 40, "devices"),
        (budget.Counted.DEVICES, 3, "devices"),
        (budget.Counted.HOSTS, 2, "hosts"),
        (budget.Counted.PORTS, 64, "hosts"),
        (budget.Counted.OPERATIONS, 6, "devices"),
    ],
)
def test_a_listing_is_counted_up_to_its_limit_and_then_names_it_with_the_remedy(counted, most, field):
    listing = budget.Listing(LIMITS, "rack-7")
    listing.count(counted, most - 1)
    listing.count(counted)
    with pytest.raises(errors.Unavailable) as caught:
        listing.count(counted)
    assert budget.is_exceeded(caught.value)
    assert f"lists {most + 1} {counted} or more, and at most {most} are read" in caught.value.message
    assert (
        f"raise spec.policy.limits.{field} of the Fabric (kubectl edit fabric rack-7)" in caught.value.message
    )


def test_each_kind_is_counted_separately():
    listing = budget.Listing(LIMITS, "f")
    for counted in budget.Counted:
        listing.count(counted, LIMITS.most(counted))


class Clock:
    """Seconds that a test sets."""

    now = 0.0

    def __call__(self):
        return self.now


def test_a_stream_may_bring_a_window_of_events_at_once_and_is_refilled_over_time():
    clock = Clock()
    flow = budget.Flow(LIMITS, "rack-7", clock=clock)
    window = int(16 * budget.WINDOW_SECONDS)
    for _ in range(window):
        flow.take()
    with pytest.raises(errors.Unavailable, match="streams more than 16 events a second for 20 s") as caught:
        flow.take()
    assert "spec.policy.limits.watchEventsPerSecond" in caught.value.message
    clock.now += 2.0
    for _ in range(31):
        flow.take()
    with pytest.raises(errors.Unavailable):
        flow.take()


def test_a_stream_of_few_and_large_events_is_one_too_many_as_well():
    flow = budget.Flow(LIMITS, "f", clock=Clock())
    with pytest.raises(errors.Unavailable, match="more than 64 KiB a second"):
        flow.take(2 * budget.MIB)


def test_the_callers_own_attaches_bring_the_events_that_they_cost():
    flow = budget.Flow(LIMITS, "f", clock=Clock())
    for _ in range(1000):
        flow.credit()
        for _ in range(budget.EVENTS_PER_CALL):
            flow.take(budget.EVENT_BYTES)


@given(st.lists(st.tuples(st.floats(0, 30), st.integers(0, 400), st.integers(0, 2)), max_size=30))
def test_no_stream_brings_more_than_a_window_and_its_rate(steps):
    clock = Clock()
    flow = budget.Flow(LIMITS, "f", clock=clock)
    came = credits_given = 0
    for seconds, events, credits_now in steps:
        clock.now += seconds
        for _ in range(credits_now):
            flow.credit()
            credits_given += 1
        for _ in range(events):
            try:
                flow.take()
            except errors.Unavailable:
                break
            came += 1
        most = 16 * (budget.WINDOW_SECONDS + clock.now) + credits_given * budget.EVENTS_PER_CALL
        assert came <= most + 1e-6
