"""Readings of a whole fabric, shared by those who ask for one at the same time.

Guarantee: `fresh` returns after a reading that began after it was called, so what it shows is no older than the
question. However many ask while one is under way, one more serves them all: a large fabric costs tens of milliseconds
per thousand devices, and a restart makes many devices ask at once.
"""

import asyncio
from collections.abc import Awaitable, Callable


class Readings:
    """The readings of one fabric. `read` is called by one at a time."""

    def __init__(self, read: Callable[[], Awaitable[object]]) -> None:
        self._read = read
        self._turn = asyncio.Lock()
        self._asked = 0
        # The last question that a finished reading began after.
        self._answered = 0

    @property
    def reading(self) -> bool:
        """Whether a reading is under way."""
        return self._turn.locked()

    async def fresh(self) -> None:
        """Reads, or waits for a reading that began meanwhile; raises what `read` raises."""
        self._asked += 1
        mine = self._asked
        async with self._turn:
            if self._answered >= mine:
                return
            covered = self._asked
            await self._read()
            self._answered = covered
