"""The pace of writes: after an outage all of them are due at the same moment."""

import asyncio
import contextvars
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

_PAYER: contextvars.ContextVar[str] = contextvars.ContextVar("payer", default="")


@contextmanager
def writing_for(payer: str) -> Iterator[None]:
    """Have the writes in the block, and in the tasks that begin there, wait in the queue of that payer, such as a Fabric."""
    token = _PAYER.set(payer)
    try:
        yield
    finally:
        _PAYER.reset(token)


class Pace:
    """A limit of the rate of writes. Waiting payers are served in turn, each first come, first served.

    So a payer with any number of writes delays another payer's write by at most one write, and the others use the
    share of an idle payer. The waiting callers bound the memory.

    Args:
        per_second: sustained rate.
        burst: the most writes at once after a quiet time.
    """

    def __init__(self, *, per_second: float, burst: int) -> None:
        self._interval = 1.0 / per_second
        self._burst = burst
        # The time of the next write without a burst, on the event loop's clock.
        self._next = 0.0
        # By payer, in the order in which they are served.
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def take(self) -> None:
        """Wait until this caller may write."""
        loop = asyncio.get_running_loop()
        if not self._waiting and self._start(loop.time()) <= loop.time():
            self._next = self._start(loop.time()) + self._interval
            return
        waiter = loop.create_future()
        self._waiting.setdefault(_PAYER.get(), deque()).append(waiter)
        if self._timer is None:
            self._timer = loop.call_at(self._start(loop.time()), self._serve)
        await waiter

    def _start(self, now: float) -> float:
        """Return when the next write may begin."""
        return max(self._next, now - (self._burst - 1) * self._interval)

    def _serve(self) -> None:
        """Let those write for whom it is time, and come again for the others."""
        loop = asyncio.get_running_loop()
        while self._waiting and (start := self._start(loop.time())) <= loop.time():
            payer = next(iter(self._waiting))
            queue = self._waiting.pop(payer)
            waiter = queue.popleft()
            if queue:
                # Behind the others.
                self._waiting[payer] = queue
            if not waiter.done():
                waiter.set_result(None)
                self._next = start + self._interval
        self._timer = loop.call_at(self._start(loop.time()), self._serve) if self._waiting else None
