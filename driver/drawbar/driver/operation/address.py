"""The address of a daemon's probes and metrics, and the client for `--check` and the doctor.

Only this host can reach it: it is a UNIX socket or the loopback interface, since the server does not authenticate
callers.
"""

import enum
import ipaddress

import msgspec

from drawbar.driver import errors
from drawbar.driver.operation import probe


class AddressError(errors.DrawbarError):
    """Probes and metrics cannot be served at an address, or no process answers there."""


def find_listen_problems(host: str, port: int) -> list[str]:
    """Return a sentence for each wrong value of `--listen-address` and `--listen-port`."""
    problems = []
    try:
        ipaddress.ip_address(host)
    except ValueError:
        problems.append(f"--listen-address {host!r} is not an IP address")
    if not 0 <= port <= PORT_MAX:
        problems.append(f"--listen-port {port} is not a port from 0 to {PORT_MAX}")
    return problems


def make_listen_error(host: str, port: int, error: OSError) -> AddressError:
    """Return the error of an address on which no server can listen."""
    return AddressError(
        f"cannot listen on {host} port {port}: {error.strerror or error}; choose another by --listen-address and "
        f"--listen-port"
    )


AUTO = "auto"
OFF = "off"
_UNIX = "unix:"
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
PORT_MAX = 65_535
PATH_LIMIT_BYTES = 107  # sun_path holds 108 with its final NUL (unix(7))


class Family(enum.Enum):
    """The kind of an address."""

    UNIX = enum.auto()
    TCP = enum.auto()


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint to listen on; for a UNIX socket, `port` is 0 and `host` a path."""

    family: Family
    host: str
    port: int = 0

    def __str__(self) -> str:
        return f"{_UNIX}{self.host}" if self.family is Family.UNIX else f"{self.host}:{self.port}"


def parse(address: str, *, auto: str | None = None) -> Endpoint | None:
    """Return the endpoint of an address, or None for `off`.

    Args:
        address: `unix:/path`, `127.0.0.1:PORT`, `off`, or `auto` if `auto` is given.
        auto: the path of the socket for `auto`; None if `auto` is not allowed.

    Raises:
        errors.UsageError: the text is no address; the message has the remedy.
    """
    if address == OFF:
        return None
    if address == AUTO and auto is not None:
        return Endpoint(family=Family.UNIX, host=auto)
    if address.startswith(_UNIX):
        path = address.removeprefix(_UNIX)
        if not path.startswith("/") or len(path.encode()) > PATH_LIMIT_BYTES:
            raise errors.UsageError(
                f"--http-address {address!r}: write unix:/path with at most {PATH_LIMIT_BYTES} bytes of path"
            )
        return Endpoint(family=Family.UNIX, host=path)
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if host not in LOOPBACK or not port.isdecimal() or not 1 <= int(port) <= PORT_MAX:
        forms = (
            "off, unix:/path or 127.0.0.1:PORT" if auto is None else "auto, off, unix:/path or 127.0.0.1:PORT"
        )
        raise errors.UsageError(
            f"--http-address {address!r} is not {forms}; "
            f"only this host can be served, since nothing here asks who calls"
        )
    return Endpoint(family=Family.TCP, host=host, port=int(port))


def find_problems(address: str, *, auto: str | None = None) -> list[str]:
    """Return one sentence if the text is no address; arguments as for `parse`."""
    try:
        parse(address, auto=auto)
    except errors.UsageError as error:
        return [str(error)]
    return []


CHECK_TIMEOUT_SECONDS = 3.0


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon's answer.

    Attributes:
        text: its words, JSON.
    """

    good: bool
    text: str


def ask(endpoint: Endpoint, path: str, *, settings: str = "--http-address") -> Verdict:
    """Request one page and return the verdict.

    Args:
        endpoint: the daemon's endpoint.
        path: the page.
        settings: the settings of the address, for the message.

    Raises:
        errors.AddressError: no daemon answers there.
    """
    try:
        unix = endpoint.family is Family.UNIX
        where = endpoint.host if unix else (endpoint.host, endpoint.port)
        answer = probe.fetch(where, path.encode(), CHECK_TIMEOUT_SECONDS)
    except OSError as error:
        reason = error.strerror or str(error) or "no answer"
        raise AddressError(
            f"no daemon answers at {endpoint}: {reason}; is it running, with the same {settings}?"
        ) from error
    head, _, content = answer.partition(b"\r\n\r\n")
    status = head.split(b" ", 2)[1:2]
    return Verdict(good=status == [b"200"], text=content.decode(errors="replace").strip())
