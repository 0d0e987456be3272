"""As which user an adapter logs in to its fabric manager, and how it verifies that manager.

Whoever gets a `Credentials` must not put it, or a part of it, into a log, a message or an error; `repr` shows only
which parts are there, and `redacted` takes the secret parts out of foreign text.
"""

from dataclasses import dataclass, fields

FILLER = "[redacted]"
# Shorter lines of a key are its frame, and would be found everywhere.
KEY_LINE_CHARS = 16


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Credentials:
    """What was given; everything may be empty.

    Attributes:
        username: goes with `password`.
        password: goes with `username`.
        token: sent as it is, for example as a bearer token.
        authority: PEM certificates that the manager's own certificate must come from; empty: those of the system.
        certificate: PEM certificate by which the adapter shows who it is, with its chain; goes with `key`.
        key: its PEM private key, without a password.
    """

    username: str = ""
    password: str = ""
    token: str = ""
    authority: str = ""
    certificate: str = ""
    key: str = ""

    def __repr__(self) -> str:
        return f"Credentials({', '.join(self.given) or 'none'})"

    @property
    def given(self) -> tuple[str, ...]:
        """The names of the parts that are there."""
        return tuple(part.name for part in fields(self) if getattr(self, part.name))

    def redacted(self, text: str) -> str:
        """Return foreign text without the secret parts that may stand in it."""
        lines = [line for line in self.key.splitlines() if len(line) >= KEY_LINE_CHARS]
        for secret in (self.key, self.password, self.token, *lines):
            if secret:
                text = text.replace(secret, FILLER)
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """How the manager's certificate is judged, where the adapter speaks TLS.

    Attributes:
        verify: it must be valid; without, anybody may be the manager.
        server_name: the name in the certificate, where it is not that of the endpoint.
    """

    verify: bool = True
    server_name: str = ""
