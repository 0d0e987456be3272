"""Addresses of fabric plugins: `unix:/absolute/path`, and nothing else.

A plugin has no authentication of its own; the file system guards it. So an address that other machines could
reach is refused rather than warned about.
"""

from pathlib import Path

PREFIX = "unix:"
PATH_BYTES = 107
"""`sun_path` holds 108 bytes with the closing NUL (unix(7))."""


def problems(endpoint: str) -> tuple[str, ...]:
    """One sentence for everything that is wrong with an address; empty when it can be used."""
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


def socket_path(endpoint: str) -> Path:
    """The path of an address that has no problems."""
    return Path(endpoint.removeprefix(PREFIX))
