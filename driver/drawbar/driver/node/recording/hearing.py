"""Keeps the uevents that come while a host is recorded, up to a bound, each with its time."""

import dataclasses
import time

from drawbar.driver.node import errors, uevents
from drawbar.driver.node.recording import kinds

EVENTS_MOST = 50_000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """One event: the host's monotonic seconds, as its kernel's log has them, and the event as on the wire.

    In `message` a newline stands for each NUL.
    """

    seconds: float
    message: str


class Hearing:
    """What was heard so far.

    Attributes:
        heard: the events of devices that are recorded.
        others: how many came of other devices, and are not kept.
        dropped: how many came when there was no room any more.
        overflows: how often the kernel or we lost some.
        broken: why the source ended, if it did.
    """

    def __init__(self, most: int = EVENTS_MOST) -> None:
        self.heard: list[Heard] = []
        self.others = 0
        self.dropped = 0
        self.overflows = 0
        self.broken: str | None = None
        self._most = most

    @property
    def anything(self) -> bool:
        """Whether the tree may have changed."""
        return bool(self.heard or self.dropped or self.overflows)

    async def listen(self, source: uevents.UeventSource) -> None:
        """Takes events until the source ends or breaks; that it broke is noted, for what was heard is still worth it."""
        try:
            async for event in source.events():
                self._take(event)
        except errors.UeventError as error:
            self.broken = str(error)

    def _take(self, event: uevents.Uevent | uevents.Overflow) -> None:
        if isinstance(event, uevents.Overflow):
            self.overflows += 1
        elif not kinds.is_heard(event.subsystem, event.devpath):
            self.others += 1
        elif len(self.heard) >= self._most:
            self.dropped += 1
        else:
            self.heard.append(Heard(seconds=time.monotonic(), message=_message(event)))


def _message(event: uevents.Uevent) -> str:
    pairs = "".join(f"{key}={value}\n" for key, value in event.properties.items())
    return f"{event.action}@{event.devpath}\n{pairs}"
