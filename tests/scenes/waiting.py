"""Waiting for what can only be read, and time that only a test moves."""

import asyncio

from drawbar.mocks.testing import worlds

# A wait ends as soon as its condition holds, so only a failing test is ever this slow, however busy the machine is.
PATIENCE_SECONDS = 120.0


async def until(read, holds, seconds=PATIENCE_SECONDS):
    """Read until the value holds; return the value."""
    async with asyncio.timeout(seconds):
        pause = worlds.pauses()
        while True:
            value = await read()
            if holds(value):
                return value
            await asyncio.sleep(pause.count_failure())


async def eventually(condition, seconds=PATIENCE_SECONDS):
    """Wait until `condition`, perhaps a coroutine function, returns a true value; return that value."""

    async def read():
        value = condition()
        return await value if asyncio.iscoroutine(value) else value

    return await until(read, bool, seconds)


class Clock:
    """A clock that stands at `now` until the test moves it, or goes on by `step` whenever it is read."""

    def __init__(self, now=0.0, *, step=0.0):
        self.now, self._step = now, step

    def __call__(self):
        if self._step:
            self.now += self._step
        return self.now
