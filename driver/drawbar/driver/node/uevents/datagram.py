"""Uevents from a UNIX datagram socket, in the kernel's wire format, one a datagram.

This is how a mocked sysfs tree sends them. The socket is the listener's: what is sent while nobody listens is dropped,
as netlink drops it. Several may listen, as two instances of the daemon do during a rolling update: each further one binds
the path with a number behind it, and the sender sends to all.
"""

import asyncio
import contextlib
import errno
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

from drawbar.driver.node import errors
from drawbar.driver.node.uevents import backlog, event

_LONGEST_PATH_BYTES = 107  # sun_path holds 108 with its final NUL (unix(7))
_DATAGRAM_BYTES = 64 * 1024
_DATAGRAMS_PER_WAKEUP = 256
_LISTENERS_MAX = 4  # the mocked tree sends to so many


@contextlib.contextmanager
def bound(path: Path, pending: backlog.Backlog) -> Iterator[None]:
    """Puts the events sent to the socket at `path` into `pending` while the context lasts.

    Must be entered in a running event loop. A socket that nobody listens on any more is replaced.

    Raises:
        UeventError: the path is too long, has too many listeners or a file, or its directory cannot be written.
    """
    receiver, place = _bind(path)
    loop = asyncio.get_running_loop()
    loop.add_reader(receiver, _drain, receiver, pending)
    try:
        yield
    finally:
        loop.remove_reader(receiver)
        receiver.close()
        place.unlink(missing_ok=True)
        pending.close()


def _bind(path: Path) -> tuple[socket.socket, Path]:
    """A socket at the first free place, and the place."""
    places = [path, *(path.with_name(f"{path.name}.{number}") for number in range(1, _LISTENERS_MAX))]
    for place in places:
        receiver = _bound_at(place)
        if receiver is not None:
            return receiver, place
    raise errors.UeventError(
        f"cannot listen for uevents at {path}: {_LISTENERS_MAX} listen there already; choose another path"
    )


def _bound_at(place: Path) -> socket.socket | None:
    """A socket that is bound there; None if another listener's is."""
    length = len(str(place).encode())
    if length > _LONGEST_PATH_BYTES:
        raise errors.UeventError(
            f"the socket path {place} is {length} bytes long, of at most {_LONGEST_PATH_BYTES}: choose a shorter one"
        )
    receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        _remove_stale(place)
        receiver.bind(str(place))
    except OSError as error:
        receiver.close()
        if error.errno == errno.EADDRINUSE and place.is_socket():
            return None
        reason = "a file is there" if error.errno == errno.EADDRINUSE else error.strerror
        raise errors.UeventError(
            f"cannot listen for uevents at {place}: {reason}; choose another path"
        ) from error
    return receiver


def _remove_stale(path: Path) -> None:
    """Unlinks a socket whose owner has gone; anything else at the path is left for `bind` to refuse."""
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            return
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)


def _drain(receiver: socket.socket, pending: backlog.Backlog) -> None:
    for _ in range(_DATAGRAMS_PER_WAKEUP):
        try:
            datagram = receiver.recv(_DATAGRAM_BYTES)
        except BlockingIOError:
            return
        found = event.parse(datagram)
        if found is not None:
            pending.put(found)
