"""Sends uevents in the kernel's wire format, one datagram each.

As with netlink, an event without a listener is gone, and several may listen: each further one binds the path with a
number behind it. A listener that is merely slow is waited for, up to a bound: so a sender must not run in the listener's
own event loop, which could then never catch up.
"""

import errno
import socket
from collections.abc import Mapping
from pathlib import Path

LONGEST_PATH_BYTES = 107  # sun_path holds 108 with its final NUL (unix(7))
LISTENERS_MAX = 4
"""As many as `drawbar.driver.node.uevents.sources` binds."""
_PATIENCE_SECONDS = 5.0
_NOBODY_LISTENS = frozenset({errno.ENOENT, errno.ECONNREFUSED})


def encode(action: str, devpath: str, variables: Mapping[str, str]) -> bytes:
    """One event as the kernel puts it on the wire (lib/kobject_uevent.c)."""
    pairs = [f"{action}@{devpath}", *(f"{key}={value}" for key, value in variables.items())]
    return b"".join(pair.encode() + b"\0" for pair in pairs)


def places(path: Path) -> tuple[Path, ...]:
    """Return the paths at which listeners may bind; a socket's path cannot be longer, so longer ones are left out."""
    further = (path.with_name(f"{path.name}.{number}") for number in range(1, LISTENERS_MAX))
    return (path, *(place for place in further if len(str(place).encode()) <= LONGEST_PATH_BYTES))


def send(path: Path, datagram: bytes) -> bool:
    """Send one event to one place; drop it if no process listens there.

    Returns:
        False if a listener is there and takes nothing: the event is lost, and more would be.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.settimeout(_PATIENCE_SECONDS)
        try:
            sender.sendto(datagram, str(path))
        except TimeoutError:
            return False
        except OSError as error:
            if error.errno not in _NOBODY_LISTENS:
                raise
    return True
