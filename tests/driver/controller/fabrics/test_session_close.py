"""How a session lets go of its fabric manager: no adapter can hold it, or hide why the connection ended."""

import asyncio

import pytest
from tests.scenes import sessions

from drawbar.fabric import errors
from drawbar.mocks.testing import virtualtime


class Manager(sessions.Manager):
    """A manager whose adapter closes as the test says.

    Attributes:
        closing: raised by `close`; None: it never ends.
        times: so often; closed once more, it ends well.
        listing: raised by `devices`, if given.
    """

    def __init__(self, closing, times, listing=None):
        super().__init__()
        self.closing, self.times, self.listing = closing, times, listing
        self.connected = self.closed = 0

    async def connect(self, config):
        self.connected += 1
        return self

    async def devices(self):
        if self.listing is not None:
            raise self.listing
        return await super().devices()

    async def close(self):
        self.closed += 1
        if self.closed > self.times:
            return
        if self.closing is None:
            await asyncio.Event().wait()
        raise self.closing


CLOSINGS = [errors.Unavailable("it is gone already"), KeyError("session"), None]


@pytest.mark.parametrize("closing", CLOSINGS, ids=["error", "defect", "hangs"])
@virtualtime.in_virtual_time
async def test_a_cancelled_session_ends_even_if_closing_fails(closing):
    manager = Manager(closing, 1)
    async with sessions.running(manager) as opened:
        assert opened.connection.connected
    assert (manager.connected, manager.closed) == (1, 1)


@pytest.mark.parametrize("closing", CLOSINGS, ids=["error", "defect", "hangs"])
@virtualtime.in_virtual_time
async def test_the_error_of_the_connection_is_reported_and_not_the_one_of_closing(closing):
    manager = Manager(closing, 100, errors.PermissionDenied("this user may not list"))
    async with sessions.running(manager, seconds=60) as opened:
        assert (opened.connection.reason, opened.connection.message) == (
            "PermissionDenied",
            "this user may not list",
        )
        # It is tried again, and one connection is closed before the next begins.
        assert manager.connected > 2
        assert manager.connected - manager.closed in (0, 1)
