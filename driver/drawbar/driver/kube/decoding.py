r"""JSON decoded into structs as Go's `encoding/json` reads it, purely. Every failure is `Malformed`.

An API server passes opaque parameters on byte by byte, and accepts bytes there that the decoder refuses. One such object must
not end a daemon, nor keep it from reading all others. So where the decoder refuses, the text is rewritten first:

- Invalid UTF-8 and unpaired surrogates (`"\ud800"`) become U+FFFD, each invalid byte one, as in Go.
- An API server writes null for an empty list whose field has no `omitempty` in its type, as `status.devices` of a
  claim without conditions, or a ResourceSlice of 1.34 without devices. Such a list is read as empty.
- An API server takes 10,000 levels; the decoder as many as Python has frames, 1,000, even in skipped fields. Deeper
  values are read as null. `api.claims` leaves out objects that can be read and are too deep to be compared.
"""

import re
from collections.abc import Iterator
from typing import TypeVar

import msgspec


class Malformed(msgspec.ValidationError):
    """The text is not JSON, or no object of the wanted type."""


T = TypeVar("T")

LEVELS_MAX = 100
# The lists without `omitempty` in the objects that are read here. Within a string a quotation mark is escaped, so nothing there is taken.
_NULL = re.compile(rb'("(?:conditions|devices|items|nodeSelectorTerms|requests)":\s*)null\b')
# As far as the next run of brackets that open or close, over strings and all else: a body of megabytes has few of them.
# Possessive: to go back on a string of a megabyte would cost 120 bytes of memory for each escaped character.
_RUN = re.compile(
    rb'(?:[^\[\]{}"]++|"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z))*+(?:(?P<open>[\[{]+)|(?P<close>[\]}]+)|\Z)',
    re.DOTALL,
)
_HIGH, _LOW = rb"\\u[dD][89abAB][0-9a-fA-F]{2}", rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_PAIR = re.compile(_HIGH + _LOW)
# Where no backslash is escaped.
_UNPAIRED = re.compile(rb"%b(?!%b)|(?<!%b)%b" % (_HIGH, _LOW, _HIGH, _LOW))
# How `surrogateescape` decodes a byte that is no UTF-8.
_INVALID = re.compile("[\udc80-\udcff]")
PIECE = 1 << 16
"""Of a text that is rewritten at once: each replacement takes 60 bytes of memory meanwhile."""


def decode(body: bytes | bytearray | msgspec.Raw, into: type[T]) -> T:
    """Return the object in `body`; beyond `LEVELS_MAX` levels it may be cut.

    Raises:
        Malformed: it is something else.
    """
    # By the text, for an object may be of 8 MiB, and a tenant's: as Python's objects it would take seconds.
    try:
        return msgspec.json.decode(body, type=into)
    except (RecursionError, ValueError):
        text = _NULL.sub(rb"\1[]", _replace_invalid_text(bytes(body)))
    try:
        return msgspec.json.decode(text, type=into)
    except RecursionError:
        text = _shallow(text)
    except ValueError as error:
        raise Malformed(str(error)) from error
    try:
        return msgspec.json.decode(text, type=into)
    except (RecursionError, ValueError) as error:
        raise Malformed(str(error)) from error


def _replace_invalid_text(body: bytes) -> bytes:
    """Return the same JSON with U+FFFD for each unpaired surrogate and for each byte that is no UTF-8."""
    # A zero byte makes it no JSON at all, so none is there while it stands for a backslash.
    if b"\\u" in body and b"\0" not in body:
        text = body.replace(b"\\\\", b"\0\0")
        body = b"".join(_UNPAIRED.sub(rb"\\ufffd", piece) for piece in _pieces(text)).replace(
            b"\0\0", b"\\\\"
        )
    try:
        body.decode()
    except UnicodeDecodeError:
        characters = body.decode(errors="surrogateescape")
        begins = range(0, len(characters), PIECE)
        return b"".join(
            _INVALID.sub("\ufffd", characters[begin : begin + PIECE]).encode() for begin in begins
        )
    return body


def _pieces(body: bytes) -> Iterator[bytes]:
    """Yield JSON in pieces that end before an escape, and never within a pair of surrogates."""
    begin = 0
    while begin < len(body):
        end = body.find(b"\\u", begin + PIECE)
        pair = _PAIR.match(body, end - 6) if end >= 0 else None
        end = len(body) if end < 0 else pair.end() if pair is not None else end
        yield body[begin:end]
        begin = end


def _shallow(body: bytes) -> bytes:
    """Return the same JSON with null for each value beyond `LEVELS_MAX` levels."""
    kept: list[bytes] = []
    level, begin = 0, 0
    for run in _RUN.finditer(body):
        if run["open"]:
            if level <= LEVELS_MAX < level + len(run["open"]):
                kept += [body[begin : run.start("open") + LEVELS_MAX - level], b"null"]
                # Until its end is found: where there is none, all of the rest goes.
                begin = len(body)
            level += len(run["open"])
        elif run["close"]:
            level -= len(run["close"])
            if level <= LEVELS_MAX < level + len(run["close"]):
                begin = run.end() - (LEVELS_MAX - level)
    return b"".join((*kept, body[begin:]))
