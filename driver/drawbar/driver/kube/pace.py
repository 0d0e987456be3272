"""How fast one client writes: as many at once as `burst`, and so many per second for as long as it lasts.

An outage that ends makes everything due at the same moment. The API server has its own flow control, but what it refuses
is sent again, and others wait meanwhile.
"""

import asyncio


class Pace:
    """Lets writes through in the order in which they came; `take` waits for one place.

    Args:
        per_second: sustained rate.
        burst: how many may come at once after a quiet time.
    """

    def __init__(self, *, per_second: float, burst: int) -> None:
        self._interval = 1.0 / per_second
        self._burst = burst
        # When the next place is, were there no burst; on the event loop's clock.
        self._next = 0.0

    async def take(self) -> None:
        """Waits until it is this caller's turn; bounded by the number of callers that wait already."""
        now = asyncio.get_running_loop().time()
        mine = max(self._next, now - (self._burst - 1) * self._interval)
        self._next = mine + self._interval
        if mine > now:
            await asyncio.sleep(mine - now)
