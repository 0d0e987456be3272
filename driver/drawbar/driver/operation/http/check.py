"""`--check`: asks the running daemon how it is; for exec probes, which reach a loopback address.

It imports little, since a probe pays for it every few seconds.
"""

import socket
from dataclasses import dataclass

from drawbar.driver.operation import errors
from drawbar.driver.operation.http import address

TIMEOUT_SECONDS = 3.0
ANSWER_LIMIT_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the daemon said.

    Attributes:
        text: its words, JSON.
    """

    good: bool
    text: str


def ask(endpoint: address.Endpoint, path: str, *, settings: str = "--http-address") -> Verdict:
    """One request.

    Args:
        endpoint: where.
        path: which page.
        settings: those that decide on the address, for the message.

    Raises:
        errors.AddressError: no daemon answers there.
    """
    try:
        answer = _fetched(endpoint, path)
    except OSError as error:
        reason = error.strerror or str(error) or "no answer"
        raise errors.AddressError(
            f"no daemon answers at {endpoint}: {reason}; is it running, with the same {settings}?"
        ) from error
    head, _, content = answer.partition(b"\r\n\r\n")
    status = head.split(b" ", 2)[1:2]
    return Verdict(good=status == [b"200"], text=content.decode(errors="replace").strip())


def _fetched(endpoint: address.Endpoint, path: str) -> bytes:
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
    with _connected(endpoint) as connection:
        connection.sendall(request)
        answer = b""
        while len(answer) < ANSWER_LIMIT_BYTES and (part := connection.recv(4096)):
            answer += part
    return answer


def _connected(endpoint: address.Endpoint) -> socket.socket:
    if endpoint.family is address.Family.TCP:
        return socket.create_connection((endpoint.host, endpoint.port), timeout=TIMEOUT_SECONDS)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(TIMEOUT_SECONDS)
    try:
        connection.connect(endpoint.host)
    except OSError:
        connection.close()
        raise
    return connection
