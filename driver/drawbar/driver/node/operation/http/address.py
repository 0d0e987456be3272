"""Where the daemon answers probes and gives its metrics.

By default that is a UNIX socket beside the kubelet's: two instances can stand side by side during a rolling update,
nobody but root reaches it, and with `hostNetwork` no port of the host is taken.
"""

import enum
import hashlib
from dataclasses import dataclass
from pathlib import Path

AUTO = "auto"
OFF = "off"
_UNIX = "unix:"
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
PATH_LIMIT_BYTES = 107  # sun_path holds 108 with its final NUL (unix(7))


@dataclass(frozen=True, slots=True, kw_only=True)
class Http:
    """Probes and metrics.

    Attributes:
        address: auto (a socket beside the kubelet's), unix:/path, 127.0.0.1:PORT, or off.
    """

    address: str = AUTO


class Family(enum.Enum):
    """What an address is of."""

    UNIX = enum.auto()
    TCP = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A place to listen; `port` is 0 and `host` a path for a UNIX socket."""

    family: Family
    host: str
    port: int = 0

    def __str__(self) -> str:
        return f"{_UNIX}{self.host}" if self.family is Family.UNIX else f"{self.host}:{self.port}"


def problems(settings: Http) -> list[str]:
    """One sentence per wrong value."""
    try:
        parse(settings.address, Path("/"), "")
    except ValueError as error:
        return [str(error)]
    return []


def parse(address: str, data_dir: Path, instance: str) -> Endpoint | None:
    """The endpoint of an address; None for `off`.

    Args:
        address: see `Http`.
        data_dir: the driver's directory at the kubelet, for `auto`.
        instance: the pod's uid, for `auto`.

    Raises:
        ValueError: it is none; the message says what to write.
    """
    if address == OFF:
        return None
    if address == AUTO:
        return Endpoint(family=Family.UNIX, host=str(_beside(data_dir, instance)))
    if address.startswith(_UNIX):
        path = address.removeprefix(_UNIX)
        if not path.startswith("/") or len(path.encode()) > PATH_LIMIT_BYTES:
            raise ValueError(
                f"--http-address {address!r}: write unix:/path with at most {PATH_LIMIT_BYTES} bytes of path"
            )
        return Endpoint(family=Family.UNIX, host=path)
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if host not in LOOPBACK or not port.isdecimal() or not 1 <= int(port) <= 65_535:
        raise ValueError(
            f"--http-address {address!r} is not auto, off, unix:/path or 127.0.0.1:PORT; "
            f"only this host can be served, since nothing here asks who calls"
        )
    return Endpoint(family=Family.TCP, host=host, port=int(port))


def _beside(data_dir: Path, instance: str) -> Path:
    path = data_dir / (f"http-{instance}.sock" if instance else "http.sock")
    if len(str(path).encode()) <= PATH_LIMIT_BYTES:
        return path
    short = hashlib.sha256(instance.encode()).hexdigest()[:8]
    return data_dir / f"h-{short}.sock"
