"""How many requests are on their way to one service at once: fewer after it says that it is busy, more again as it answers."""

import asyncio
from types import TracebackType

# After so many answers in a row one request more is sent at once, up to the limit.
ANSWERS_TO_RECOVER = 32


class Pace:
    """A limit of requests at once; an asynchronous context for each request.

    Attributes:
        at_once: how many may be on their way now.
    """

    def __init__(self, most: int) -> None:
        self.at_once = most
        self._most = most
        self._slots = asyncio.Semaphore(most)
        # Slots that are not used again, until the service recovers.
        self._surplus = 0
        self._answers = 0

    async def __aenter__(self) -> None:
        await self._slots.acquire()
        while self._surplus:
            self._surplus -= 1
            await self._slots.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._give_slot()

    def note_busy(self) -> None:
        """Send half as many requests at once: the service has refused one because it is busy."""
        self._answers = 0
        fewer = max(self.at_once // 2, 1)
        self._surplus += self.at_once - fewer
        self.at_once = fewer

    def note_answer(self) -> None:
        """Count an answer."""
        self._answers += 1
        if self._answers >= ANSWERS_TO_RECOVER and self.at_once < self._most:
            self._answers = 0
            self.at_once += 1
            self._give_slot()

    def _give_slot(self) -> None:
        if self._surplus:
            self._surplus -= 1
        else:
            self._slots.release()
