"""A connection to an API server, and the tokens that authenticate it."""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from drawbar.driver.kube import errors


def _ignore() -> None:
    """Do nothing: there is no other credential."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """The settings of a connection to one API server.

    Attributes:
        server: base URL without a trailing slash.
        tls: TLS settings for https, else None.
        authorization: returns the Authorization header or None; called for every request, since the kubelet rotates
            the token file.
        origin: the source of the settings, for messages.
        may_block: whether `authorization` may run a program or ask an identity provider.
        refused: called after the API server refused the credential, so that the next request logs in again.
        impersonation: headers that name another user.
        proxy: URL of the proxy for the server, or None.
        namespace: the context's namespace, or None.
    """

    server: str
    tls: ssl.SSLContext | None
    authorization: Callable[[], str | None]
    origin: str
    may_block: bool = False
    refused: Callable[[], None] = _ignore
    impersonation: tuple[tuple[str, str], ...] = ()
    proxy: str | None = None
    namespace: str | None = None

    def __repr__(self) -> str:
        return f"Connection(server={self.server!r}, origin={self.origin!r})"

    async def authorize(self) -> str | None:
        """Return the Authorization header or None; the event loop goes on while a login lasts."""
        return await asyncio.to_thread(self.authorization) if self.may_block else self.authorization()


def read_bearer(path: Path) -> str:
    """Return the Authorization header with the token in the file.

    Raises:
        errors.ConfigError: there is none.
    """
    try:
        token = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise errors.ConfigError(f"cannot read the token file {path}: {error.strerror}") from error
    except ValueError as error:
        raise errors.ConfigError(f"the token file {path} is not text") from error
    return f"Bearer {sendable(token, f'the token in {path}')}"


def sendable(token: str, what: str) -> str:
    """Return the token, if it can stand in a header; the message does not quote it."""
    if token and token.isascii() and token.isprintable() and " " not in token:
        return token
    raise errors.ConfigError(f"{what} is empty, or holds spaces or characters that no token has")
