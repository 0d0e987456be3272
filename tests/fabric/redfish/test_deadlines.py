"""A slow manager is read to its end: the deadline is that of a request, and a listing has more time the more it reads."""

import pytest
from tests.scenes import redfish_servers
from tests.scenes.redfish_servers import adapting

from drawbar.fabric import errors
from drawbar.fabric.redfish import adapter as redfish_adapter


def make_slow_service(*, seconds):
    made = redfish_servers.Service()
    made.put_blocks({f"b{number}": {"ResourceBlockType": ["Storage"]} for number in range(20)}, {"s1": []})
    made.delay_seconds = seconds
    return made


async def test_a_listing_may_take_longer_than_a_request():
    async with adapting(make_slow_service(seconds=0.1), timeout_seconds=1) as adapter:
        assert len((await adapter.devices()).devices) == 20


async def test_a_request_that_is_not_answered_ends_the_call_and_the_message_says_how_far_it_came():
    made = make_slow_service(seconds=0)
    made.stalls_after = 7
    with pytest.raises(
        errors.DeadlineExceeded, match=r"[1-9][0-9]* (other )?answers.*raise spec.timeoutSeconds"
    ):
        async with adapting(made, timeout_seconds=1):
            pass


async def test_the_reading_of_a_slow_connect_is_the_first_listing(monkeypatch):
    monkeypatch.setattr(redfish_adapter, "HANDED_SECONDS_MIN", 0.5)
    made = make_slow_service(seconds=0.05)
    async with adapting(made) as adapter:
        before = len(made.reads)
        assert len((await adapter.devices()).devices) == 20
        assert len(made.reads) - before < 5
        before = len(made.reads)
        await adapter.devices()
        assert len(made.reads) - before > 20
