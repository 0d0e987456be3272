"""The origin of an endpoint: the only destination of its credentials; pure.

The origin of `SCHEME://HOST:PORT/...` is `SCHEME://HOST:PORT` in lower case, with the scheme's port if none is given.
Any other endpoint, such as `unix:/path`, is its own origin. An endpoint that two programs could read differently has
none.
"""

import ipaddress
import re

PORTS = {"https": 443, "http": 80}
FORMS = "scheme://host:port or unix:/path"
ORIGIN_BYTES = 1024
_NETWORK = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<host>\[[0-9a-f:.]+\]|[a-z0-9][a-z0-9._-]*)(?::(?P<port>[0-9]{1,5}))?(?P<rest>/[^@\\\s]*)?",
    re.ASCII | re.IGNORECASE,
)
_PATH = re.compile(r"[a-z][a-z0-9+.-]*:/(?!/)", re.ASCII)


def find_origin(endpoint: str) -> str | None:
    """Return the origin of an endpoint, or None if it has none."""
    return _read(endpoint, is_origin=False)


def parse(text: str) -> str | None:
    """Return the origin that `text` names, or None if it names none or more than an origin."""
    return _read(text, is_origin=True)


def host(origin: str) -> str:
    """Return the host of an origin without the brackets of an IPv6 address; empty for one of a path."""
    if _PATH.match(origin):
        return ""
    match = _NETWORK.fullmatch(origin)
    return match["host"].strip("[]") if match is not None else ""


def _read(text: str, *, is_origin: bool) -> str | None:
    if not text or len(text.encode(errors="replace")) > ORIGIN_BYTES or not text.isprintable():
        return None
    if _PATH.match(text) or "://" not in text:
        return text if text.strip() == text else None
    match = _NETWORK.fullmatch(text)
    if match is None or (is_origin and match["rest"] not in (None, "/")):
        return None
    scheme = match["scheme"].lower()
    port = int(match["port"]) if match["port"] else PORTS.get(scheme, 0)
    named = _host(match["host"].lower())
    if named is None or not 0 < port < 65536:
        return None
    return f"{scheme}://{named}:{port}"


def _host(text: str) -> str | None:
    if not text.startswith("["):
        return text
    try:
        return f"[{ipaddress.IPv6Address(text[1:-1])}]"
    except ValueError:
        return None
