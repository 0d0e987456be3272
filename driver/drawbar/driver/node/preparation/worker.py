"""One thread for blocking calls that are carried to their end.

It takes half as long to hand a call to it and to have the answer as with an executor of the standard library, whose
futures cost rounds of the event loop; a Prepare waits for that.
"""

import asyncio
import queue
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")

_Calls = queue.SimpleQueue[Callable[[], None] | None]


@dataclass(slots=True, eq=False)
class _Outcome(Generic[T]):
    known: asyncio.Event = field(default_factory=asyncio.Event)
    value: T | None = None
    error: BaseException | None = None


class Worker:
    """The thread; it ends when nobody has this any more."""

    def __init__(self, name: str) -> None:
        self._calls: _Calls = queue.SimpleQueue()
        # It has the queue and not this object, so that this one can go.
        threading.Thread(target=_work, args=(self._calls,), name=name, daemon=True).start()
        weakref.finalize(self, self._calls.put, None)

    async def to_its_end(self, call: Callable[[], T], take: Callable[[T], None] | None = None) -> T:
        """Runs a blocking call after those before it, and hands its result to `take` in the loop.

        A cancellation waits for the end of both, so locks are held as long as it lasts.

        Args:
            call: may raise; whoever waits gets that.
            take: is called in the event loop, also when the caller was cancelled meanwhile.
        """
        loop = asyncio.get_running_loop()
        outcome: _Outcome[T] = _Outcome()

        def work() -> None:
            try:
                outcome.value = call()
            except BaseException as error:  # noqa: BLE001 - not swallowed: whoever waits gets it
                outcome.error = error
            loop.call_soon_threadsafe(outcome.known.set)

        self._calls.put(work)
        cancelled: asyncio.CancelledError | None = None
        while not outcome.known.is_set():
            try:
                await outcome.known.wait()
            except asyncio.CancelledError as error:
                cancelled = error
        if outcome.error is not None:
            raise outcome.error
        result: T = outcome.value  # type: ignore[assignment] # there is one, for there is no error
        if take is not None:
            take(result)
        if cancelled is not None:
            raise cancelled
        return result


def _work(calls: _Calls) -> None:
    while (call := calls.get()) is not None:
        call()
        del call  # or it would keep what it holds until the next one comes
