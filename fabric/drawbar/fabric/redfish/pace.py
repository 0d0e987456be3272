"""The number of requests to one service at once: fewer after it reports that it is busy, more again as it answers."""

import asyncio
from types import TracebackType

# After this many answers in a row, one more request is allowed at once, up to the limit.
ANSWERS_TO_RECOVER = 32
# The longest pause that a busy service is given.
QUIET_SECONDS_MAX = 10.0


class Pace:
    """A limit of requests at once; an asynchronous context for each request.

    Attributes:
        at_once: the current limit.
    """

    def __init__(self, most: int) -> None:
        self.at_once = most
        self._quiet_until = 0.0
        self._most = most
        self._slots = asyncio.Semaphore(most)
        # Slots out of use until the service recovers.
        self._surplus = 0
        self._answers = 0

    async def __aenter__(self) -> None:
        await self._slots.acquire()
        while self._surplus:
            self._surplus -= 1
            await self._slots.acquire()
        try:
            if (seconds := self._quiet_until - asyncio.get_running_loop().time()) > 0:
                await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            self._give_slot()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._give_slot()

    def note_busy(self, seconds: float = 0.0) -> None:
        """Halve the requests at once, after the service has refused one because it is busy; begin none for its pause."""
        self._quiet_until = asyncio.get_running_loop().time() + min(seconds, QUIET_SECONDS_MAX)
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
