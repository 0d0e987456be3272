"""Where uevents come from: the kernel, or a mocked sysfs tree."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

from drawbar.driver.node import errors
from drawbar.driver.node.uevents import backlog, datagram, event, kernel

KERNEL = "kernel"
_UNIX = "unix:"
_CAPACITY = 4096


class UeventSource(Protocol):
    """A subscription to uevents."""

    def events(self) -> AsyncIterator[event.Uevent | event.Overflow]:
        """Events in order, from the moment of the subscription, for one consumer.

        An `Overflow` says that some were lost. Ends when the subscription does.

        Raises:
            UeventError: the source broke.
        """
        ...


@contextlib.asynccontextmanager
async def listening(source: str, *, capacity: int = _CAPACITY) -> AsyncIterator[UeventSource]:
    """A subscription, in force once the context is entered.

    Subscribe first and read the inventory after it: what happens between the two is then seen twice and
    never missed.

    Args:
        source: `kernel`, or `unix:/path` to bind a datagram socket that a mocked tree sends to.
        capacity: how many events may wait; when more come, an `Overflow` takes their place.

    Raises:
        UeventError: the source is not one of these, or cannot be opened.
    """
    pending = backlog.Backlog(capacity)
    with _opened(source, pending):
        yield pending


def _opened(source: str, pending: backlog.Backlog) -> contextlib.AbstractContextManager[None]:
    if source == KERNEL:
        return kernel.subscribed(pending)
    path = source.removeprefix(_UNIX)
    if not source.startswith(_UNIX) or not path:
        raise errors.UeventError(f"{source!r} is no source of uevents: say {KERNEL} or unix:/path/of/socket")
    return datagram.bound(Path(path), pending)
