"""The sockets for the kubelet.

The path of a UNIX socket has at most 107 bytes. Each instance of the daemon has its own sockets, named by its pod's uid.
With a shared path, a second bind over a live server's socket would succeed silently, and the old server would then remove
the new one's file.

Names that are too long are shortened, for the registration and the service separately: first the uid to a hash, then the
driver's name as well. The driver's part is first in every form, so that `sweep` recognises this driver's sockets. The
kubelet ignores the names: it looks at every socket in its directory and asks for the service's path.

Source: kubelet plugin registration; unix(7).
"""

import base64
import errno
import hashlib
import logging
import os
import socket
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from drawbar.driver.node import errors

log = logging.getLogger(__name__)

PATH_LIMIT_BYTES = 107
CONNECT_TIMEOUT_SECONDS = 1.0


class Sockets(msgspec.Struct, frozen=True, kw_only=True):
    """The socket paths of one instance of the daemon."""

    registration: Path
    service: Path


def paths(kubelet_dir: Path, driver: str, instance: str) -> Sockets:
    """Return the sockets of one instance; `instance` is the pod's uid, or empty if only one can run.

    Raises:
        errors.SocketError: even the shortest form of a path is too long for a UNIX socket.
    """
    registry, data = kubelet_dir / "plugins_registry", kubelet_dir / "plugins" / driver
    uids = (
        ("", "", "") if not instance else (f"-{instance}", f"-{_digest(instance)}", f"-{_digest(instance)}")
    )
    drivers = (driver, driver, _hash_driver(driver))
    service_names = (f"dra{uids[0]}.sock", f"dra{uids[1]}.sock", f"{_digest(instance)}.sock")
    return Sockets(
        registration=_first_that_fits(
            [registry / f"{name}{uid}-reg.sock" for name, uid in zip(drivers, uids, strict=True)]
        ),
        service=_first_that_fits([data / name for name in service_names]),
    )


def _first_that_fits(candidates: Sequence[Path]) -> Path:
    for path in candidates:
        if len(os.fsencode(path)) <= PATH_LIMIT_BYTES:
            return path
    shortest = candidates[-1]
    raise errors.SocketError(
        f"the socket path {shortest} has {len(os.fsencode(shortest))} bytes, but a UNIX socket's path may have "
        f"{PATH_LIMIT_BYTES}: choose a shorter --kubelet-dir or --driver-name"
    )


def _hash_driver(driver: str) -> str:
    return f"dra-{_digest(driver)}"


def _digest(text: str) -> str:
    """Return 11 characters of a SHA-256 of `text`; socket paths are limited to 107 bytes."""
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()[:8]).rstrip(b"=").decode()


def prepare(sockets: Sockets) -> None:
    """Make the directories, and check that no other process listens on the sockets.

    Raises:
        errors.SocketError: a directory cannot be made, or another instance is alive.
    """
    for path in (sockets.registration, sockets.service):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise errors.SocketError(
                f"cannot make {path.parent}: {error.strerror}; mount the kubelet's directory into the pod at the same path"
            ) from error
        if _connect(path) == 0:
            raise errors.SocketError(
                f"another instance serves {path}: stop it, or keep the two apart with --pod-uid (POD_UID)"
            )


def sweep(kubelet_dir: Path, driver: str) -> None:
    """Remove the sockets of dead instances, which the kubelet would dial without end; live sockets stay."""
    for path in _list_sockets(kubelet_dir, driver):
        try:
            # A plain file refuses connections as well.
            if stat.S_ISSOCK(path.lstat().st_mode) and _connect(path) == errno.ECONNREFUSED:
                path.unlink(missing_ok=True)
                log.info("removed the socket of a dead instance", extra={"path": str(path)})
        except OSError as error:
            log.warning(
                "cannot remove the socket of a dead instance: %s", error.strerror, extra={"path": str(path)}
            )


def _list_sockets(kubelet_dir: Path, driver: str) -> Iterator[Path]:
    registry, data = kubelet_dir / "plugins_registry", kubelet_dir / "plugins" / driver
    patterns = (
        (registry, f"{driver}-*reg.sock"),
        (registry, f"{_hash_driver(driver)}-*reg.sock"),
        (data, "*.sock"),
    )
    for folder, pattern in patterns:
        if folder.is_dir():
            yield from sorted(folder.glob(pattern))


def _connect(path: Path) -> int:
    """Connect to a socket; return 0 if a process listens, else the errno."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(CONNECT_TIMEOUT_SECONDS)
        try:
            return probe.connect_ex(str(path))
        except TimeoutError:
            return errno.ETIMEDOUT
