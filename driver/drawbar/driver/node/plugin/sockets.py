"""The sockets that the kubelet looks for.

A path of a UNIX socket has at most 107 bytes. Each instance of the daemon has sockets of its own, named by its pod's
uid, since binding over a live server's path succeeds in silence and the old server then removes the new one's file.

Source: kubelet plugin registration; unix(7).
"""

import errno
import logging
import socket
from dataclasses import dataclass
from pathlib import Path

from drawbar.driver.node import errors

log = logging.getLogger(__name__)

PATH_LIMIT_BYTES = 107
CONNECT_TIMEOUT_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sockets:
    """Where one instance of the daemon listens."""

    registration: Path
    service: Path


def paths(kubelet_dir: Path, driver: str, instance: str) -> Sockets:
    """The sockets of one instance; `instance` is the pod's uid, or empty where only one can run.

    Raises:
        errors.SocketError: a path is longer than a UNIX socket's may be.
    """
    registry, data = kubelet_dir / "plugins_registry", kubelet_dir / "plugins" / driver
    if instance:
        found = Sockets(
            registration=registry / f"{driver}-{instance}-reg.sock", service=data / f"dra-{instance}.sock"
        )
    else:
        found = Sockets(registration=registry / f"{driver}-reg.sock", service=data / "dra.sock")
    for path in (found.registration, found.service):
        length = len(str(path).encode())
        if length > PATH_LIMIT_BYTES:
            raise errors.SocketError(
                f"the socket path {path} has {length} bytes, but a UNIX socket's path may have {PATH_LIMIT_BYTES}: "
                f"choose a shorter --kubelet-dir or --driver-name"
            )
    return found


def prepare(sockets: Sockets) -> None:
    """Makes the directories.

    Raises:
        errors.SocketError: a directory cannot be made or written.
    """
    for path in (sockets.registration, sockets.service):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise errors.SocketError(
                f"cannot make {path.parent}: {error.strerror}; mount the kubelet's directory into the pod at the same path"
            ) from error


def sweep(kubelet_dir: Path, driver: str) -> None:
    """Removes registration sockets of dead instances; the kubelet would knock at them for ever."""
    for path in (kubelet_dir / "plugins_registry").glob(f"{driver}-*reg.sock"):
        if _is_dead(path):
            path.unlink(missing_ok=True)
            log.info("removed the socket of a dead instance", extra={"path": str(path)})


def _is_dead(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(CONNECT_TIMEOUT_SECONDS)
        try:
            probe.connect(str(path))
        except OSError as error:
            return error.errno == errno.ECONNREFUSED
    return False
