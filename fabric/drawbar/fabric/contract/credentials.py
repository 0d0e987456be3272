"""The login of an adapter at its fabric manager, and the check of that manager's certificate.

Never put a `Credentials`, or a part of it, into a log, a message or an error. `repr` shows only the names of its
parts, and `redact` removes the secret parts from foreign text.
"""

import json
import urllib.parse
from dataclasses import dataclass, fields

FILLER = "[redacted]"
# Shorter lines of a key are its frame, and occur in any text.
KEY_LINE_CHARS = 16


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Credentials:
    """The credentials of one fabric manager; every part may be empty.

    Attributes:
        username: goes with `password`.
        password: goes with `username`.
        token: sent unchanged, for example as a bearer token.
        authority: PEM certificates of the authorities for the manager's certificate; empty for the system's.
        certificate: PEM certificate of the adapter, with its chain; goes with `key`.
        key: its PEM private key, without a password.
    """

    username: str = ""
    password: str = ""
    token: str = ""
    authority: str = ""
    certificate: str = ""
    key: str = ""

    def __repr__(self) -> str:
        return f"Credentials({', '.join(self.present_parts) or 'none'})"

    @property
    def present_parts(self) -> tuple[str, ...]:
        """Return the names of the parts that are set."""
        return tuple(part.name for part in fields(self) if getattr(self, part.name))

    def redact(self, text: str) -> str:
        """Return foreign text without the secret parts."""
        lines = [line for line in self.key.splitlines() if len(line) >= KEY_LINE_CHARS]
        for secret in (self.key, self.password, self.token, *lines):
            # A service may show the request itself, or its address.
            spellings = (secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1])
            for spelled in (*spellings, urllib.parse.quote(secret, safe=""), urllib.parse.quote_plus(secret)):
                text = text.replace(spelled, FILLER) if spelled else text
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """The check of the manager's certificate, if the adapter uses TLS.

    Attributes:
        verify: whether the certificate must be valid; if not, any server is accepted.
        server_name: the name in the certificate, if it differs from the endpoint's.
    """

    verify: bool = True
    server_name: str = ""
