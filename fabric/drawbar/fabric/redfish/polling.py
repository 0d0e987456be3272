"""The polls of a service without events: their time and their size; pure.

Each poll reads connections, hosts and collections, and a part of all other resources by turns. A poll has a budget of
one request for each second of `pollSeconds`, and at least 30: by default 60 requests a minute. A service that needs
more requests is polled less often.
"""

import math
from dataclasses import dataclass

REQUESTS_PER_POLL_MIN = 30
# Requests at once, by default and at most.
AT_ONCE = 3
AT_ONCE_MAX = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """The next poll.

    Attributes:
        seconds: the time between the beginnings of two polls.
        rereads: the number of remembered resources to read again.
    """

    seconds: float
    rereads: int


def plan(poll_seconds: float, *, fixed: int, remembered: int) -> Poll:
    """Return the next poll.

    Args:
        poll_seconds: the parameter.
        fixed: the number of requests of every poll.
        remembered: the number of resources read by turns.
    """
    budget = max(math.floor(poll_seconds), REQUESTS_PER_POLL_MIN)
    # In a large service, half of the requests are rereads.
    rereads = min(remembered, max(budget - fixed, fixed))
    return Poll(seconds=poll_seconds * max(1.0, (fixed + rereads) / budget), rereads=rereads)
