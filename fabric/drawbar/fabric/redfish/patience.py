"""How long a reading waits for each resource of a service.

A part in trouble may hang for days, while the service answers for everything else. Each reading would wait for it until
the deadline, so after such a silence the resource gets a quarter of the time for some readings, and then all of it again.
"""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from drawbar.fabric import errors
from drawbar.fabric.redfish.failures import NO_ANSWER

# Of the deadline of a request.
SHARE = 0.25
# The requests in a row that get no more than this share.
HURRIED = 7
RESOURCES_MAX = 256

Result = TypeVar("Result")


class Patience:
    """The resources of one service that did not answer the last time.

    Args:
        timeout_seconds: the deadline of a request.
    """

    def __init__(self, timeout_seconds: float) -> None:
        self._seconds = SHARE * timeout_seconds
        # The hurried requests left, by URI, the latest silence last.
        self._silent: dict[str, int] = {}

    async def wait(self, uri: str, answer: Awaitable[Result]) -> Result:
        """Return the answer of a request for a resource.

        Raises:
            DeadlineExceeded: it took too long; the reason is `NO_ANSWER` if the service answers other requests.
        """
        left = self._silent.pop(uri, 0)
        try:
            async with asyncio.timeout(self._seconds if left else None):
                return await answer
        except TimeoutError as error:
            self._note(uri, left - 1)
            raise errors.DeadlineExceeded(
                f"the Redfish service was asked again to read {uri} and did not answer within {self._seconds:g} s; "
                f"look at this part of the service",
                reason=NO_ANSWER,
            ) from error
        except errors.DeadlineExceeded as error:
            if error.reason == NO_ANSWER:
                self._note(uri, HURRIED)
            raise

    def _note(self, uri: str, left: int) -> None:
        self._silent[uri] = left
        if len(self._silent) > RESOURCES_MAX:
            del self._silent[next(iter(self._silent))]
