"""Uevents in the kernel's wire format, one datagram each.

As with netlink, an event without a listener is lost, and there may be several listeners. Each further one binds the
path with a number appended. A slow listener is waited for, up to a limit. So a sender must not run in the listener's
own event loop.
"""

import errno
import socket
from collections.abc import Mapping
from pathlib import Path

LONGEST_PATH_BYTES = 107  # sun_path holds 108 with its final NUL (unix(7))
LISTENERS_MAX = 4
"""The number that marks a datagram as one of the kernel."""
_PATIENCE_SECONDS = 5.0
_NOBODY_LISTENS = frozenset({errno.ENOENT, errno.ECONNREFUSED})


def encode(action: str, devpath: str, variables: Mapping[str, str]) -> bytes:
    """Return one event as the kernel sends it (lib/kobject_uevent.c)."""
    pairs = [f"{action}@{devpath}", *(f"{key}={value}" for key, value in variables.items())]
    return b"".join(pair.encode() + b"\0" for pair in pairs)


def list_listener_paths(path: Path) -> tuple[Path, ...]:
    """Return the paths for listeners, without those too long for a socket."""
    further = (path.with_name(f"{path.name}.{number}") for number in range(1, LISTENERS_MAX))
    return (path, *(each for each in further if len(str(each).encode()) <= LONGEST_PATH_BYTES))


def send(path: Path, datagram: bytes) -> bool:
    """Send one event to one path; drop it if no process listens there.

    Returns:
        False if a listener did not take the event in time: it is lost, and later ones would be too.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.settimeout(_PATIENCE_SECONDS)
        try:
            # Only a connected socket can wait for the listener: for another one the kernel always reports room.
            sender.connect(str(path))
            sender.send(datagram)
        except TimeoutError:
            return False
        except OSError as error:
            if error.errno not in _NOBODY_LISTENS:
                raise
    return True
