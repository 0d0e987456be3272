"""The background tasks of an adapter: its reading follows the service's events, and else the clock."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, aclosing

from drawbar.fabric import backoff, budget, errors
from drawbar.fabric.redfish import client, service

_logger = logging.getLogger(__name__)

# Events come in groups, which one reading serves.
EVENTS_PACE_SECONDS = 0.2
EVENTS_BACKOFF_SECONDS_MIN = 1.0
EVENTS_BACKOFF_SECONDS_MAX = 60.0
# After a flood of events, and after a listing that exceeds the limits.
LIMIT_BACKOFF_SECONDS_MAX = 300.0
# A stream that was open for this long counts as a success.
EVENTS_GOOD_SECONDS = 60.0


class Keeper:
    """The tasks that keep an adapter's reading current; run `poll` and `listen` until the adapter is closed.

    Attributes:
        poke: set it to have the service read soon.
    """

    def __init__(
        self,
        connection: client.Client,
        read: service.Service,
        *,
        poll_seconds: float,
        bounded: Callable[[], AbstractAsyncContextManager[None]],
    ) -> None:
        """Begin without a task.

        Args:
            connection: to the service.
            read: the fabric behind the adapter.
            poll_seconds: the parameter.
            bounded: returns a context with the deadline of one reading.
        """
        self.poke = asyncio.Event()
        self._client = connection
        self._service = read
        self._poll_seconds = poll_seconds
        self._bounded = bounded

    async def poll(self) -> None:
        """Read everything after each event, and regularly by turns while there are watchers.

        A service that takes long is left alone for as long as it took, and one that lists too much for longer each time.
        """
        clock = asyncio.get_running_loop().time
        due = clock() + self._poll_seconds
        pauses = backoff.Backoff(self._poll_seconds, LIMIT_BACKOFF_SECONDS_MAX)
        while True:
            is_poked = await self._wait(due)
            if not is_poked and not self._service.history.watchers:
                due = clock() + self._poll_seconds
                continue
            rereads = None if is_poked else self._service.plan_poll(self._poll_seconds).rereads
            self.poke.clear()
            began = clock()
            is_exceeded = await self._read(rereads)
            took = clock() - began
            poll = self._service.plan_poll(self._poll_seconds)
            # A change during this reading is shown by the end of the next one; by turns, the budget decides.
            due = began + max(poll.seconds - (0.0 if poll.rereads else took), 2 * took)
            if is_exceeded:
                await asyncio.sleep(pauses.count_failure())
            else:
                pauses.reset()

    async def _wait(self, due: float) -> bool:
        """Wait for an event, and for more of its group; return whether one came before the due time."""
        try:
            async with asyncio.timeout_at(due):
                await self.poke.wait()
        except TimeoutError:
            return False
        await asyncio.sleep(EVENTS_PACE_SECONDS)
        return True

    async def _read(self, rereads: int | None) -> bool:
        """Read everything; return whether the service lists more than it may.

        Args:
            rereads: the number of remembered resources to read again; None for all members of collections.
        """
        try:
            async with self._bounded(), self._service.looking(whole=True, rereads=rereads):
                return bool(self._service.excess)
        except errors.FabricError as error:
            # Also if the deadline came before an answer, which no reading has seen as an error.
            self._service.history.interrupt(error)
            _logger.debug("the Redfish service cannot be read now", extra={"error": error.message})
            return budget.is_exceeded(error)

    async def listen(self) -> None:
        """Take every event of the service for a hint that something changed; close a stream with a flood of them."""
        pauses = backoff.Backoff(EVENTS_BACKOFF_SECONDS_MIN, EVENTS_BACKOFF_SECONDS_MAX)
        floods = backoff.Backoff(2 * EVENTS_BACKOFF_SECONDS_MIN, LIMIT_BACKOFF_SECONDS_MAX)
        while True:
            try:
                await self._follow(pauses, floods)
            except errors.Unimplemented:
                _logger.info("the Redfish service sends no events, so it is read regularly")
                return
            except errors.FabricError as error:
                _logger.debug("no events of the Redfish service", extra={"error": error.message})
                if budget.is_exceeded(error):
                    self._service.history.exceed("events", error.message)
                    await asyncio.sleep(floods.count_failure())
                    continue
            await asyncio.sleep(pauses.count_failure())

    async def _follow(self, pauses: backoff.Backoff, floods: backoff.Backoff) -> None:
        """Set `poke` for each event of one stream, until its end.

        Raises:
            FabricError: see `client.Client.events`.
        """
        clock = asyncio.get_running_loop().time
        opened = clock()
        # The first comes with the stream: earlier events are unknown.
        async with aclosing(self._client.events()) as events:
            async for _ in events:
                pauses.reset()
                if clock() - opened > EVENTS_GOOD_SECONDS:
                    floods.reset()
                    self._service.history.exceed("events", "")
                self.poke.set()
