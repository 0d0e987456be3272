"""Readings of a whole fabric, shared by concurrent callers.

Guarantee: `fresh` returns after a reading that began after the call, so the result is no older than the call. One
further reading serves all calls during a reading. A large fabric costs tens of milliseconds per thousand devices, and
after a restart many devices need a reading at once.
"""

import asyncio
from collections.abc import Awaitable, Callable


class Readings:
    """The readings of one fabric. `read` is never called concurrently."""

    def __init__(self, read: Callable[[], Awaitable[object]]) -> None:
        self._read = read
        self._turn = asyncio.Lock()
        self._asked = 0
        # The last call before the begin of a finished reading.
        self._answered = 0

    @property
    def reading(self) -> bool:
        """Return whether a reading is in progress."""
        return self._turn.locked()

    async def fresh(self) -> None:
        """Read, or wait for a reading that began after this call; raise the errors of `read`."""
        self._asked += 1
        mine = self._asked
        async with self._turn:
            if self._answered >= mine:
                return
            covered = self._asked
            await self._read()
            self._answered = covered
