"""Addresses of fabric plugins: `unix:/absolute/path`, or `tls://HOST:PORT`, and nothing else.

A plugin at a socket has no authentication of its own; the file system guards it. At an address that other machines can
reach, both sides show certificates: there is no form without TLS.
"""

from pathlib import Path
from urllib.parse import urlsplit

PREFIX = "unix:"
TLS_PREFIX = "tls://"
PATH_BYTES = 107
"""`sun_path` holds 108 bytes with the closing NUL (unix(7))."""


def problems(endpoint: str) -> tuple[str, ...]:
    """Return one sentence for everything that is wrong with an address; empty when it can be used."""
    if endpoint.startswith(TLS_PREFIX):
        return _network_problems(endpoint)
    if not endpoint.startswith(PREFIX):
        shapes = "unix:/absolute/path, or tls://HOST:PORT with certificates"
        return (f'the endpoint "{endpoint}" is not an address of a plugin; write {shapes}',)
    return socket_problems(endpoint)


def socket_problems(endpoint: str) -> tuple[str, ...]:
    """Return one sentence for everything that is wrong with the address of a UNIX socket."""
    if not endpoint.startswith(PREFIX):
        return (f'the endpoint "{endpoint}" is not a UNIX socket; write unix:/absolute/path',)
    path = endpoint.removeprefix(PREFIX)
    wrong = []
    if path.startswith("//"):
        wrong.append(f'the endpoint "{endpoint}" has two slashes too many; write unix:/absolute/path')
    elif not path.startswith("/"):
        wrong.append(f'the path of the endpoint "{endpoint}" is not absolute; write unix:/absolute/path')
    if (size := len(path.encode())) > PATH_BYTES:
        wrong.append(
            f'the path of the endpoint "{endpoint}" has {size} bytes, the kernel allows {PATH_BYTES}; '
            "use a shorter directory"
        )
    return tuple(wrong)


def _network_problems(endpoint: str) -> tuple[str, ...]:
    if "@" in endpoint:
        # Not quoted: the text before the @ may be a password.
        return ("the endpoint carries a user name or password; put these into the Fabric's Secret",)
    try:
        parts = urlsplit(endpoint)
        is_whole = bool(parts.hostname) and parts.port is not None
    except ValueError:
        is_whole = False
    if not is_whole or endpoint != f"{TLS_PREFIX}{parts.netloc}":
        return (f'the endpoint "{endpoint}" is not a host and port; write tls://HOST:PORT',)
    return ()


def is_network(endpoint: str) -> bool:
    """Return whether an address without problems is that of a host and port, not of a socket."""
    return endpoint.startswith(TLS_PREFIX)


def host_and_port(endpoint: str) -> str:
    """Return `HOST:PORT` of such an address, as gRPC has it."""
    return endpoint.removeprefix(TLS_PREFIX)


def socket_path(endpoint: str) -> Path:
    """Return the path of the address of a socket without problems."""
    return Path(endpoint.removeprefix(PREFIX))
