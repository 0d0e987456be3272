"""`--check` and the doctor: ask the running daemon how it is."""

from dataclasses import dataclass

from drawbar.driver.operation import errors
from drawbar.driver.operation.http import address, probe

TIMEOUT_SECONDS = 3.0


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
        unix = endpoint.family is address.Family.UNIX
        where = endpoint.host if unix else (endpoint.host, endpoint.port)
        answer = probe.fetch(where, path.encode(), TIMEOUT_SECONDS)
    except OSError as error:
        reason = error.strerror or str(error) or "no answer"
        raise errors.AddressError(
            f"no daemon answers at {endpoint}: {reason}; is it running, with the same {settings}?"
        ) from error
    head, _, content = answer.partition(b"\r\n\r\n")
    status = head.split(b" ", 2)[1:2]
    return Verdict(good=status == [b"200"], text=content.decode(errors="replace").strip())
