"""The requests of an idle service are bounded, and every resource has its turn."""

from hypothesis import given
from hypothesis import strategies as st

from drawbar.fabric.redfish import polling

COUNTS = st.integers(min_value=0, max_value=40_000)


@given(poll_seconds=st.integers(min_value=1, max_value=9999), fixed=COUNTS, remembered=COUNTS)
def test_a_poll_has_no_more_requests_than_its_budget(poll_seconds, fixed, remembered):
    poll = polling.plan(poll_seconds, fixed=fixed, remembered=remembered)
    requests = fixed + poll.rereads
    assert poll.seconds >= poll_seconds
    budget = max(poll_seconds, polling.REQUESTS_PER_POLL_MIN)
    assert requests <= budget * poll.seconds / poll_seconds * (1 + 1e-9)
    # Half of the requests of a large service, or what a small one leaves.
    assert poll.rereads == remembered or poll.rereads >= max(fixed, polling.REQUESTS_PER_POLL_MIN - fixed)


def test_a_service_of_fifty_blocks_is_polled_as_often_as_asked():
    assert polling.plan(30.0, fixed=13, remembered=160) == polling.Poll(seconds=30.0, rereads=17)
