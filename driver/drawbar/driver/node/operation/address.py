"""Where the node daemon answers probes and gives its metrics.

By default that is a UNIX socket beside the kubelet's: two instances can stand side by side during a rolling update,
nobody but root reaches it, and with `hostNetwork` no port of the host is taken.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from drawbar.driver.operation import address

AUTO = address.AUTO


@dataclass(frozen=True, slots=True, kw_only=True)
class Http:
    """Probes and metrics.

    Attributes:
        address: auto (a socket beside the kubelet's), unix:/path, 127.0.0.1:PORT, or off.
    """

    address: str = AUTO


def problems(settings: Http) -> list[str]:
    """One sentence per wrong value."""
    try:
        parse(settings.address, Path("/"), "")
    except ValueError as error:
        return [str(error)]
    return []


def parse(text: str, data_dir: Path, instance: str) -> address.Endpoint | None:
    """The endpoint of an address; None for `off`.

    Args:
        text: see `Http`.
        data_dir: the driver's directory at the kubelet, for `auto`.
        instance: the pod's uid, for `auto`.

    Raises:
        ValueError: it is none; the message says what to write.
    """
    return address.parse(text, auto=str(_beside(data_dir, instance)))


def _beside(data_dir: Path, instance: str) -> Path:
    path = data_dir / (f"http-{instance}.sock" if instance else "http.sock")
    if len(str(path).encode()) <= address.PATH_LIMIT_BYTES:
        return path
    short = hashlib.sha256(instance.encode()).hexdigest()[:8]
    return data_dir / f"h-{short}.sock"
