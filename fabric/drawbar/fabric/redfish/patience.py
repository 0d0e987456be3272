"""The time that a reading gives each resource of a service.

A part in trouble may hang for days, while the service answers for everything else. The wait for it does not count
against the deadline of the reading. After such a silence the resource gets a quarter of the time at some requests, and
then all of it again.
"""

from collections.abc import Awaitable, Callable
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
    """The silent resources of one service, and the time for their next requests.

    Args:
        timeout_seconds: the deadline of a request.
        probe: tells whether the service answers anything within these seconds.
        put_off: puts the deadline of the reading off by these seconds.
    """

    def __init__(
        self,
        timeout_seconds: float,
        *,
        probe: Callable[[float], Awaitable[bool]],
        put_off: Callable[[float], None],
    ) -> None:
        self._whole = timeout_seconds
        self._probe = probe
        self._put_off = put_off
        # The hurried requests left, by URI, the latest silence last.
        self._silent: dict[str, int] = {}

    async def read(self, uri: str, read: Callable[[float | None], Awaitable[Result]]) -> Result:
        """Return the answer of a request for a resource.

        Args:
            uri: of the resource.
            read: sends the request with a deadline in seconds; None for the configured one.

        Raises:
            DeadlineExceeded: it took too long; the reason is `NO_ANSWER` if the service answers other requests.
            FabricError: it failed.
        """
        left = self._silent.pop(uri, 0)
        hurried = SHARE * self._whole
        try:
            return await read(hurried if left else None)
        except errors.DeadlineExceeded as error:
            self._put_off(hurried if left else self._whole)
            if not await self._probe(hurried):
                raise
            self._note(uri, left - 1 if left else HURRIED)
            raise errors.DeadlineExceeded(error.message, reason=NO_ANSWER) from error

    def _note(self, uri: str, left: int) -> None:
        self._silent[uri] = left
        if len(self._silent) > RESOURCES_MAX:
            del self._silent[next(iter(self._silent))]
