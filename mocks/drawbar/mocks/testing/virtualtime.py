"""An event loop whose clock jumps to the next timer as soon as nothing else is left to do.

Hours of deadlines, pauses and probation pass in the time that the work in them takes. It fits when everything that
talks to each other runs in this one loop, over loopback sockets or none: what one side sent the other can read at once,
so "nothing is ready" means that only time can help.

Not for code that waits for other processes, threads or gRPC channels (whose sockets are not the loop's): the clock
would run ahead of them. A thread that ends wakes the loop, but the clock may have jumped by then.
"""

import asyncio
import datetime
import functools
import selectors
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

# How long to wait in real time when there is no timer at all: something outside must act then.
REAL_WAIT_SECONDS = 0.05


class _JumpingSelector(selectors.BaseSelector):
    """A selector that never waits for a timer: it moves its clock instead."""

    def __init__(self) -> None:
        self.now = 0.0
        self._inner = selectors.DefaultSelector()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self._inner.select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if timeout is None:
            return self._inner.select(REAL_WAIT_SECONDS)
        self.now += timeout
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._inner.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._inner.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._inner.modify(fileobj, events, data)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._inner.get_map()

    def close(self) -> None:
        self._inner.close()


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """The loop; `time()` starts at 0.0 and counts virtual seconds."""

    def __init__(self, *, epoch: datetime.datetime | None = None) -> None:
        self._jumping = _JumpingSelector()
        self._epoch = epoch or datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
        super().__init__(self._jumping)

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._jumping.now

    def now(self) -> datetime.datetime:
        """The virtual time of day: the epoch, and what has passed since."""
        return self._epoch + datetime.timedelta(seconds=self._jumping.now)


def in_virtual_time(
    function: Callable[Parameters, Coroutine[Any, Any, Result]],
) -> Callable[Parameters, Result]:
    """The coroutine function as one that runs to its end, in a virtual loop of its own."""

    @functools.wraps(function)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            return runner.run(function(*args, **kwargs))

    return run
