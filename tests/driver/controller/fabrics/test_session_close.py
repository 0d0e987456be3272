"""How a session lets go of its fabric manager: no adapter can hold it, or hide why the connection ended."""

import asyncio

import pytest
from tests.scenes.sessions import FABRIC, Listener

from drawbar.driver.controller.fabrics import session
from drawbar.fabric import contract, errors
from drawbar.mocks.testing import virtualtime


class Manager:
    """An empty fabric, whose adapter closes as the test says.

    Attributes:
        closing: raised by `close`; None: it never ends.
        times: so often; closed once more, it ends well.
        listing: raised by `devices`, if given.
    """

    def __init__(self, closing, times, listing=None):
        self.closing, self.times, self.listing = closing, times, listing
        self.connected = self.closed = 0

    def validate(self, config):
        """Any configuration will do."""

    async def connect(self, config):
        self.connected += 1
        return self

    async def capabilities(self):
        return contract.Capabilities()

    async def devices(self):
        if self.listing is not None:
            raise self.listing
        return contract.Inventory(version="1", devices=())

    async def hosts(self):
        return ()

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
async def test_a_session_that_is_cancelled_ends_whatever_closing_does(closing):
    manager = Manager(closing, 1)
    opened = session.Session(FABRIC, Listener(), lambda name: manager)
    task = asyncio.Task(opened.run())
    await asyncio.sleep(1)
    assert opened.connection.connected
    task.cancel()
    await asyncio.wait({task}, timeout=session.CLOSE_SECONDS + 1)
    assert task.cancelled()
    assert (manager.connected, manager.closed) == (1, 1)


@pytest.mark.parametrize("closing", CLOSINGS, ids=["error", "defect", "hangs"])
@virtualtime.in_virtual_time
async def test_what_ended_a_connection_is_said_and_not_what_closing_it_met(closing):
    manager = Manager(closing, 100, errors.PermissionDenied("this user may not list"))
    opened = session.Session(FABRIC, Listener(), lambda name: manager)
    task = asyncio.Task(opened.run())
    await asyncio.sleep(60)
    assert (opened.connection.reason, opened.connection.message) == (
        "PermissionDenied",
        "this user may not list",
    )
    # It is tried again, and one connection is closed before the next begins.
    assert manager.connected > 2
    assert manager.connected - manager.closed in (0, 1)
    task.cancel()
    await asyncio.wait({task}, timeout=session.CLOSE_SECONDS + 1)
    assert task.cancelled()
