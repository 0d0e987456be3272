"""How often a service without events is read, and how much of it; pure.

Connections, hosts and collections are read in each poll, everything else by turns. A poll has a budget of a request for each
second of `pollSeconds`, and 30 at least: with the default these are 60 requests a minute. A service for which that is too
little is polled less often.
"""

import math
from dataclasses import dataclass

REQUESTS_PER_POLL_MIN = 30
# Requests that are on their way at once, without the parameter and at the most.
AT_ONCE = 3
AT_ONCE_MAX = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """The next poll.

    Attributes:
        seconds: between the beginnings of two polls.
        turns: how many resources are read by turns.
    """

    seconds: float
    turns: int


def plan(poll_seconds: float, *, fixed: int, remembered: int) -> Poll:
    """Return the next poll.

    Args:
        poll_seconds: the parameter.
        fixed: how many requests each poll needs.
        remembered: how many resources are read by turns.
    """
    budget = max(math.floor(poll_seconds), REQUESTS_PER_POLL_MIN)
    # A large service has half of its requests for its turns.
    turns = min(remembered, max(budget - fixed, fixed))
    return Poll(seconds=poll_seconds * max(1.0, (fixed + turns) / budget), turns=turns)
